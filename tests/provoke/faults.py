"""The faults: how each is planted, how it is mended, and which rule has to name it.

A fault is a set of flags for job.py, an environment, limits, and company. What the faulty and the mended job have in common is
the fault's `base`; two faults can be planted at once when their bases agree (pairs in test_pairs.py).
"""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import typing

import cgroups


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    rule: str
    base: dict
    faulty: dict                       # flags over base
    mended: dict                       # flags over base
    env: dict = dataclasses.field(default_factory=dict)
    limits: dict = dataclasses.field(default_factory=dict)
    neighbours: int = 0                # spinning processes outside the job
    needs: tuple = ()                  # "files", "data", "large data", "read-ahead": what is put into the folder
    allow: tuple = ()                  # rules that may be found besides, as consequences
    says: typing.Optional[str] = None  # must be in the finding's title or fix


FAULTS = [
    Fault("cpu_quota", "cpu_quota", {"steps": 110, "width": 1024, "workers": 0}, {}, {}, limits={"cpu": 0.4}),
    Fault("cpu_quota_two_ranks", "cpu_quota", {"steps": 50, "width": 1024, "workers": 0, "ranks": 2}, {}, {}, limits={"cpu": 0.7},
          allow=("thread_oversubscription", "straggler")),
    Fault("thread_oversubscription", "thread_oversubscription", {"steps": 60, "width": 1024, "workers": 0, "ranks": 2},
          {"threads": 2}, {"threads": 1}),
    Fault("affinity_collapse", "affinity_collapse",
          {"steps": 80, "width": 1024, "workers": 1, "data": "decode", "decode-ms": 22}, {"pin": 0}, {"pin": -1},
          allow=("input_workers",)),
    Fault("affinity_collapse_threads", "affinity_collapse", {"steps": 60, "width": 1024, "workers": 0, "threads": 2},
          {"pin": 1}, {"pin": -1}, allow=("thread_oversubscription",)),
    Fault("no_workers", "input_workers", {"steps": 100, "width": 1024, "data": "decode", "decode-ms": 20},
          {"workers": 0}, {"workers": 1}, says="num_workers=1"),
    Fault("pegged_workers", "input_workers", {"steps": 60, "width": 1024, "data": "decode", "workers": 2},
          {"decode-ms": 150}, {"decode-ms": 2}, says="more workers will not help"),
    Fault("noisy_neighbour", "noisy_neighbour", {"steps": 110, "width": 1024, "workers": 0}, {}, {}, neighbours=4),
    Fault("python_gc", "python_gc", {"steps": 100, "width": 512, "workers": 0, "gc-objects": 1_500_000},
          {"collect-every": 8}, {"collect-every": 0}),
    Fault("debug_tracemalloc", "debug_switches", {"steps": 100, "width": 256, "workers": 0, "churn": 3000}, {}, {},
          env={"PYTHONTRACEMALLOC": "1"}),
    Fault("debug_devmode", "debug_switches", {"steps": 100, "width": 256, "workers": 0, "churn": 20000}, {}, {},
          env={"PYTHONDEVMODE": "1"}),
    Fault("memcg_thrash", "memcg_thrash",
          {"steps": 60, "width": 1024, "workers": 1, "data": "chunks", "chunk-mb": 80, "data-mb": 480, "prime": True}, {}, {},
          limits={"memory_mib": 700}, needs=("data",), allow=("input_workers",)),
    Fault("io_throttle", "io_throttle", {"steps": 40, "width": 1024, "workers": 1, "data": "chunks", "chunk-mb": 4, "data-mb": 512,
                                         "drop-cache": True}, {}, {}, limits={"read_mib": 40}, needs=("data",), allow=("input_workers",)),
    Fault("cold_cache", "cold_cache", {"steps": 38, "width": 768, "workers": 1, "data": "chunks", "chunk-mb": 36, "data-mb": 1440},
          {}, {"prime": True}, needs=("large data",), allow=("input_workers",), says="for the first time"),
    Fault("readahead_amplification", "readahead_amplification", {"steps": 40, "width": 1024, "workers": 1, "data": "jumps"},
          {}, {"advise-random": True}, needs=("data", "read-ahead"), allow=("input_workers", "cold_cache"), says="MADV_RANDOM"),
    Fault("small_files", "small_files", {"steps": 40, "width": 1024, "workers": 1}, {"data": "files", "files-a-batch": 8192},
          {"data": "chunks", "chunk-mb": 1, "data-mb": 8, "prime": True}, needs=("files", "data"), allow=("input_workers",)),
    Fault("checkpoint_stall", "checkpoint_stall", {"steps": 120, "width": 512, "workers": 0, "checkpoint-mb": 96, "fsync": True},
          {"checkpoint-every": 10}, {"checkpoint-every": 0}),
    Fault("checkpoint_two_ranks", "checkpoint_stall",
          {"steps": 120, "width": 512, "workers": 0, "ranks": 2, "checkpoint-mb": 96, "fsync": True},
          {"checkpoint-every": 10}, {"checkpoint-every": 0}),
    Fault("straggler", "straggler", {"steps": 100, "width": 512, "workers": 0, "ranks": 2}, {"slow-rank": 1, "slow-ms": 25},
          {"slow-rank": -1}, says="rank 1"),
    Fault("uneven_data", "straggler", {"steps": 100, "width": 512, "workers": 0, "ranks": 2}, {"uneven-ms": 25}, {"even-ms": 12.5},
          says="uneven"),
]
BY_NAME = {fault.name: fault for fault in FAULTS}

# Jobs in which nothing is wrong; 0 findings are wanted.
HEALTHY = {
    "compute_bound": {"steps": 90, "width": 1024, "batch": 128, "workers": 0, "threads": 2},
    "well_fed": {"steps": 150, "width": 1024, "data": "decode", "decode-ms": 8, "workers": 1},
    "short_steps": {"steps": 3000, "width": 128, "layers": 2, "batch": 32, "workers": 0},
    "long_steps": {"steps": 12, "width": 2048, "batch": 512, "workers": 0, "threads": 2},
    "two_ranks": {"steps": 120, "width": 1024, "ranks": 2, "workers": 0},
    "four_ranks": {"steps": 60, "width": 1024, "ranks": 4, "workers": 0},
    "validation": {"steps": 150, "width": 1024, "workers": 1, "validate-every": 10},
    "accumulation": {"steps": 40, "width": 1024, "workers": 1, "accumulate": 4},
    "rare_checkpoints": {"steps": 150, "width": 1024, "workers": 0, "checkpoint-every": 75, "checkpoint-mb": 16},
    "pythonic": {"steps": 250, "width": 512, "workers": 0, "churn": 5000},
}

# (first, second, flags of all three jobs, flags of the planted faults): planted together, then each removed alone.
PAIRS = [
    ("no_workers", "checkpoint_stall", {"steps": 60, "width": 1024, "decode-ms": 20}, {}),
    ("python_gc", "no_workers", {"steps": 60, "width": 1024, "decode-ms": 10}, {"collect-every": 10}),
    ("cpu_quota", "checkpoint_stall", {"steps": 60, "width": 1024, "workers": 0}, {}),
    ("readahead_amplification", "checkpoint_stall", {"steps": 40, "width": 1024, "workers": 1}, {}),
    ("straggler", "checkpoint_two_ranks", {"steps": 80, "slow-ms": 20, "checkpoint-mb": 48}, {}),
]

DEATHS = {
    "segv": ("SIGSEGV", 1), "kill": ("SIGKILL", 1), "exception": ("ValueError: a label is out of range", 0), "exit": ("exit code 7", 1),
    "memory": ("memory ran out", 0),
}


def death(kind):
    """(flags of a job that dies so, memory limit in MiB or None)"""
    alone = kind == "memory"
    return {"steps": 60, "width": 512, "workers": 0, "ranks": 1 if alone else 2, "die": kind, "die-rank": DEATHS[kind][1],
            "die-step": 20}, 900 if alone else None


def flags(*parts):
    merged = {}
    for part in parts:
        merged.update(part)
    out = []
    for name, value in merged.items():
        if value is True:
            out.append(f"--{name}")
        elif value is not False:
            out += [f"--{name}", str(value)]
    return out


def forget(data):
    """Pages are charged to the group that reads them first: those that others left in the cache would hide a group's limit."""
    if data.exists():
        with open(data, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextlib.contextmanager
def folder(needs):
    """A folder on a real disk with the files that a job reads; removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="provoke-data-", dir=os.environ.get("BEDPLATE_PROVOKE_DISK")) as path:
        root = pathlib.Path(path)
        if "files" in needs:
            for number in range(4096):
                part = root / f"{number % 64:02d}"
                part.mkdir(exist_ok=True)
                (part / f"{number}.bin").write_bytes(os.urandom(2048))
        mebibytes = 1440 if "large data" in needs else 512 if "data" in needs else 0
        if mebibytes:
            block = os.urandom(1 << 20)
            with open(root / "data.bin", "wb") as file:
                for _ in range(mebibytes):
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
            forget(root / "data.bin")
        os.sync()
        with contextlib.ExitStack() as stack:
            if "read-ahead" in needs:
                stack.enter_context(large_read_ahead(root / "data.bin"))
            yield path


def read_ahead_kib(path):
    """Of the disk below a path; None where it cannot be told."""
    with contextlib.suppress(OSError, cgroups.Missing):
        return int(pathlib.Path(f"/sys/dev/block/{cgroups.device_of(path)}/queue/read_ahead_kb").read_text())
    return None


@contextlib.contextmanager
def large_read_ahead(data, always_loop=False):
    """Sees to it that `data` is read with a window of megabytes: the disk's own, or a loop device's in the file's place."""
    if not always_loop and (read_ahead_kib(data) or 0) >= 2048:
        yield
        return
    backing = data.with_name("backing.bin")
    data.rename(backing)
    made = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", str(backing)], capture_output=True, text=True)
    if made.returncode:
        raise cgroups.Missing(f"a small read-ahead, and no loop device: {made.stderr.strip()}")
    device = made.stdout.strip()
    try:
        subprocess.run(["blockdev", "--setra", "16384", device], check=True)  # sectors: 8 MiB
        data.symlink_to(device)
        yield
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


@contextlib.contextmanager
def spinning(count):
    """Processes outside the job that keep processors busy."""
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait()


def make_cold(faults, path):
    """Before each run of faults that need it: a run that is made again finds what the one before has read."""
    if any("memory_mib" in fault.limits or "large data" in fault.needs for fault in faults):
        forget(pathlib.Path(path) / "data.bin")


@contextlib.contextmanager
def planted(faults, path):
    """The surroundings of some faults at once: (group or None, environment)."""
    limits, env, neighbours = {}, {}, 0
    for fault in faults:
        limits.update(fault.limits)
        env.update(fault.env)
        neighbours += fault.neighbours
    with contextlib.ExitStack() as stack:
        group = None
        if limits:
            group = stack.enter_context(cgroups.group(**limits, path=path))
        stack.enter_context(spinning(neighbours))
        yield group, env
