"""python3 -m bedplate.data.parquet SRC… DST: Parquet becomes packed shards, as by import_parquet().

`bedplate data pack` runs it for sources that are Parquet, and its exit codes are the same: 0 fine, 2 a mistake in the
call, a refusal or values that cannot be packed, 3 the environment (not there, no space, damaged, no pyarrow).
"""

import argparse
import json
import os
import shutil
import signal
import sys
from time import monotonic
from typing import Any, Dict, List, NoReturn, Optional

from .. import _native
from .arrow_columns import Columns
from .dtypes import COLUMNS
from .importing import import_parquet, pyarrow_parquet

_NOT_BEFORE = 2.0  # seconds
_BETWEEN = 0.2


class _Stopped(BaseException):
    def __init__(self, number: int) -> None:
        self.number = number


class _Line:
    """How far it is, on a terminal, from the third second on."""

    def __init__(self) -> None:
        self.able = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.began = self.shown = monotonic()
        self.drawn = False

    def show(self, done: int, of: int) -> None:
        now = monotonic()
        if not self.able or now - self.began < _NOT_BEFORE or now - self.shown < _BETWEEN:
            return
        self.shown = now
        share = done / max(1, of)
        bar = "█" * int(share * 20)
        left = (now - self.began) / max(share, 1e-9) * (1 - share)
        text = "bedplate: packing %s %.0f %% · %d of %d samples · %d s left" % (bar.ljust(20, "░"), share * 100, done, of, left)
        sys.stderr.write("\r\033[K" + text[: shutil.get_terminal_size().columns - 1])
        sys.stderr.flush()
        self.drawn = True

    def hide(self) -> None:
        if self.drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
        self.drawn = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        say(message)
        sys.exit(2)


def say(text: str) -> None:
    sys.stderr.write("bedplate: %s\n" % text)


def main(arguments: Optional[List[str]] = None) -> int:
    parser = _Parser(
        prog="python3 -m bedplate.data.parquet",
        description="Packs the rows of Parquet files into shards; killed, it goes on.",
    )
    parser.add_argument("places", metavar="SRC… DST", nargs="+", help="files, folders or patterns, then where to")
    parser.add_argument("--columns", metavar="A,B", help="these only, in this order")
    parser.add_argument("--schema", metavar="COLUMNS", help="these only, as these types: tokens:u16[2048],text:utf8")
    parser.add_argument("--fill", metavar="NAME=VALUE", action="append", default=[], help="what stands for null in a column; VALUE as in JSON, else text")
    parser.add_argument("--shard-bytes", metavar="SIZE", default="256MiB", help="size of a shard; 256MiB if not given")
    parser.add_argument("--shard-samples", metavar="N", type=int, help="samples of a shard, exactly, instead of its size")
    parser.add_argument("--threads", metavar="N", type=int, default=0, help="of pyarrow; 0: as many as there are processors")
    parser.add_argument("--overwrite", action="store_true", help="remove the shards of an earlier pack in DST first")
    parser.add_argument("--dry-run", action="store_true", help="say what would be made, write nothing")
    parser.add_argument("--json", action="store_true", help="what was made, as JSON")
    given = parser.parse_args(arguments)
    if len(given.places) < 2:
        parser.error("it takes what is to be packed, and where to: SRC… DST")
    line = _Line()
    before = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        report = _run(given, line)
    except _Stopped as stopped:
        line.hide()
        say("stopped; the same command goes on")
        signal.signal(stopped.number, signal.SIG_DFL)
        os.kill(os.getpid(), stopped.number)
        return 128 + stopped.number
    except Exception as problem:
        line.hide()
        code = _exit_code(problem)
        say(str(problem) if code != 4 else "internal error: %r" % problem)
        return code
    finally:
        line.hide()
        for number, handler in before.items():
            signal.signal(number, handler)
    _tell(report, given.places[-1], given.json)
    return 0


def _stop(number: int, _frame: Any) -> None:
    raise _Stopped(number)


def _run(given: argparse.Namespace, line: _Line) -> Dict[str, Any]:
    if given.columns and given.schema:
        raise ValueError("give --columns or --schema, not both")
    columns: Optional[Columns] = given.columns.split(",") if given.columns else None
    if given.schema:
        columns = _columns_of_schema(given.schema)
    pyarrow_parquet()
    if given.threads > 0:
        import pyarrow

        pyarrow.set_cpu_count(given.threads)
    return import_parquet(
        given.places[:-1],
        given.places[-1],
        columns=columns,
        fill=dict(_filling(text) for text in given.fill),
        shard_bytes=_native.parse_size(given.shard_bytes),
        shard_samples=given.shard_samples,
        overwrite=given.overwrite,
        dry_run=given.dry_run,
        progress=line.show,
    )


def _columns_of_schema(text: str) -> Columns:
    names = {short: long for long, short in COLUMNS.items()}
    columns = json.loads(_native.parse_schema(text))["columns"]
    return {
        one["name"]: (names[one["dtype"]], [None if n == -1 else n for n in one.get("shape", [])]) for one in columns
    }


def _filling(text: str) -> "tuple[str, Any]":
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError("--fill is written NAME=VALUE, not %r" % text)
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _exit_code(problem: Exception) -> int:
    if isinstance(problem, (_native.CorruptError, NotImplementedError, ImportError)):
        return 3
    if isinstance(problem, (ValueError, TypeError, FileExistsError)):
        return 2
    return 3 if isinstance(problem, (OSError, MemoryError)) else 4


def _tell(report: Dict[str, Any], destination: str, as_json: bool) -> None:
    for note in report["notes"]:
        say(note)
    if report["abandoned"]:
        say("%d half-written files of a killed pack were removed" % report["abandoned"])
    if as_json:
        schema = json.loads(report["schema"]) if report["schema"] else None
        shown = {name: report[name] for name in ("end", "from", "source_files", "source_bytes", "samples", "shards", "shards_made", "bytes", "notes")}
        print(json.dumps({**shown, "destination": destination, "schema": schema}, indent=1))
        return
    samples = "%d sample%s" % (report["samples"], "" if report["samples"] == 1 else "s")
    shards = "%d shard%s" % (report["shards"], "" if report["shards"] == 1 else "s")
    size = _native.human_bytes(report["bytes"])
    if report["end"] == "planned":
        print("%s: would become %s, from %s of Parquet" % (destination, samples, _native.human_bytes(report["source_bytes"])))
    elif report["end"] == "nothing to do":
        print("%s: nothing to do, it is all there: %s in %s, %s" % (destination, samples, shards, size))
    else:
        earlier = report["shards"] - report["shards_made"]
        print("%s: %s in %s, %s%s" % (destination, samples, shards, size, "; %d were there already" % earlier if earlier else ""))


if __name__ == "__main__":
    sys.exit(main())
