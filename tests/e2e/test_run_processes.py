"""Jobs of many processes: short-lived ones, daemons, runs inside runs."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

from support import BEDPLATE, alive, eventually, finish, job_cgroups, meta, only_run, read_until, run, run_folders, start


def test_ten_thousand_short_lived_children(tmp_path):
    code = (
        "import os\n"
        "for n in range(10000):\n"
        "    pid = os.fork()\n"
        "    if not pid: os._exit(0)\n"
        "    if n % 10 == 9:\n"
        "        while True:\n"
        "            try: os.waitpid(-1, 0)\n"
        "            except ChildProcessError: break\n"
    )
    result = run(sys.executable, "-S", "-c", code, cwd=tmp_path, timeout=180)
    assert result.returncode == 0, result.stderr
    folder = only_run(tmp_path)
    assert meta(folder)["exit_code"] == "0"
    assert sum(f.stat().st_size for f in folder.glob("run.db*")) < 64 << 20


def test_orphans_that_outlive_their_parents_do_not_confuse(tmp_path):
    # A process tree whose middle dies: the grandchildren belong to init now and still to the job.
    result = run("sh", "-c", "(sh -c 'sleep 1; echo late' &) ; sleep 2; exit 3", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (3, b"late\n")


def test_a_daemon_lives_on_and_we_do_not_wait_for_it(tmp_path):
    begin = time.monotonic()
    result = run(
        "sh", "-c", "setsid sleep 30 >/dev/null 2>&1 </dev/null & echo $!; exit 2", cwd=tmp_path, timeout=25
    )
    assert result.returncode == 2
    assert time.monotonic() - begin < 20
    daemon = int(result.stdout)
    try:
        assert alive(daemon)
        stat = open(f"/proc/{daemon}/stat").read().rsplit(")", 1)[1].split()
        assert int(stat[1]) != os.getpid()  # adopted by init or by whoever adopts here, not by us
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_the_group_of_a_daemon_is_cleared_by_the_next_run(tmp_path):
    if not os.access("/sys/fs/cgroup", os.W_OK):
        return
    before = set(job_cgroups())
    result = run("sh", "-c", "setsid sleep 30 >/dev/null 2>&1 </dev/null & echo $!", cwd=tmp_path)
    daemon = int(result.stdout)
    left = set(job_cgroups()) - before
    os.kill(daemon, signal.SIGKILL)
    eventually(lambda: not alive(daemon), "the daemon's end")
    assert run("true", cwd=tmp_path).returncode == 0
    assert not [p for p in left if p.exists()]


def test_nothing_is_left_after_an_ordinary_run(tmp_path):
    shm = set(os.listdir("/dev/shm"))
    groups = set(job_cgroups())
    job = start(sys.executable, "-c", "print('on')", cwd=tmp_path)
    finish(job)
    assert job.returncode == 0
    assert set(os.listdir("/dev/shm")) - shm == set()
    assert not job_cgroups(job.pid)
    assert not [p for p in set(job_cgroups()) - groups if p.name.split(".")[2] == str(job.pid)]


def test_a_run_inside_a_run(tmp_path):
    inner = tmp_path / "inner"
    outer = tmp_path / "outer"
    result = run(
        BEDPLATE, "run", "--out", inner, "--", sys.executable, "-c", "print('deep'); raise SystemExit(9)",
        cwd=tmp_path, options=["--out", str(outer)],
    )
    assert (result.returncode, result.stdout) == (9, b"deep\n"), result.stderr
    assert result.stderr.count(b"run kept in") == 2
    assert json.loads(meta(outer)["command"])[0] == BEDPLATE
    assert json.loads(meta(inner)["command"])[0] == sys.executable
    assert meta(inner)["exit_code"] == meta(outer)["exit_code"] == "9"
    assert not job_cgroups() or all(p.name.split(".")[2] != str(os.getpid()) for p in job_cgroups())


def test_a_signal_passes_through_two_runs_once(tmp_path):
    script = "trap 'echo one; exit 5' USR1; echo ready; while :; do sleep 0.05; done"
    job = start(
        BEDPLATE, "run", "--out", "inner", "--", "sh", "-c", script, cwd=tmp_path, options=["--out", "outer"],
        start_new_session=True,
    )
    assert read_until(job.stdout.fileno(), b"ready\n") == b"ready\n"
    os.kill(job.pid, signal.SIGUSR1)
    out, err = finish(job)
    assert (job.returncode, out) == (5, b"one\n"), err


def test_the_helper_beside_the_job_is_no_process_of_the_job(tmp_path):
    result = run("sh", "-c", "sleep 2; exit 0", cwd=tmp_path)
    assert result.returncode == 0
    with sqlite3.connect(f"file:{only_run(tmp_path) / 'run.db'}?mode=ro", uri=True) as db:
        names = {row[0] for row in db.execute("select comm from process")}
    assert names and "bedplate" not in names, names


def test_a_job_in_a_session_of_its_own(tmp_path):
    result = run("setsid", "-w", "sh", "-c", "echo apart; exit 4", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (4, b"apart\n")


def test_a_launcher_that_does_not_wait_for_children(tmp_path):
    # SIGCHLD ignored is inherited through exec and would make the kernel reap the job unseen.
    code = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, BEDPLATE, "run", "--", "sh", "-c", "exit 3"],
        cwd=tmp_path, stderr=subprocess.PIPE, timeout=60,
    )
    assert done.returncode == 3, done.stderr
    assert len(run_folders(tmp_path)) == 1
