"""The tools side by side: how each is started on the training job, and what each claims in its own words.

A claim is {"name", "text", "advice"}, the tool's own strings, in its own order: what it says is wrong, on what evidence, and
what to do. judge.py compares claims with the fault; nothing is judged here.
"""

import json
import os
import pathlib
import subprocess
import sys

import scripts

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests/provoke"))
import harness  # noqa: E402

REQUIREMENTS = ROOT / "bench/peers/doctor.txt"
SAMPLING_S = 0.5  # TraceML's default of 2 s would see three samples of these short jobs; Bedplate samples at this rate


def environment():
    """The peers' virtual environment, made when it is not there: BEDPLATE_PEERS, or build/peers-doctor."""
    venv = pathlib.Path(os.environ.get("BEDPLATE_PEERS", ROOT / "build/peers-doctor"))
    if (venv / "bin/traceml").exists():
        return venv
    print(f"installing from PyPI into {venv}: {' '.join(REQUIREMENTS.read_text().split())}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [venv / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    index = ["--extra-index-url", os.environ["TORCH_INDEX_URL"]] if os.environ.get("TORCH_INDEX_URL") else []
    if not index and os.environ.get("BEDPLATE_TORCH") != "any":
        plan = subprocess.run([*pip, "--dry-run", "--report", "-", "torch==2.13.0"], check=True, capture_output=True, text=True).stdout
        if '"name": "nvidia' in plan and not os.path.exists("/proc/driver/nvidia"):
            sys.exit("pip offers only a CUDA build of torch (several GB): set TORCH_INDEX_URL to an index with CPU builds, "
                     "or BEDPLATE_TORCH=any to take it")
    subprocess.run([*pip, *index, "-r", REQUIREMENTS], check=True)
    return venv


class Tool:
    """One column. `script` is the kind of copy that it runs (scripts.py)."""

    name, title, script = "bare", "nothing", "plain"
    outside = False  # of the job's limits: the training script enters the group, the tool's own processes do not
    remembers = False  # reads averages of pressure that still hold what went before the job

    def command(self, venv, folder, job, flags, ranks, sampling):
        return [str(venv / "bin/python"), str(job), *flags]

    def claims(self, folder):
        return []


class Bedplate(Tool):
    name, title = "bedplate", "Bedplate"

    def command(self, venv, folder, job, flags, ranks, sampling):
        return [str(pathlib.Path(harness.binary()).resolve()), "run", "--quiet", "--out", str(folder / "run"),
                "--json", str(folder / "report.json"), "--", str(venv / "bin/python"), str(job), *flags]

    def claims(self, folder):
        report = json.loads((folder / "report.json").read_text())
        verdict, out = report["verdict"], []
        for finding in report["findings"]:
            text = verdict["text"] if not out and verdict["rule"] == finding["rule"] else ""
            evidence = "; ".join(part["text"] for part in finding["evidence"])
            because = f"consequence of {finding['because_of']}" if finding["because_of"] else finding["status"]
            out.append({"name": finding["rule"], "text": f"{text} [{because}] {evidence}".strip(), "advice": finding["fix"]})
        return out or [{"name": verdict["status"], "text": verdict["text"], "advice": ""}]


class TraceML(Tool):
    name, title = "traceml", "TraceML, script unchanged"
    # Its launcher and aggregator are three processes; within the memory limit of memcg_thrash the kernel killed the job.
    outside = True

    def command(self, venv, folder, job, flags, ranks, sampling):
        interval = ["--interval", str(sampling)] if sampling else []
        return [str(venv / "bin/traceml"), "run", str(job), "--logs-dir", str(folder / "logs"), "--run-name", "run", *interval,
                "--nproc-per-node", str(ranks), "--args", *flags]

    def claims(self, folder):
        summary = json.loads((folder / "logs/run/final_summary.json").read_text())
        first = summary["primary_diagnosis"]
        out = [_traceml_claim("", first)]
        for name in ("step_time", "system", "process", "step_memory"):
            for issue in summary[name]["issues"]:
                if issue["status"] != first["status"]:
                    out.append(_traceml_claim(name.replace("_", " ").upper() + ": ", issue))
        return out


def _traceml_claim(prefix, issue):
    return {"name": prefix + issue["status"], "text": issue.get("summary") or "", "advice": issue.get("action") or ""}


class TraceMLLoop(TraceML):
    name, title, script = "traceml-loop", "TraceML, its lines in the loop", "traceml"


class DatapathDoctor(Tool):
    name, title, script = "datapath-doctor", "datapath-doctor, its lines in the loop", "datapath"
    remembers = True

    def claims(self, folder):
        out = json.loads((folder / "claims.json").read_text())
        return out or [{"name": "no issues found", "text": "", "advice": ""}]


BARE = Tool()
UNCHANGED = TraceML()  # in a plain loop it counts no steps: a few faults show it, one of each kind
UNCHANGED_ON = ("no_workers", "noisy_neighbour", "straggler")
NAMING = [Bedplate(), TraceMLLoop(), DatapathDoctor()]
COSTING = [BARE, Bedplate(), TraceMLLoop(), DatapathDoctor()]


def run(tool, venv, folder, flags, ranks, within=None, extra=None, sampling=SAMPLING_S, timeout=240):
    """Runs the job under `tool` in `folder`; `within` is a cgroups.Group. Returns what happened and what was said.

    A job that did not finish has no step and no claims."""
    job = scripts.write(tool.script, folder, within.folders if within and tool.outside else ())
    command = tool.command(venv, folder, job, flags, ranks, sampling)
    env = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS") and k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    env.update({"GLOO_SOCKET_IFNAME": "lo", "NO_COLOR": "1", **(extra or {})})
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=timeout,
                          preexec_fn=within.enter if within and not tool.outside else None)
    own = [line for line in done.stdout.splitlines() if line.startswith('{"mean_ms"')]
    data = {flags[flags.index("--folder") + 1]: "$DATA"} if "--folder" in flags else {}
    hidden = {**data, str(folder): "$JOB", str(venv): "$PEERS", str(pathlib.Path(harness.binary()).resolve()): "bedplate",
              str(ROOT): "$REPOSITORY"}
    result = {"command": " ".join(command), "exit_code": done.returncode, "step": json.loads(own[-1]) if own else None,
              "claims": tool.claims(folder) if own else [], "printed": done.stdout + done.stderr}
    return _replace(result, hidden)


def _replace(value, names):
    """Folders of the machine are of no interest to a reader; all else stays as it was printed."""
    if isinstance(value, dict):
        return {k: _replace(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [_replace(v, names) for v in value]
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
    return value
