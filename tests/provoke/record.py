"""Records one job for tests/golden: a fault of faults.py, a death, or a healthy shape.

    python tests/provoke/record.py cpu_quota tests/golden/cpu_quota
    python tests/provoke/record.py two_ranks tests/golden/healthy
    python tests/provoke/record.py segv tests/golden/crash

Needs root: the job runs in namespaces of its own, in which the machine is called node1, the job lies in
/mnt/train and its Python in /mnt/venv, so that the record tells nothing of the machine it was made on.
Afterwards: tools/update_golden.sh.
"""

import argparse
import contextlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

import cgroups
import faults
import harness

LARGEST = 300_000  # bytes of a run.db in the repository


def job_of(name):
    """(flags, faults to plant, memory limit)"""
    if name in faults.HEALTHY:
        return faults.HEALTHY[name], [], None
    if name in faults.DEATHS:
        flags, memory_mib = faults.death(name)
        return flags, [], memory_mib
    fault = faults.BY_NAME[name]
    return {**fault.base, **fault.faulty}, [fault], None


def record(name, out):
    flags, planted, memory_mib = job_of(name)
    needs = planted[0].needs if planted else ()
    with contextlib.ExitStack() as stack:
        data = stack.enter_context(faults.folder(needs))
        group, env = stack.enter_context(faults.planted(planted, data))
        faults.make_cold(planted, data)
        kept = stack.enter_context(tempfile.TemporaryDirectory())
        if memory_mib:
            group = stack.enter_context(cgroups.group(memory_mib=memory_mib))
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
        # Pipes: where the output goes is part of the record.
        done = subprocess.run(["unshare", "--mount", "--uts", "sh", "-ec", inside], env=clean, capture_output=True, text=True,
                              preexec_fn=group.enter if group else None)
        print(done.stdout + done.stderr)
        if done.returncode and name not in faults.DEATHS:
            sys.exit(f"the job ended with {done.returncode}")
        size = os.path.getsize(f"{kept}/run/run.db")
        if size > LARGEST:
            sys.exit(f"run.db has {size} bytes, more than {LARGEST}: record fewer steps")
        out.mkdir(parents=True, exist_ok=True)
        shutil.copy(f"{kept}/run/run.db", out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*faults.BY_NAME, *faults.HEALTHY, *faults.DEATHS], metavar="NAME")
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    record(args.name, args.out)
