#!/usr/bin/env python3
"""Bedplate, traceml-ai and datapath-doctor side by side: what each names of every provoked fault, and what each costs.

    bench/doctor_vs/run.py                      # everything, about 12 minutes
    bench/doctor_vs/run.py --only io_throttle   # one fault (or job in which nothing is wrong), all tools
    bench/doctor_vs/run.py --tool bedplate      # one tool, every fault: rerun a column
    bench/doctor_vs/run.py --overhead [--repeats 5]
    bench/doctor_vs/run.py --missing            # only what results.json has not yet: resume
    bench/doctor_vs/run.py --markdown           # the tables from results.json; runs nothing
    bench/doctor_vs/run.py --docs               # puts them into docs/doctor.md

BEDPLATE names the binary (default: the newest of build/*/src/cli/bedplate), BEDPLATE_PEERS a virtual environment with the peers
(default: build/peers-doctor, made from bench/peers/doctor.txt when absent). Limits want root. Nothing else should run meanwhile.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import peers
import table

import cgroups  # tests/provoke, put on the path by peers
import faults
import harness

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HEALTHY = ["compute_bound", "well_fed", "two_ranks"]  # of faults.HEALTHY: the shapes that these tools know
COST_JOB = "well_fed"
DISTURBED_CPUS = 0.25  # processors that others used; such a run is made again, once


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return f"{model}, {os.cpu_count()} processors, kernel {platform.release()}"


def versions(venv):
    """Of everything. torch is imported so that no tool pays for reading it from the disk: the first would see IO pressure."""
    probe = "import importlib.metadata as m, json, platform, torch; print(json.dumps({'python': platform.python_version(), " \
            "**{n: m.version(n) for n in ('torch', 'traceml-ai', 'datapath-doctor')}}))"
    found = json.loads(subprocess.run([venv / "bin/python", "-c", probe], check=True, capture_output=True, text=True).stdout)
    found["bedplate"] = subprocess.run([harness.binary(), "--version"], check=True, capture_output=True, text=True).stdout.strip()
    return found


def busy():
    """Processor seconds of the machine, and of this process's children, until now."""
    user, nice, system, _, _, irq, softirq = map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8])
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime


def settle(limit=2.0, patience=40):
    """Waits until the machine's average of IO pressure has forgotten the making of the job's files."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        full = pathlib.Path("/proc/pressure/io").read_text().split("full avg10=")[1].split()[0]
        if float(full) < limit:
            return
        time.sleep(1)


def measured(tool, venv, flags, ranks, alone=True, **kwargs):
    """One run in a folder of its own. Others on the machine would be measured too: then it is made once more, and it is noted."""
    for _ in range(2):
        if tool.remembers and os.path.exists("/proc/pressure/io"):
            settle()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="doctor-vs-"))
        try:
            before, began = busy(), time.monotonic()
            result = peers.run(tool, venv, folder, flags, ranks, **kwargs)
            after, seconds = busy(), time.monotonic() - began
        finally:
            shutil.rmtree(folder)
        others = (after[0] - before[0] - (after[1] - before[1])) / seconds
        result.update(seconds=round(seconds, 1), others_cpus=round(others, 2),
                      when=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"))
        if not alone or others < DISTURBED_CPUS:
            break
    return result


def provoke(name, tools, venv, known, missing):
    """Every tool on one planted fault, or on one healthy job, one after the other."""
    fault = faults.BY_NAME.get(name) or faults.Fault(name, "", faults.HEALTHY[name], {}, {})
    runs = known.setdefault("runs", {})
    wanted = [tool for tool in tools if not (missing and runs.get(tool.name, {}).get("step"))
              and (tool is not peers.UNCHANGED or name in peers.UNCHANGED_ON)]
    if not wanted:
        return
    known.pop("skipped", None)
    try:
        with faults.folder(fault.needs) as path:
            for tool in wanted:
                flags = faults.flags(fault.base, fault.faulty, {"folder": path})
                with faults.planted([fault], path) as (group, env):
                    runs[tool.name] = measured(tool, venv, flags, fault.base.get("ranks", 1), within=group, extra=env,
                                               alone=fault.neighbours == 0)
                say(name, tool, runs[tool.name])
    except cgroups.Missing as lacking:
        known["skipped"] = str(lacking)
        print(f"{name}: skipped: {lacking}", file=sys.stderr)


def say(name, tool, result):
    claims = "; ".join(claim["name"] for claim in result["claims"])
    print(f"{name:26} {tool.name:16} {result['seconds']:5.1f} s  others {result['others_cpus']:.2f}  {claims}", file=sys.stderr, flush=True)


def cost(tools, venv, known, repeats, save):
    """The step of a healthy job under each tool and under none, in turns, each tool with its own defaults."""
    job = faults.HEALTHY[COST_JOB]
    known.setdefault("runs", {tool.name: [] for tool in tools})
    known["job"] = " ".join(faults.flags(job))
    for repeat in range(len(known["runs"][tools[0].name]), repeats):
        turn, round_ = repeat % len(tools), {}
        for tool in tools[turn:] + tools[:turn]:
            result = measured(tool, venv, faults.flags(job), job.get("ranks", 1), sampling=None)
            round_[tool.name] = {key: result["step"][key] for key in ("mean_ms", "median_ms")} | {"others_cpus": result["others_cpus"]}
            say(f"overhead {repeat + 1}/{repeats}", tool, result)
        for name, figures in round_.items():  # whole rounds only: a change is between runs that were neighbours
            known["runs"][name].append(figures)
        save()


def write(path, known):
    """Whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    new.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[*faults.BY_NAME, *HEALTHY], help="this fault or job; may be repeated")
    parser.add_argument("--tool", action="append", choices=[tool.name for tool in [*peers.NAMING, peers.UNCHANGED]], help="this tool; may be repeated")
    parser.add_argument("--missing", action="store_true", help="skip what results.json has")
    parser.add_argument("--overhead", action="store_true", help="only the cost of each")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results.json")
    parser.add_argument("--markdown", action="store_true", help="print the tables of docs/doctor.md")
    parser.add_argument("--docs", action="store_true", help="write them into docs/doctor.md")
    args = parser.parse_args()
    if args.markdown:
        print(table.markdown(json.loads(args.results.read_text())))
        return
    if args.docs:
        page = ROOT / "docs/doctor.md"
        page.write_text(table.pasted(page.read_text(), json.loads(args.results.read_text())))
        return
    venv = peers.environment()
    tools = [tool for tool in [*peers.NAMING, peers.UNCHANGED] if not args.tool or tool.name in args.tool]
    names = args.only or [*faults.BY_NAME, *HEALTHY]
    known = json.loads(args.results.read_text()) if args.results.exists() else {}
    known.update(machine=machine(), versions=versions(venv))
    try:
        for name in [] if args.overhead else names:
            provoke(name, tools, venv, known.setdefault("jobs", {}).setdefault(name, {}), args.missing)
            write(args.results, known)
        if args.overhead or not (args.only or args.tool):
            if not args.missing:
                known.pop("overhead", None)
            cost(peers.COSTING, venv, known.setdefault("overhead", {}), args.repeats, lambda: write(args.results, known))
    finally:
        write(args.results, known)


if __name__ == "__main__":
    main()
