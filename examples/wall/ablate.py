"""What does each wall of naive.py cost? Mend each alone, and all, in turn, and see.

    python ablate.py --repeats 3 [--steps 84] [--packs DIR] [--json FILE]

Every repeat runs naive.py, mended.py with one fix at a time, and mended.py with all, so that a
machine that drifts drifts for all of them. A run's step time is the wall clock from the end of the
first checkpoint's step to the end of the last step, divided by the steps between: checkpoints
count with their share, start-up and packing do not. A gain is the median over the repeats of
naive's step time less that of the mended run of the same repeat.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from mended import FIXES
from naive import CHECKPOINT_EVERY

HERE = Path(__file__).resolve().parent
RANKS = 2
DISTURBED = 0.15  # CPUs used by others from which the table says so


def jobs(packs):
    """Name -> script and arguments, in the order in which they run."""
    mended = [str(HERE / "mended.py"), "--packs", str(packs)]
    singles = {fix: [*mended, "--fix", fix] for fix in FIXES}
    return {"naive": [str(HERE / "naive.py")], **singles, "all": mended}


def run(script, steps, out):
    """One training run; returns what the first rank logged, a dictionary a step."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launch, f"--nproc-per-node={RANKS}", *script, f"--steps={steps}", f"--out={out}"]
    with open(out / "output.txt", "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise
    if code != 0:
        sys.exit(f"{' '.join(command)}\nended with {code}:\n{(out / 'output.txt').read_text()}")
    return [json.loads(line) for line in open(out / "log-0.jsonl")]


def step_ms(log):
    """Mean wall time of a step after the first checkpoint, in milliseconds."""
    steps = len(log) - CHECKPOINT_EVERY
    return (log[-1]["time"] - log[CHECKPOINT_EVERY - 1]["time"]) / steps * 1e3


def cpu_seconds():
    """(used on all CPUs of the machine, used by the runs that have ended) so far."""
    fields = [int(field) for field in open("/proc/stat").readline().split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    own = os.times()
    machine = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return machine, own.children_user + own.children_system


def machine():
    model = next(
        (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cpus_allowed": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def measure(repeats, steps, packs):
    """Name -> {"step_ms", "cpus_of_others": [a run each], "losses": those of the last run}."""
    results = {}
    with tempfile.TemporaryDirectory(prefix="wall-ablate-") as folder:
        packs = packs or Path(folder) / "packs"
        for repeat in range(1, repeats + 1):
            for name, script in jobs(packs).items():
                out = Path(folder) / name
                out.mkdir(exist_ok=True)
                begin, busy_before, own_before = time.monotonic(), *cpu_seconds()
                log = run(script, steps, out)
                seconds, (busy, own) = time.monotonic() - begin, cpu_seconds()
                others = max(0.0, (busy - busy_before) - (own - own_before)) / seconds
                result = results.setdefault(name, {"step_ms": [], "cpus_of_others": []})
                result["step_ms"].append(step_ms(log))
                result["cpus_of_others"].append(round(others, 2))
                result["losses"] = [line["loss"] for line in log]
                print(
                    f"{repeat}/{repeats} {name:<11} {result['step_ms'][-1]:7.1f} ms a step"
                    f"  ({seconds:.0f} s; others used {others:.2f} CPUs)",
                    file=sys.stderr,
                    flush=True,
                )
    return results


def summarise(results):
    """Adds to each result its median, its gain over naive and how far its losses lie off."""
    naive = results["naive"]
    for result in results.values():
        gains = [a - b for a, b in zip(naive["step_ms"], result["step_ms"])]
        distance = max(abs(a - b) for a, b in zip(naive["losses"], result["losses"]))
        result["median_ms"] = statistics.median(result["step_ms"])
        result["gain_ms"] = statistics.median(gains)
        result["gain_range_ms"] = [min(gains), max(gains)]
        result["gain_share"] = result["gain_ms"] / statistics.median(naive["step_ms"])
        result["loss_first"], result["loss_last"] = result["losses"][0], result["losses"][-1]
        result["loss_distance"] = distance


def table(results):
    lines = [
        f"{'mended':<11} {'ms a step':>9} {'gain ms':>8} {'(least..most)':>16} {'of naive':>8}"
        f" {'last loss':>10}  losses"
    ]
    for name, result in results.items():
        low, high = result["gain_range_ms"]
        same = "bitwise naive's"
        if result["loss_distance"] > 0:
            same = f"within {result['loss_distance']:.1e} of naive's"
        gain = ("", "", "")
        if name != "naive":
            gain = (
                f"{result['gain_ms']:.1f}",
                f"({low:.1f}..{high:.1f})",
                f"{result['gain_share']:.1%}",
            )
        lines.append(
            f"{'nothing' if name == 'naive' else name:<11} {result['median_ms']:9.1f}"
            f" {gain[0]:>8} {gain[1]:>16} {gain[2]:>8} {result['loss_last']:10.4f}  {same}"
        )
    speed = results["naive"]["median_ms"] / results["all"]["median_ms"]
    order = sorted(FIXES, key=lambda fix: -results[fix]["gain_ms"])
    others = max(max(result["cpus_of_others"]) for result in results.values())
    if others > DISTURBED:
        lines.append(f"\ndisturbed: other processes used up to {others:.2f} CPUs during a run")
    lines.append(f"\norder of cost: {' > '.join(order)}; all mended: {speed:.2f} times as fast")
    return "\n".join(lines)


def number_of_steps(text):
    steps = int(text)
    if steps % CHECKPOINT_EVERY or steps < 2 * CHECKPOINT_EVERY:
        raise argparse.ArgumentTypeError(
            f"{steps} is not a multiple of {CHECKPOINT_EVERY}, the steps between checkpoints, "
            f"from {2 * CHECKPOINT_EVERY} on"
        )
    return steps


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=number_of_steps, default=7 * CHECKPOINT_EVERY)
    parser.add_argument("--packs", type=Path, help="folder to keep the packed corpus in")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    try:
        results = measure(args.repeats, args.steps, args.packs)
    except KeyboardInterrupt:
        sys.exit(130)
    summarise(results)
    where = machine()
    print(f"{where['cpu']}, {where['cpus_allowed']} CPUs, torch {where['torch']};", end=" ")
    print(f"{RANKS} ranks, {args.steps} steps, {args.repeats} runs of each, interleaved\n")
    print(table(results))
    if args.json:
        report = {"machine": where, "ranks": RANKS, "steps": args.steps, "jobs": results}
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
