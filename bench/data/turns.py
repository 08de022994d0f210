"""What the benches of this folder share: peers in turns, each measurement in a process of its own, medians.

    BENCH = Bench(__doc__, __file__, {"bedplate": Row(measure, make), "webdataset": Row(…, environment="peers")},
                  [Column("cpu", "k samples/CPU-s", 1e-3)])
    if __name__ == "__main__":
        BENCH.main()

A row's `make(turn)` fills turn.folder, once (rows with the same function share a folder); `measure(turn)` returns
{column: number} and calls sys.exit("why") when what it read was wrong. Both run in fresh processes of the row's own
environment: that of this script, or that of the peers (bench/data/setup.sh). Rounds go through all rows, every other
one backwards. A row that fails is named with its last line, and the others go on.
"""
import argparse
import contextlib
import dataclasses
import hashlib
import importlib.util
import inspect
import json
import os
import pathlib
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import types
from typing import Callable, Dict, Optional, Sequence

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MOST_SECONDS = 900  # of one measurement


def cpu():
    """CPU seconds of this process and of its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def bedplate_command():
    return str(pathlib.Path(sys.executable).parent / "bedplate")


def streaming_base():
    """streaming.base without the package's __init__, which imports torchvision for data sets of pictures."""
    if "streaming" not in sys.modules:
        package = types.ModuleType("streaming")
        package.__path__ = list(importlib.util.find_spec("streaming").submodule_search_locations)
        sys.modules["streaming"] = package
    return __import__("streaming.base", fromlist=["MDSWriter", "StreamingDataset"])


@dataclasses.dataclass(frozen=True)
class Turn:
    folder: pathlib.Path  # what the row's make() filled
    materials: pathlib.Path  # what Bench.materials filled
    case: str
    args: argparse.Namespace


@dataclasses.dataclass(frozen=True)
class Row:
    measure: Callable[[Turn], Dict[str, float]]
    make: Optional[Callable[[Turn], None]] = None
    environment: str = "own"  # "own", "peers"
    note: str = ""  # what it is, or lacks
    made_in: Optional[str] = None  # the environment of make(), when it is another one
    cases: Optional[Sequence[str]] = None  # in these only
    against: Sequence[str] = ()  # rows: the first column's median as a share of the best of theirs is printed too


@dataclasses.dataclass(frozen=True)
class Column:
    key: str
    title: str
    factor: float = 1
    digits: int = 1
    spread: bool = False  # lowest and highest too


@dataclasses.dataclass(frozen=True)
class Bench:
    doc: str
    script: str
    rows: Dict[str, Row]
    columns: Sequence[Column]
    headline: Callable[[argparse.Namespace], str]
    repeats: int = 5
    # Of the command line: name, default; each is an int. Other values make other folders.
    sizes: Dict[str, int] = dataclasses.field(default_factory=dict)
    # Each row is measured in each of them, a table for each.
    cases: Sequence[str] = ("",)
    made_by_case: bool = False  # what is made is another one for each case
    # Fills a folder that all rows' make() and measure() see; in the peers' environment, before them.
    materials: Optional[Callable[[Turn], None]] = None
    # Around all measurements: what it gives is added to their environment.
    around: Callable[[argparse.Namespace], "contextlib.AbstractContextManager[Dict[str, str]]"] = (
        lambda args: contextlib.nullcontext({}))

    # --- the command ------------------------------------------------------------------------------------------------

    def main(self):
        args = self._parse()
        if args.do:
            return self._do(args)
        names = args.only or list(self.rows)
        unknown = [name for name in names if name not in self.rows]
        if unknown:
            sys.exit("no row %s; there are: %s" % (", ".join(unknown), ", ".join(self.rows)))
        cases = args.cases or list(self.cases)
        results: Dict[str, Dict[str, list]] = {case: {} for case in cases}
        problems: Dict[str, Dict[str, str]] = {case: {} for case in cases}
        with self.around(args) as environment:
            for case in cases:
                here = [name for name in names if case in (self.rows[name].cases or self.cases)]
                self._all_turns(here, case, args, environment, results[case], problems[case])
                self._print(here, case, args, results[case], problems[case])
        if args.json:
            args.json.write_text(json.dumps({"results": results, "problems": problems}, indent=1) + "\n")

    def _parse(self):
        parser = argparse.ArgumentParser(description=self.doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        name = pathlib.Path(self.script).stem
        parser.add_argument("--repeats", type=int, default=self.repeats)
        for size, default in self.sizes.items():
            parser.add_argument("--" + size, type=int, default=default)
        parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build" / ("bench-" + name))
        parser.add_argument("--peers", type=pathlib.Path,
                            default=pathlib.Path(os.environ.get("BEDPLATE_PEERS", ROOT / "build/peers-data")))
        parser.add_argument("--only", nargs="*", metavar="ROW")
        if len(self.cases) > 1:
            parser.add_argument("--cases", nargs="*", choices=self.cases)
        else:
            parser.set_defaults(cases=None)
        parser.add_argument("--json", type=pathlib.Path)
        for hidden in ("--do", "--row", "--case"):
            parser.add_argument(hidden, help=argparse.SUPPRESS)
        return parser.parse_args()

    # --- in the parent ----------------------------------------------------------------------------------------------

    def _all_turns(self, names, case, args, environment, results, problems):
        if self.materials:
            problem = self._run("materials", "", case, args, environment)[1]
            if problem:
                problems.update((name, "no materials: " + problem) for name in names)
                return
        for name in names:
            if self.rows[name].make:
                problem = self._run("make", name, case, args, environment)[1]
                if problem:
                    problems[name] = problem
        for repeat in range(args.repeats):
            for name in names if repeat % 2 == 0 else reversed(names):
                if name in problems:
                    continue
                out, problem = self._run("measure", name, case, args, environment)
                if problem:
                    problems[name] = problem
                else:
                    results.setdefault(name, []).append(json.loads(out.splitlines()[-1]))
            print(" ".join(filter(None, [case, "repeat %d/%d" % (repeat + 1, args.repeats)])), file=sys.stderr)

    def _run(self, action, name, case, args, environment):
        """(what it printed, why it failed)"""
        if action == "materials":
            where = "peers"
        else:
            row = self.rows[name]
            where = (row.made_in or row.environment) if action == "make" else row.environment
        python = sys.executable if where == "own" else str(args.peers / "bin/python")
        command = [python, self.script, "--do", action, "--row", name, "--case", case,
                   "--folder", str(args.folder), "--peers", str(args.peers)]
        for size in self.sizes:
            command += ["--" + size, str(getattr(args, size))]
        env = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", **environment)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS, env=env)
        except FileNotFoundError:
            return None, "there is no %s; run bench/data/setup.sh" % python
        except subprocess.TimeoutExpired:
            return None, "not at its end after %d s" % MOST_SECONDS
        if done.returncode != 0:
            said = [line for line in (done.stderr or done.stdout).splitlines() if any(map(str.isalpha, line))]
            return None, said[-1] if said else "ended with %d" % done.returncode
        return done.stdout, None

    def _print(self, names, case, args, results, problems):
        print("%s; medians of %d; %d processors, kernel %s"
              % (": ".join(filter(None, [case, self.headline(args)])), args.repeats, os.cpu_count(), platform.release()))
        width = max(map(len, names)) + 1
        heads = []
        columns = [column for column in self.columns
                   if any(column.key in row for name in names for row in results.get(name, []))]
        for column in columns:
            heads += [column.title] + (["(range)"] if column.spread else [])
        print(" " * width + "".join("%18s" % head for head in heads))
        for name in names:
            if name in problems:
                print("%-*s not run: %s" % (width, name, problems[name][:150]))
                continue
            cells = []
            for column in columns:
                values = [row[column.key] * column.factor for row in results.get(name, []) if column.key in row]
                cells.append("%.*f" % (column.digits, statistics.median(values)) if values else "")
                if column.spread:
                    cells.append("%.*f–%.*f" % (column.digits, min(values), column.digits, max(values)) if values else "")
            note = " ".join(filter(None, [self._share(name, results), self.rows[name].note]))
            print("%-*s" % (width, name) + "".join("%18s" % cell for cell in cells) + "   " + note)
        print(flush=True)

    def _share(self, name, results):
        def middle(row):
            return statistics.median(values[self.columns[0].key] for values in results[row])

        others = [row for row in self.rows[name].against if row in results and row != name]
        if not others or name not in results:
            return ""
        best = max(others, key=middle)
        return "%.2f × %s;" % (middle(name) / middle(best), best)

    # --- in a process of a row's own --------------------------------------------------------------------------------

    def _do(self, args):
        materials = self._folder("materials", args)
        if args.do == "materials":
            return self._once(self.materials, Turn(materials, materials, args.case, args))
        row = self.rows[args.row]
        folder = self._folder(row.make.__name__.partition("_")[2], args) if row.make else args.folder
        turn = Turn(folder, materials, args.case, args)
        if args.do == "make":
            return self._once(row.make, turn)
        print(json.dumps(row.measure(turn)))

    def _once(self, make, turn):
        """What a function made is made again when its text, a size, or the bedplate that is installed has changed."""
        sizes = {size: getattr(turn.args, size) for size in self.sizes}
        package = importlib.util.find_spec("bedplate")
        modules = sorted(pathlib.Path(package.origin).parent.glob("_native*")) if package and package.origin else []
        made_by = [(path.stat().st_size, path.stat().st_mtime_ns) for path in modules]
        stamp = hashlib.sha256((inspect.getsource(make) + json.dumps([sizes, made_by])).encode()).hexdigest()
        written = turn.folder / ".written"
        if not (written.exists() and written.read_text() == stamp):
            shutil.rmtree(turn.folder, ignore_errors=True)
            turn.folder.mkdir(parents=True)
            make(turn)
            written.write_text(stamp)

    def _folder(self, name, args):
        return args.folder / (name + "-" + args.case if self.made_by_case else name)
