#!/usr/bin/env python3
"""What watching costs: the same job bare and under `bedplate run`, interleaved, medians and spread.

    .venv/bin/python bench/doctor_overhead/run.py [--repeats 5] [--steps 300] [--workers 4] [--json FILE]

Prints the step time of both, the change, Bedplate's own CPU time and memory, and the cost of one event. Results are
checked while they are timed: the loss of every run must be the same to the last bit.
"""
import argparse
import json
import math
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BIN = ROOT / ".venv/bin"


def run_job(args, watched, folder):
    job = [str(BIN / "torchrun"), "--nproc-per-node", "2", "--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
           str(HERE / "job.py"), "--steps", str(args.steps), "--workers", str(args.workers)]
    report = folder / "report.json"
    if watched:
        job = [str(args.bedplate), "run", "--quiet", "--out", str(folder / "run"), "--json", str(report), "--", *job]
    done = subprocess.run(job, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"the job failed ({done.returncode}):\n{done.stderr[-3000:]}")
    line = next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{"))
    result = json.loads(line)
    if watched:
        result["own"] = json.loads(report.read_text())["own_cost"]
    return result


def event_cost():
    """Name -> nanoseconds of one call of the hook in a loop."""
    done = subprocess.run([str(BIN / "python"), str(ROOT / "python/tests/test_cost.py")], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"the cost of an event could not be measured:\n{done.stderr[-3000:]}")
    rows = (line.rsplit(maxsplit=2) for line in done.stdout.splitlines() if line.endswith(" ns"))
    return {name: float(value) for name, value, _ in rows}


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--bedplate", default=BIN / "bedplate")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()

    bare, watched = [], []
    for repeat in range(args.repeats):
        for under_watch in (False, True) if repeat % 2 == 0 else (True, False):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="doctor-overhead-"))
            try:
                (watched if under_watch else bare).append(run_job(args, under_watch, folder))
            finally:
                shutil.rmtree(folder)
        print(f"repeat {repeat + 1}/{args.repeats}: bare {bare[-1]['step_ms']:.2f} ms, watched {watched[-1]['step_ms']:.2f} ms",
              file=sys.stderr)
    losses = {result["loss"] for result in bare + watched}
    if len(losses) != 1:
        sys.exit(f"the results differ: losses {sorted(losses)}")

    changes = [w["step_ms"] / b["step_ms"] - 1 for b, w in zip(bare, watched)]
    own = [w["own"] for w in watched]
    summary = {
        "machine": f"{processor()}, {os.cpu_count()} processors, kernel {platform.release()}",
        "repeats": args.repeats,
        "bare_step_ms": [b["step_ms"] for b in bare],
        "watched_step_ms": [w["step_ms"] for w in watched],
        "step_change": statistics.median(w["step_ms"] for w in watched) / statistics.median(b["step_ms"] for b in bare) - 1,
        "step_change_pairs": changes,
        "step_change_error": statistics.stdev(changes) / len(changes) ** 0.5 if len(changes) > 1 else math.inf,
        "own_cpu_share_of_core": [o["cpu_share_of_core"] for o in own],
        "own_max_rss_bytes": max(o["max_rss_bytes"] for o in own),
        "events": [o["events"] for o in own],
        "events_lost": sum(o["events_lost"] for o in own),
        "loss": losses.pop(),
        "event_ns": event_cost(),
    }
    print(f"machine           {summary['machine']}")
    print(f"job               2 ranks × {args.workers} workers, {args.steps} steps, n = {args.repeats}, interleaved; losses bitwise equal")
    print(f"step, bare        {spread(summary['bare_step_ms'])} ms")
    print(f"step, watched     {spread(summary['watched_step_ms'])} ms")
    print(f"change            {summary['step_change']:+.2%} of the medians; mean of the pairs {statistics.fmean(changes):+.2%} ± "
          f"{summary['step_change_error']:.2%} (standard error), pairs {min(changes):+.2%} … {max(changes):+.2%}")
    print(f"own CPU           {statistics.median(summary['own_cpu_share_of_core']):.2%} of one core")
    print(f"own memory        {summary['own_max_rss_bytes'] / 2**20:.1f} MiB at most")
    for name, cost in summary["event_ns"].items():
        print(f"{name:<25} {cost / 1e3:8.2f} µs")
    print(f"events            {statistics.median(summary['events']):.0f} a run, {summary['events_lost']} lost in all")
    if args.json:
        args.json.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
