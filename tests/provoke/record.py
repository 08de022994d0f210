"""Records one job for tests/golden: a fault of faults.py, its mended form, or a healthy shape.

    python tests/provoke/record.py cpu_quota tests/golden/cpu_quota
    python tests/provoke/record.py cpu_quota --mended tests/golden/healthy

Needs root: the job runs in namespaces of its own, in which the machine is called node1, the job lies in
/mnt/train and its Python in /mnt/venv, so that the record tells nothing of the machine it was made on.
Afterwards: tools/update_golden.sh.
"""

import argparse
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

import faults
import harness

LARGEST = 300_000  # bytes of a run.db in the repository


def job_of(name, mended):
    """(flags, faults to plant)"""
    if name in faults.HEALTHY:
        return faults.HEALTHY[name], []
    fault = faults.BY_NAME[name]
    return {**fault.base, **(fault.mended if mended else fault.faulty)}, [] if mended else [fault]


def record(name, mended, out):
    flags, planted = job_of(name, mended)
    needs = faults.BY_NAME[name].needs if name in faults.BY_NAME else ()
    with faults.folder(needs) as data, faults.planted(planted, data) as (group, env), tempfile.TemporaryDirectory() as kept:
        command = [harness.binary(), "run", "--quiet", "--out", f"{kept}/run", "--", "/mnt/venv/bin/python", "/mnt/train/train.py",
                   *faults.flags(flags, {"folder": "/mnt/data"})]
        inside = f"""
            mount -t tmpfs none /mnt && mkdir /mnt/venv /mnt/train /mnt/data
            mount --bind {shlex.quote(sys.prefix)} /mnt/venv && mount --bind {shlex.quote(data)} /mnt/data
            cp {shlex.quote(str(harness.HERE / "job.py"))} /mnt/train/train.py
            hostname node1
            cd /mnt/train && exec {shlex.join(command)}
        """
        clean = {"PATH": "/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8", **env}
        subprocess.run(["unshare", "--mount", "--uts", "sh", "-ec", inside], env=clean, check=True,
                       preexec_fn=group.enter if group else None)
        size = os.path.getsize(f"{kept}/run/run.db")
        if size > LARGEST:
            sys.exit(f"run.db has {size} bytes, more than {LARGEST}: record fewer steps")
        out.mkdir(parents=True, exist_ok=True)
        shutil.copy(f"{kept}/run/run.db", out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--mended", action="store_true", help="without the fault")
    args = parser.parse_args()
    record(args.name, args.mended, args.out)
