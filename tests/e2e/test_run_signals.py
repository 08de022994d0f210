"""Each signal reaches the job exactly once, however it was sent."""

import os
import signal
import subprocess
import sys

import pytest
from support import BEDPLATE, alive, children_of, command_line, eventually, finish, meta, only_run, read_until, start

# Prints the number of each signal it gets; ends with 9 on USR2. sigwait() counts what a shell's trap
# would merge.
COUNTER = """
import os, signal, sys
wanted = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
os.write(1, b"ready\\n")
while True:
    number = signal.sigwait(wanted)
    if number == signal.SIGUSR2:
        sys.exit(9)
    os.write(1, b"%d\\n" % number)
"""


@pytest.fixture
def counter(tmp_path):
    """A job that counts its signals, in a process group of its own."""
    job = start(sys.executable, "-c", COUNTER, cwd=tmp_path, start_new_session=True)
    assert read_until(job.stdout.fileno(), b"ready\n") == b"ready\n"
    yield job
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait(timeout=10)


def end(job) -> bytes:
    os.kill(job.pid, signal.SIGUSR2)
    out, _ = finish(job)
    assert job.returncode == 9
    return out


ONCE = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGALRM", "SIGWINCH", "SIGURG", "SIGPROF"]


@pytest.mark.parametrize("name", ONCE)
def test_to_bedplate_alone_it_goes_on_once(counter, name):
    number = getattr(signal, name)
    os.kill(counter.pid, number)
    assert read_until(counter.stdout.fileno(), b"\n") == b"%d\n" % number
    assert end(counter) == b""


@pytest.mark.parametrize("name", ONCE)
def test_to_the_group_it_is_not_repeated(counter, name):
    number = getattr(signal, name)
    os.killpg(counter.pid, number)
    assert read_until(counter.stdout.fileno(), b"\n") == b"%d\n" % number
    assert end(counter) == b""


def test_many_signals_in_a_row(counter):
    for _ in range(20):
        os.kill(counter.pid, signal.SIGUSR1)
        assert read_until(counter.stdout.fileno(), b"\n") == b"%d\n" % signal.SIGUSR1
        os.killpg(counter.pid, signal.SIGTERM)
        assert read_until(counter.stdout.fileno(), b"\n") == b"%d\n" % signal.SIGTERM
    assert end(counter) == b""


def test_real_time_signals_go_on(counter):
    os.kill(counter.pid, signal.SIGRTMIN + 3)
    assert read_until(counter.stdout.fileno(), b"\n") == b"%d\n" % (signal.SIGRTMIN + 3)
    assert end(counter) == b""


def test_a_stopped_and_continued_bedplate_still_forwards(counter):
    os.kill(counter.pid, signal.SIGSTOP)
    os.kill(counter.pid, signal.SIGUSR1)
    os.kill(counter.pid, signal.SIGCONT)
    lines = {read_until(counter.stdout.fileno(), b"\n") for _ in range(2)}
    assert lines == {b"%d\n" % signal.SIGUSR1, b"%d\n" % signal.SIGCONT}
    assert end(counter) == b""


def state(pid: int) -> str:
    return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]


def job_of(process) -> int:
    (pid,) = [p for p in children_of(process.pid) if b"bedplate" not in command_line(p)]
    return pid


@pytest.mark.parametrize("name", ["SIGSTOP", "SIGTSTP"])
def test_a_job_stopped_and_continued_alone_does_not_leave_us_stopped(tmp_path, name):
    # As a scheduler of its own does, without a terminal.
    job = start("sh", "-c", "echo ready; sleep 1; exit 4", cwd=tmp_path, preexec_fn=os.setpgrp)
    assert read_until(job.stdout.fileno(), b"ready\n") == b"ready\n"
    pid = job_of(job)
    os.kill(pid, getattr(signal, name))
    eventually(lambda: state(pid) == "T", "the job to stop")
    os.kill(pid, signal.SIGCONT)
    finish(job)
    assert job.returncode == 4


def test_a_stop_sent_to_us_stops_the_job_and_us_and_both_go_on(tmp_path):
    script = f"echo ready; while ! test -e {tmp_path}/go; do sleep 0.05; done; exit 4"
    # A group of its own in our session: SIGTSTP does nothing in a group that no shell looks after.
    job = start("sh", "-c", script, cwd=tmp_path, preexec_fn=os.setpgrp)
    assert read_until(job.stdout.fileno(), b"ready\n") == b"ready\n"
    pid = job_of(job)
    os.kill(job.pid, signal.SIGTSTP)
    eventually(lambda: state(pid) == "T" and state(job.pid) == "T", "both to stop")
    os.kill(job.pid, signal.SIGCONT)
    eventually(lambda: state(pid) != "T", "the job to go on")
    (tmp_path / "go").touch()
    finish(job)
    assert job.returncode == 4


@pytest.mark.parametrize("foreground", [[], ["--foreground"]])
def test_timeout_ends_the_job_once(tmp_path, foreground):
    script = "trap 'echo term; exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    job = subprocess.run(
        ["timeout", *foreground, "-s", "TERM", "1", BEDPLATE, "run", "--", "sh", "-c", script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    assert job.stdout == b"ready\nterm\n", job.stderr
    assert job.returncode in (124, 7)
    assert meta(only_run(tmp_path))["exit_code"] == "7"
    assert b"run kept in" in job.stderr


def test_under_nohup_a_hangup_harms_neither(tmp_path):
    job = subprocess.Popen(
        ["nohup", BEDPLATE, "run", "--", "sh", "-c", "echo ready; sleep 0.5; echo done"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert read_until(job.stdout.fileno(), b"ready\n") == b"ready\n"
    os.killpg(job.pid, signal.SIGHUP)
    os.kill(job.pid, signal.SIGHUP)
    out, err = finish(job)
    assert (job.returncode, out) == (0, b"done\n"), err


def test_ignored_and_blocked_signals_are_inherited(tmp_path):
    code = (
        "import os, signal, sys\n"
        "for n in (signal.SIGUSR1, signal.SIGPIPE, signal.SIGCHLD): signal.signal(n, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
        "os.execvp(sys.argv[1], sys.argv[1:])\n"
    )
    job = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]

    def output(*command):
        return subprocess.run(
            [sys.executable, "-c", code, *command], cwd=tmp_path, stdout=subprocess.PIPE, timeout=60
        ).stdout

    bare = output(*job)
    assert b"SigBlk:\t0000000000004000" in bare
    assert output(BEDPLATE, "run", "--", *job) == bare


def test_killed_with_its_launcher_the_job_dies_too(tmp_path):
    # A launcher that asks the kernel to kill its child with it means the job, as torchrun's agents do.
    code = (
        "import ctypes, os, subprocess, sys\n"
        "def tie(): ctypes.CDLL(None).prctl(1, 9)\n"
        "p = subprocess.Popen(sys.argv[1:], preexec_fn=tie, stdout=subprocess.PIPE)\n"
        "print(p.stdout.readline().decode(), end='', flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    launcher = subprocess.run(
        [sys.executable, "-c", code, BEDPLATE, "run", "--", "sh", "-c", "echo $$; exec sleep 300"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        timeout=60,
    )
    pid = int(launcher.stdout)
    eventually(lambda: not alive(pid), "the job to die with its launcher's child")
