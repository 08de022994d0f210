"""Runs job.py under `bedplate run` and returns what it measured and what Bedplate said.

    outcome = run(["--steps", "100"], within=group)
    outcome.mean_ms, outcome.rules, outcome.report["findings"]

BEDPLATE names the binary (default: the newest of build/*/src/cli/bedplate); a Python with torch is this one.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import resource
import statistics
import sys
import tempfile
import time
import warnings

LONG = os.environ.get("BEDPLATE_PROVOKE") == "long"
NOISE = 0.05  # what a measured gain may exceed a ceiling by, as a share of the step, at least
_QUIET_CPUS = 0.15  # processors that others may use while a job is measured
_QUIET_STOLEN = 0.05  # processors that the hypervisor may take
_TRIES = 4

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def binary():
    given = os.environ.get("BEDPLATE")
    if given:
        return given
    built = sorted(ROOT.glob("build/*/src/cli/bedplate"), key=lambda p: p.stat().st_mtime)
    if not built:
        raise FileNotFoundError("no bedplate was built; build it or set BEDPLATE")
    return str(built[-1])


@dataclasses.dataclass
class Outcome:
    report: dict
    mean_ms: float  # the job's own clock; 0 when it died
    text: str
    exit_code: int
    stolen: float = 0.0  # processors that the hypervisor gave to other guests meanwhile

    @property
    def findings(self):
        return [finding for finding in self.report["findings"] if not self._is_of_the_hypervisor(finding)]

    @property
    def verdict(self):
        """That of the report, but for what is true of the machine and not of the job."""
        if self.findings == self.report["findings"]:
            return self.report["verdict"]
        if not self.findings:
            return {**self.report["verdict"], "status": "healthy", "rule": None}
        return {**self.report["verdict"], "rule": self.findings[0]["rule"]}

    def _is_of_the_hypervisor(self, finding):
        return self.stolen > 0 and finding["rule"] == "noisy_neighbour" and "hypervisor" in finding["title"]

    @property
    def rules(self):
        return [finding["rule"] for finding in self.findings]

    def finding(self, rule):
        return next((f for f in self.findings if f["rule"] == rule), None)


def _busy():
    """Processor seconds of the machine since its start, idle and IO wait not counted."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, _ = map(int, fields)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _stolen():
    """Processor seconds that the hypervisor gave to others."""
    return int(pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")


def _own():
    children, mine = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    return children.ru_utime + children.ru_stime + mine.ru_utime + mine.ru_stime


class _Patience:
    """What a whole session may spend on waiting for a quiet machine and on runs made again: on a machine that is never quiet
    the tests judge what they can get, in bounded time."""

    seconds = float(os.environ.get("BEDPLATE_PROVOKE_PATIENCE", "1200" if LONG else "120"))

    @classmethod
    def wait_for_quiet(cls):
        while cls.seconds > 0:
            busy, began = _busy(), time.monotonic()
            time.sleep(1)
            if _busy() - busy < _QUIET_CPUS:
                return
            cls.seconds -= time.monotonic() - began


def run(arguments, within=None, env=None, company=False, timeout=240, before=lambda: None):
    """`within`: a cgroups.Group that the whole of it is started in. `company`: others are meant to disturb. `before`: called ahead of
    each attempt.

    A run that others on the machine disturbed, or its hypervisor, is made again, and said so: it would measure them, not the fault.
    """
    for attempt in range(1, _TRIES + 1):
        if not company:
            _Patience.wait_for_quiet()
        before()
        busy, own, stolen, began = _busy(), _own(), _stolen(), time.monotonic()
        outcome = _run_once(arguments, within, env, timeout)
        elapsed = time.monotonic() - began
        outcome.stolen = (_stolen() - stolen) / elapsed
        others = (_busy() - busy - (_own() - own)) / elapsed
        if (company or others < _QUIET_CPUS) and outcome.stolen < _QUIET_STOLEN or _Patience.seconds <= 0:
            break
        _Patience.seconds -= elapsed
        warnings.warn(f"others used {others:.2f} processors, and {outcome.stolen:.2f} were stolen, during attempt {attempt}", stacklevel=2)
    return outcome


def gain_of(before, after):
    """(median gain of the rounds, its noise): shares of the step. Rounds ran in turn, so that each compares neighbours in time;
    the noise is half of the range that they span."""
    for outcome in [*before, *after]:
        assert outcome.exit_code == 0, outcome.text
    gains = [1 - b.mean_ms / a.mean_ms for a, b in zip(before, after)]
    return statistics.median(gains), max(NOISE, (max(gains) - min(gains)) / 2)


def _run_once(arguments, within, env, timeout):
    with tempfile.TemporaryDirectory(prefix="provoke-") as folder:
        report = os.path.join(folder, "report.json")
        command = [binary(), "run", "--quiet", "--out", os.path.join(folder, "run"), "--json", report, "--",
                   sys.executable, str(HERE / "job.py"), *map(str, arguments)]
        environment = {k: v for k, v in os.environ.items()
                       if not k.endswith("_NUM_THREADS") and k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        environment.update(env or {})
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=timeout,
                              preexec_fn=within.enter if within else None)
        if not os.path.exists(report):
            raise AssertionError(f"no report:\n{done.stdout}\n{done.stderr}")
        with open(report) as file:
            parsed = json.load(file)
        mean = 0.0
        for line in done.stdout.splitlines():
            if line.startswith('{"mean_ms"'):
                mean = json.loads(line)["mean_ms"]
        keep = os.environ.get("BEDPLATE_PROVOKE_KEEP")
        if keep:
            subprocess.run(["cp", "-r", os.path.join(folder, "run"), tempfile.mkdtemp(dir=keep)], check=False)
        return Outcome(parsed, mean, done.stderr, done.returncode)
