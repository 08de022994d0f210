"""Control groups with limits, for a job to be started in: v1 controllers and v2 alike.

    with group(cpu=0.4, memory_mib=512) as limited:
        subprocess.run([...], preexec_fn=limited.enter)

Raises Missing with the reason where this machine cannot give the limit.
"""

import contextlib
import os
import pathlib
import time

_count = [0]


class Missing(Exception):
    """What this machine lacks to provoke a fault; the text is the reason of the skip."""


def _mounts():
    """Controller -> folder of its v1 hierarchy; "" -> the v2 tree."""
    found = {}
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        folder, (kind, _, options) = left.split()[4], right.split()[:3]
        if kind == "cgroup2":
            found[""] = folder
        elif kind == "cgroup":
            for option in options.split(","):
                found[option] = folder
    return found


def _own(controller):
    """The folder of the group that this process is in, for a v1 controller or (with "") in the v2 tree."""
    mounts = _mounts()
    if controller not in mounts:
        raise Missing(f"no cgroup v1 controller {controller!r} and it is not in the v2 tree")
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(",") if controller else names == "":
            folder = pathlib.Path(mounts[controller] + path)
            return folder if folder.is_dir() else pathlib.Path(mounts[controller])
    raise Missing(f"this process is in no group of {controller or 'v2'!r}")


def _v2_parent(controller):
    """The nearest group from our own upwards whose children get the controller, or None."""
    with contextlib.suppress(Missing, OSError, KeyError):
        mount, folder = pathlib.Path(_mounts()[""]), _own("")
        while folder == mount or mount in folder.parents:
            if controller in (folder / "cgroup.subtree_control").read_text().split():
                return folder
            folder = folder.parent
    return None


class Group:
    def __init__(self):
        self.folders = []

    def make(self, parent, files):
        _count[0] += 1
        folder = parent / f"provoke.{os.getpid()}.{_count[0]}"
        try:
            folder.mkdir()
            self.folders.append(folder)
            for name, value in files.items():
                (folder / name).write_text(value)
        except OSError as problem:
            raise Missing(f"{folder}: {problem.strerror}") from problem

    def limit(self, v2_controller, v2_files, v1_controller, v1_files):
        if parent := _v2_parent(v2_controller):
            self.make(parent, v2_files)
        else:
            self.make(_own(v1_controller), v1_files)

    def enter(self):
        """In the child between fork and exec."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")

    def remove(self):
        deadline = time.monotonic() + 5
        for folder in self.folders:
            while folder.exists() and time.monotonic() < deadline:
                try:
                    folder.rmdir()
                except OSError:
                    time.sleep(0.05)


def device_of(path):
    """MAJOR:MINOR of the whole disk below a path's file system, which is what limits are set on."""
    number = os.stat(path).st_dev
    link = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not link.exists():
        raise Missing(f"{path} is on no block device")
    folder = link.resolve()
    if (folder / "partition").exists():
        folder = folder.parent
    return (folder / "dev").read_text().strip()


@contextlib.contextmanager
def group(cpu=None, memory_mib=None, read_mib=None, path=None):
    """A group that limits CPU (processors), memory, or reads (MiB/s, of the device below `path`)."""
    wanted = Group()
    try:
        if cpu is not None:
            quota = int(cpu * 1e5)
            wanted.limit("cpu", {"cpu.max": f"{quota} 100000"}, "cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(quota)})
        if memory_mib is not None:
            size = str(memory_mib << 20)
            wanted.limit("memory", {"memory.max": size}, "memory", {"memory.limit_in_bytes": size})
        if read_mib is not None:
            device, rate = device_of(path), int(read_mib * 2**20)
            wanted.limit("io", {"io.max": f"{device} rbps={rate}"}, "blkio", {"blkio.throttle.read_bps_device": f"{device} {rate}"})
        yield wanted
    finally:
        wanted.remove()
