#!/usr/bin/env python3
"""Records the runs of tests/golden anew: some seconds each, on a quiet machine, as root for the CPU quota.

    .venv/bin/python tools/record_golden.py [--bedplate build/dev/src/cli/bedplate] [CASE…]

A recorded run is kept as it was, but for names of this machine's folders: they are replaced in all texts, so that nothing of
the recording machine's layout is published. The old recordings need no renewal when rules change (tools/update_golden.sh
judges them again); record anew when the run file's schema changes or a case is added.
"""
import argparse
import os
import pathlib
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/provoke"))
import cgroups  # noqa: E402

JOB = "python job.py --steps {steps} --width 512 --workers 0"
CASES = {
    "healthy": (JOB.format(steps=60), {}),
    "two_ranks": (JOB.format(steps=60) + " --ranks 2", {}),
    "input_workers": (JOB.format(steps=60) + " --data decode --decode-ms 20", {}),
    "cpu_quota": (JOB.format(steps=60) + " --width 1024", {"cpu": 0.5}),
    "checkpoint_stall": (JOB.format(steps=60) + " --checkpoint-every 10 --checkpoint-mb 64 --fsync --folder .", {}),
    "crash": (JOB.format(steps=60) + " --ranks 2 --die kill --die-rank 1 --die-step 30", {}),
    "not_python": ("sh -c 'head -c 300000000 /dev/zero | gzip -1 | wc -c'", {}),
}


def tidy(database, replaced):
    """Folder names of this machine out of every text; the write-ahead log folded in; no free pages."""
    with sqlite3.connect(database) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        db.execute("DELETE FROM machine WHERE path <> 'host.json'")
        for table in tables:
            for _, column, kind, *_ in db.execute(f"PRAGMA table_info({table})").fetchall():
                if kind != "TEXT":
                    continue
                for old, new in replaced:
                    db.execute(f"UPDATE {table} SET {column} = REPLACE({column}, ?, ?)", (old, new))
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute("VACUUM")
    db.close()


def record(name, command, limits, bedplate):
    kept = ROOT / "tests/golden" / name
    with tempfile.TemporaryDirectory(prefix="train-") as folder:
        folder = pathlib.Path(folder)
        shutil.copy(ROOT / "tests/provoke/job.py", folder)
        environment = dict(os.environ, PATH=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
        environment.pop("BEDPLATE_CONFIG", None)
        started = [bedplate, "run", "--quiet", "--out", name, "--", *shlex.split(command)]
        with cgroups.group(**limits) as group:
            done = subprocess.run(started, cwd=folder, env=environment, preexec_fn=group.enter, capture_output=True, text=True)
        print(f"{name}: ended with {done.returncode}")
        kept.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name / "run.db", kept / "run.db")
        tidy(kept / "run.db", [(str(folder), "/home/user/train"), (str(ROOT), "/home/user/bedplate"),
                               (os.path.realpath(sys.executable), "/usr/bin/python3"), (sys.base_prefix, "/usr")])
    verdict = [line for line in done.stderr.splitlines() if line.startswith(("FOUND", "HEALTHY", "UNKNOWN"))]
    print(f"  {os.path.getsize(kept / 'run.db') // 1024} KiB; {verdict[0] if verdict else done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bedplate", default=str(ROOT / "build/dev/src/cli/bedplate"))
    parser.add_argument("case", nargs="*", help="all when none is named: " + " ".join(CASES))
    options = parser.parse_args()
    for name in options.case or CASES:
        command, limits = CASES[name]
        record(name, command, limits, os.path.abspath(options.bedplate))


if __name__ == "__main__":
    main()
