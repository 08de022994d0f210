"""Machines that give less: no cgroups, read-only ones, no root, other namespaces, no /proc."""

import os
import sqlite3
import subprocess
import sys
import time

import pytest
from conftest import needs_other_users, needs_root
from support import BEDPLATE, finish, meta, only_run, read_until, run, start

pytestmark = needs_root


def need_namespaces(*flags):
    probe = subprocess.run(["unshare", *flags, "true"], stderr=subprocess.PIPE)
    if probe.returncode != 0:  # in a root folder that is no mount point, among others
        pytest.skip(f"needs unshare {' '.join(flags)}: {probe.stderr.decode().strip()}")


def unshared(script: str, *arguments, cwd, flags=("-m",)) -> subprocess.CompletedProcess:
    """Runs a shell script in namespaces of its own; $B is the program."""
    need_namespaces(*flags)
    return subprocess.run(
        ["unshare", *flags, "sh", "-ec", script, "sh", *arguments],
        cwd=cwd,
        env={**os.environ, "B": BEDPLATE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=90,
    )


def signals(folder) -> dict:
    with sqlite3.connect(f"file:{folder / 'run.db'}?mode=ro", uri=True) as db:
        return {name: (bool(seen), why) for name, seen, why in db.execute("select name, seen, why from signal")}


def test_without_cgroups(tmp_path):
    result = unshared("mount -t tmpfs none /sys/fs/cgroup; exec $B run -- sh -c 'echo ran; sleep 1; exit 3'", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (3, b"ran\n"), result.stderr
    seen = signals(only_run(tmp_path))
    assert seen["host.cpu"][0]
    assert not seen["cgroup.psi"][0] and seen["cgroup.psi"][1]


def test_with_read_only_cgroups(tmp_path):
    script = (
        "for m in $(awk '$5 ~ \"^/sys/fs/cgroup\" {print $5}' /proc/self/mountinfo); do\n"
        "  mount --bind $m $m; mount -o remount,bind,ro $m\n"
        "done\n"
        "! mkdir /sys/fs/cgroup/bp-test 2>/dev/null\n"
        "exec $B run -- sh -c 'echo ran; sleep 1; exit 3'"
    )
    result = unshared(script, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (3, b"ran\n"), result.stderr
    seen = signals(only_run(tmp_path))
    assert seen["host.cpu"][0] and seen["proc.cpu"][0]


def test_without_sys(tmp_path):
    result = unshared("mount -t tmpfs none /sys; exec $B run -- sh -c 'echo ran; exit 3'", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (3, b"ran\n"), result.stderr


def test_without_proc(tmp_path):
    result = unshared("umount -l /proc; exec $B run -- sh -c 'echo ran; exit 3'", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (3, b"ran\n"), result.stderr
    assert b"run kept in" in result.stderr


def test_as_the_first_process_of_a_pid_namespace(tmp_path):
    result = unshared("exec $B run -- sh -c 'echo $$; sleep 1; exit 3'", cwd=tmp_path,
                      flags=("-m", "-p", "-f", "--mount-proc"))
    assert result.returncode == 3, result.stderr
    assert int(result.stdout) < 10
    assert signals(only_run(tmp_path))["proc.cpu"][0]


def test_as_the_first_process_signals_reach_the_job(tmp_path):
    need_namespaces("-p", "-f", "--mount-proc")
    script = "trap 'echo term; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    job = subprocess.Popen(
        ["unshare", "-p", "-f", "--mount-proc", BEDPLATE, "run", "--", "sh", "-c", script],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )
    assert read_until(job.stdout.fileno(), b"ready\n") == b"ready\n"
    first = int(open(f"/proc/{job.pid}/task/{job.pid}/children").read())
    os.kill(first, 15)
    out, err = finish(job)
    assert (job.returncode, out) == (7, b"term\n"), err


def test_pid_namespace_with_the_old_proc(tmp_path):
    # Our own numbers and those of /proc differ; neither signals nor samples may go to a stranger.
    result = unshared("exec $B run -- sh -c 'sleep 2; exit 3'", cwd=tmp_path, flags=("-m", "-p", "-f"))
    assert result.returncode == 3, result.stderr
    folder = only_run(tmp_path)
    with sqlite3.connect(f"file:{folder / 'run.db'}?mode=ro", uri=True) as db:
        commands = {row[0] for row in db.execute("select command from process")}
    assert any("sleep 2" in c for c in commands), commands
    assert not any("bedplate" in c and "run" in c for c in commands), commands


def as_nobody(*job, cwd, options=()) -> subprocess.CompletedProcess:
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*nobody, "test", "-x", BEDPLATE]).returncode != 0:
        pytest.skip(f"nobody may not execute {BEDPLATE}")
    for folder in [cwd, *cwd.parents]:
        if str(folder).startswith("/tmp/pytest"):
            folder.chmod(0o777 if folder == cwd else 0o755)
    return subprocess.run(
        [*nobody, BEDPLATE, "run", *options, "--", *job],
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=90,
    )


def test_as_nobody(tmp_path):
    result = as_nobody("sh", "-c", "sleep 2; echo ran; exit 3", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (3, b"ran\n"), result.stderr
    folder = only_run(tmp_path)
    assert meta(folder)["uid"] == "65534"
    seen = signals(folder)
    assert seen["proc.cpu"][0] and seen["proc.io"][0]
    for name, (was_seen, why) in seen.items():
        assert was_seen or why, name  # what could not be seen says why


@needs_other_users
def test_a_job_that_changes_its_user(tmp_path):
    result = run(
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", "id -u; sleep 1; exit 3", cwd=tmp_path
    )
    assert (result.returncode, result.stdout) == (3, b"65534\n"), result.stderr


def test_a_job_that_enters_a_pid_namespace(tmp_path):
    need_namespaces("-p", "-f", "--mount-proc")
    result = run("unshare", "-p", "-f", "--mount-proc", sys.executable, "-c", "import os; print(os.getpid())", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, b"1\n"), result.stderr


def test_a_job_that_unmounts_proc(tmp_path):
    need_namespaces("-m")
    result = run("unshare", "-m", "sh", "-c", f"umount -l /proc; {sys.executable} -c 'print(5)'; exit 3", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (3, b"5\n"), result.stderr


def test_in_a_group_that_is_frozen_for_a_while(tmp_path):
    freezer = "/sys/fs/cgroup/freezer"
    if not os.access(freezer + "/cgroup.procs", os.W_OK):
        pytest.skip("needs the freezer hierarchy")
    group = f"{freezer}/bp-test-{os.getpid()}"
    os.mkdir(group)
    try:
        job = start("sh", "-c", "sleep 1; exit 3", cwd=tmp_path,
                    preexec_fn=lambda: open(group + "/cgroup.procs", "w").write("0"))
        for state in ("FROZEN", "THAWED"):
            with open(group + "/freezer.state", "w") as f:
                f.write(state)
            time.sleep(1.5)
        finish(job)
        assert job.returncode == 3
    finally:
        os.rmdir(group)
