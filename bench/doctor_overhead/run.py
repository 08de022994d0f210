#!/usr/bin/env python3
"""What watching costs: the same job bare and under `bedplate run`, interleaved, medians and spread.

    .venv/bin/python bench/doctor_overhead/run.py [--repeats 5] [--steps 300] [--workers 4] [--rounds 5] [--json FILE]

Prints the step time of both, the change, Bedplate's own CPU time and memory, and the cost of one event. Results are
checked while they are timed: the loss of every run must be the same to the last bit.

Two runs of one job differ by several per cent where the machine is shared, so the change of the step is measured
inside runs as well: in each of --rounds watched runs the watching goes off and on in blocks of steps (watch_switch.py).
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


def torchrun(args):
    return [str(BIN / "torchrun"), "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(HERE / "job.py"),
            "--width", str(args.width), "--workers", str(args.workers)]


# A job whose tensors come to lie at the end of glibc's heap gives the memory back and faults it in anew in each step, or
# does not: chance, which any small allocation can turn, and up to a tenth of the step. Both sides keep their memory.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}


def run_checked(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, env={**os.environ, **KEEP_MEMORY})
    if done.returncode != 0:
        sys.exit(f"the job failed ({done.returncode}):\n{done.stderr[-3000:]}")
    return done.stdout


def last_object(text):
    return json.loads(next(line for line in reversed(text.splitlines()) if line.startswith("{")))


def run_job(args, watched, folder):
    job = [*torchrun(args), "--steps", str(args.steps)]
    report = folder / "report.json"
    if watched:
        job = [str(args.bedplate), "run", "--quiet", "--out", str(folder / "run"), "--json", str(report), "--", *job]
    result = last_object(run_checked(job))
    if watched:
        result["own"] = json.loads(report.read_text())["own_cost"]
    return result


SETTLING = 2  # steps at the head of a block that are not counted


def in_blocks(args, folder):
    """One watched run -> changes by each four blocks on, off, off, on of the step's wall time and of rank 0's CPU time,
    and BPF's share of a processor."""
    job = [*torchrun(args), "--steps", str(args.block_steps), "--block", str(args.block), "--parts", args.parts]
    result = last_object(run_checked([str(args.bedplate), "run", "--quiet", "--out", str(folder / "run"), "--", *job]))
    bpf = result["bpf_ns"]
    return changes_of(result["times"], args.block), changes_of(result["cpu"], args.block), bpf / 1e9 / result["seconds"] if bpf is not None else None


def changes_of(times, block):
    """A time for each step but the first of each block -> the relative change by each four blocks on, off, off, on."""
    per_block = block - 1
    times = times[per_block:]  # the first block is the start
    means = [statistics.fmean(times[at + SETTLING:at + per_block]) for at in range(0, len(times) - per_block + 1, per_block)]
    changes = []
    for at in range(3, len(means) - 3, 4):  # block 1 came first: at 3 begins a four of on off off on
        on1, off1, off2, on2 = means[at:at + 4]
        changes.append((on1 + on2) / (off1 + off2) - 1)
    return changes


class BpfStats:
    """Lets the kernel count the run time of BPF programs while the block runs, where that is permitted."""

    KNOB = pathlib.Path("/proc/sys/kernel/bpf_stats_enabled")

    def __enter__(self):
        try:
            self.before = self.KNOB.read_text()
            self.KNOB.write_text("1")
        except OSError:
            self.before = None

    def __exit__(self, *_):
        if self.before is not None:
            self.KNOB.write_text(self.before)


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


def standard_error(values):
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else math.inf


TRIMMED = 0.2  # of the fours at each end: in those the machine was somewhere else for a while


def trimmed(values):
    """Trimmed mean and its standard error, from the winsorised variance (Tukey and McLaughlin 1963)."""
    values = sorted(values)
    cut = int(TRIMMED * len(values))
    if len(values) - 2 * cut < 2:
        return statistics.fmean(values), math.inf
    kept = values[cut:len(values) - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    return statistics.fmean(kept), statistics.stdev(winsorised) / ((1 - 2 * TRIMMED) * len(values) ** 0.5)


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--width", type=int, default=1024, help="of the model: 1024 makes steps of 70 ms, 512 of 23 ms (with --block 40)")
    parser.add_argument("--rounds", type=int, default=5, help="runs with the watching off and on in blocks")
    parser.add_argument("--block", type=int, default=14, help="steps of a block; it is to last as long as two samples of the collector")
    parser.add_argument("--block-steps", type=int, default=862, help="steps of each of these runs")
    parser.add_argument("--parts", default="hook,collector", help="what is switched off and on: hook, collector, both, or none, which shows the noise")
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
    changes, cpu_changes, bpf = [], [], []
    for round_ in range(args.rounds):
        with tempfile.TemporaryDirectory(prefix="doctor-overhead-") as folder, BpfStats():
            of_run, of_cpu, bpf_share = in_blocks(args, pathlib.Path(folder))
        changes.append(of_run)
        cpu_changes += of_cpu
        if bpf_share is not None:
            bpf.append(bpf_share)
        so_far = trimmed([change for run in changes for change in run])
        print(f"blocks {round_ + 1}/{args.rounds}: {statistics.fmean(of_run):+.2%}; trimmed mean so far {so_far[0]:+.2%} ± {so_far[1]:.2%}",
              file=sys.stderr)
    fours = [change for of_run in changes for change in of_run]
    if not bare:
        of_step, of_cpu = trimmed(fours), trimmed(cpu_changes)
        return print(f"change, in blocks  {of_step[0]:+.2%} ± {of_step[1]:.2%}; rank 0's CPU time {of_cpu[0]:+.2%} ± {of_cpu[1]:.2%} "
                     f"({args.parts}; trimmed means of {len(fours)} fours; plain {statistics.fmean(fours):+.2%} ± {standard_error(fours):.2%})")
    losses = {result["loss"] for result in bare + watched}
    if len(losses) != 1:
        sys.exit(f"the results differ: losses {sorted(losses)}")

    pairs = [w["step_ms"] / b["step_ms"] - 1 for b, w in zip(bare, watched)]
    own = [w["own"] for w in watched]
    summary = {
        "machine": f"{processor()}, {os.cpu_count()} processors, kernel {platform.release()}",
        "repeats": args.repeats,
        "bare_step_ms": [b["step_ms"] for b in bare],
        "watched_step_ms": [w["step_ms"] for w in watched],
        "step_change": statistics.median(w["step_ms"] for w in watched) / statistics.median(b["step_ms"] for b in bare) - 1,
        "step_change_pairs": pairs,
        "step_change_error": standard_error(pairs),
        "blocks_step_change": trimmed(fours)[0] if fours else None,
        "blocks_step_change_error": trimmed(fours)[1] if fours else None,
        "blocks_step_change_plain": statistics.fmean(fours) if fours else None,
        "blocks_step_change_plain_error": standard_error(fours),
        "blocks_step_change_runs": [statistics.fmean(of_run) for of_run in changes],
        "blocks_cpu_change": trimmed(cpu_changes)[0] if cpu_changes else None,
        "blocks_cpu_change_error": trimmed(cpu_changes)[1] if cpu_changes else None,
        "bpf_share_of_core": bpf,
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
    print(f"change, run by run {summary['step_change']:+.2%} of the medians; mean of the pairs {statistics.fmean(pairs):+.2%} ± "
          f"{summary['step_change_error']:.2%} (standard error), pairs {min(pairs):+.2%} … {max(pairs):+.2%}")
    if fours:
        runs = summary["blocks_step_change_runs"]
        print(f"change, in blocks  {summary['blocks_step_change']:+.2%} ± {summary['blocks_step_change_error']:.2%} ({TRIMMED:.0%} trimmed mean and its "
              f"standard error, {len(fours)} fours of {args.block} steps on, off, off, on in {len(runs)} runs), runs {min(runs):+.2%} … {max(runs):+.2%}")
        print(f"CPU time of a rank {summary['blocks_cpu_change']:+.2%} ± {summary['blocks_cpu_change_error']:.2%}, in the same blocks")
    if bpf:
        print(f"BPF programs      {statistics.median(bpf):.2%} of one core")
    print(f"own CPU           {statistics.median(summary['own_cpu_share_of_core']):.2%} of one core")
    print(f"own memory        {summary['own_max_rss_bytes'] / 2**20:.1f} MiB at most")
    for name, cost in summary["event_ns"].items():
        print(f"{name:<25} {cost / 1e3:8.2f} µs")
    print(f"events            {statistics.median(summary['events']):.0f} a run, {summary['events_lost']} lost in all")
    if args.json:
        args.json.write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
