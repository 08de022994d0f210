"""In a terminal the job behaves as without us: isatty, Ctrl-C, Ctrl-Z, fg, bg, background."""

import os
import re
import signal
import subprocess
import sys

import pytest
from support import BEDPLATE, alive, children_of, command_line, eventually, meta, only_run, run_folders

READY = b"ready\r\n"
BASH = ["bash", "--norc", "--noprofile", "-i"]


def bash(terminal, **more):
    shell = terminal(*BASH, env={"PS1": "prompt> ", "HISTFILE": "/dev/null", "B": BEDPLATE}, **more)
    shell.expect(b"prompt> ")
    return shell


def test_all_three_streams_stay_a_terminal(terminal):
    code = "import os; print([os.isatty(n) for n in range(3)], os.get_terminal_size())"
    t = terminal(BEDPLATE, "run", "--", sys.executable, "-c", code)
    t.expect(b"[True, True, True] os.terminal_size(columns=100, lines=24)")
    assert t.finish() == 0


def test_ctrl_c_reaches_the_job_once_and_the_report_is_printed(terminal, tmp_path):
    code = (
        "import signal, sys, time\n"
        "count = 0\n"
        "def stop(*_):\n"
        "    global count\n"
        "    count += 1\n"
        "signal.signal(signal.SIGINT, stop)\n"
        "print('ready', flush=True)\n"
        "while not count: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
        "sys.exit(40 + count)\n"
    )
    t = terminal(BEDPLATE, "run", "--", sys.executable, "-c", code)
    t.expect(READY)
    t.type(b"\x03")
    t.expect(b"run kept in")
    assert t.finish() == 41


def test_ctrl_c_that_kills_the_job_ends_us_by_sigint(terminal, tmp_path):
    t = terminal(BEDPLATE, "run", "--", "sh", "-c", "echo ready; exec sleep 60")
    t.expect(READY)
    t.type(b"\x03")
    t.expect(b"run kept in")
    assert t.finish() == 130
    recorded = meta(only_run(tmp_path))
    assert (recorded["exit_code"], recorded["signal"]) == ("130", "2")


def test_ctrl_c_stops_a_script_around_us_as_it_does_around_the_job(terminal, tmp_path):
    script = f"for i in 1 2 3; do {BEDPLATE} run -- sh -c 'echo ready; exec sleep 60'; done; echo after"
    t = terminal("bash", "-c", script)
    t.expect(READY)
    t.type(b"\x03")
    assert t.finish() == 130
    assert b"after" not in t.seen
    assert len(run_folders(tmp_path)) == 1


def test_an_impatient_second_ctrl_c_does_not_lose_the_report(terminal):
    t = terminal(BEDPLATE, "run", "--", "sh", "-c", "echo ready; exec sleep 60")
    t.expect(READY)
    t.type(b"\x03")
    t.type(b"\x03")
    t.expect(b"run kept in")
    assert t.finish() == 130


def test_ctrl_backslash_quits_the_job_and_not_us(terminal, tmp_path):
    t = terminal(BEDPLATE, "run", "--", "sh", "-c", "ulimit -c 0; echo ready; exec sleep 60")
    t.expect(READY)
    t.type(b"\x1c")
    t.expect(b"run kept in")
    assert t.finish() == 131


def test_ctrl_z_and_fg(terminal, tmp_path):
    shell = bash(terminal)
    shell.type(b"$B run -- sh -c 'echo ready; read line; echo got $line'\n")
    shell.expect(READY)
    shell.type(b"\x1a")
    shell.expect(b"Stopped")
    shell.expect(b"prompt> ")
    shell.type(b"jobs\n")
    shell.expect(b"Stopped")
    shell.expect(b"prompt> ")
    shell.type(b"fg\n")
    shell.expect(b"\n")
    shell.type(b"word\n")
    shell.expect(b"got word")
    shell.expect(b"run kept in")
    shell.expect(b"prompt> ")
    shell.type(b"exit 0\n")
    assert shell.finish() == 0


def test_ctrl_z_and_bg_and_wait(terminal):
    # No shell as the job: dash starts its commands by vfork(2), and a Ctrl-Z between that and execve()
    # stops the child alone, with Bedplate or without.
    code = b"import sys, time; print('ready', flush=True); time.sleep(1); sys.exit(3)"
    shell = bash(terminal)
    shell.type(b'$B run -- %s -c "%s"\n' % (sys.executable.encode(), code))
    shell.expect(READY)
    shell.type(b"\x1a")
    shell.expect(b"Stopped")
    shell.expect(b"prompt> ")
    shell.type(b"bg; wait %1; echo code $?\n")
    shell.expect(b"code 3")
    shell.type(b"exit 0\n")
    assert shell.finish() == 0


def states(shell: int) -> set:
    """Of bedplate, started by `shell`, and of its job; the helper beside the job is never stopped."""
    (ours,) = children_of(shell)
    pids = [ours] + [p for p in children_of(ours) if b"ready" in command_line(p).split(b"--")[0]]
    return {open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[0] for p in pids}


@pytest.fixture(params=["quiet", "busy"])
def machine(request):
    """Busy: every processor is wanted by three more."""
    spinners = []
    if request.param == "busy":
        spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * os.cpu_count())]
    yield
    for spinner in spinners:
        spinner.kill()
        spinner.wait()


def test_ctrl_z_again_and_again(terminal, machine):
    shell = bash(terminal)
    shell.type(b"$B run -- sh -c 'echo ready; read line; echo got $line'\n")
    shell.expect(READY)
    for _ in range(6):
        shell.type(b"\x1a")
        shell.expect(b"Stopped")
        shell.expect(b"prompt> ")
        assert states(shell.pid) == {"T"}
        shell.type(b"fg\n")
        shell.expect(b"sh -c")
        # A Ctrl-Z while the group is still stopped is lost when it is continued, with us or without.
        eventually(lambda: states(shell.pid) == {"S"}, "the job to go on")
    shell.type(b"word\n")
    shell.expect(b"got word")
    shell.expect(b"prompt> ")
    shell.type(b"exit 0\n")
    assert shell.finish() == 0


def test_a_job_that_ignores_ctrl_z_is_not_stopped_and_nor_are_we(terminal):
    shell = bash(terminal)
    shell.type(b"$B run -- sh -c 'trap \"\" TSTP; echo ready; sleep 1; echo through'\n")
    shell.expect(READY)
    shell.type(b"\x1a")
    assert b"Stopped" not in shell.expect(b"through")
    shell.expect(b"prompt> ")
    shell.type(b"exit 0\n")
    assert shell.finish() == 0


def test_in_the_background_we_are_not_stopped_for_writing(terminal):
    # With tostop the terminal stops whoever writes from the background; the job writes nothing.
    shell = bash(terminal)
    shell.type(b"stty tostop; $B run -- sleep 3 & wait %1; echo code $?\n")
    shell.expect(b"code 0")
    shell.type(b"exit 0\n")
    assert shell.finish() == 0


def test_a_background_job_that_reads_is_stopped_as_by_its_shell(terminal):
    shell = bash(terminal)
    shell.type(b"$B run -- sh -c 'read line; echo got $line' &\n")
    shell.expect(b"prompt> ")

    def stopped():
        shell.type(b"jobs\n")
        return b"Stopped" in shell.expect(b"prompt> ")

    eventually(stopped, "the shell to see the job stopped (tty input)")
    shell.type(b"fg\n")
    shell.expect(b"\n")
    shell.type(b"word\n")
    shell.expect(b"got word")
    shell.expect(b"prompt> ")
    shell.type(b"exit 0\n")
    assert shell.finish() == 0


LIVE = re.compile(rb"bedplate \xc2\xb7 [^\x1b]*")


def test_the_live_line_comes_and_goes(terminal):
    t = terminal(BEDPLATE, "run", "--", "sh", "-c", "printf half; sleep 4; echo line")
    before = t.expect(b"line\r\n")
    assert LIVE.search(before), before
    assert b"\x1b[1;23r" in before  # the bottom row is taken
    assert before.startswith(b"half")
    after = t.expect(b"run kept in")
    assert b"\x1b[r\x1b[24;1H\x1b[2K" in after  # and given back before the report
    assert after.rindex(b"\x1b[r") < after.index(b"Bedplate")
    assert t.finish() == 0


def test_quiet_short_dumb_and_piped_have_no_live_line(terminal, tmp_path):
    for command, env in (
        ([BEDPLATE, "run", "--quiet", "--", "sleep", "3"], {}),
        ([BEDPLATE, "run", "--", "sleep", "3"], {"TERM": "dumb"}),
        (["sh", "-c", f"{BEDPLATE} run -- sleep 3 2>err.txt"], {}),
        ([BEDPLATE, "run", "--", "true"], {}),
    ):
        t = terminal(*command, env=env)
        assert t.finish() == 0
        assert not LIVE.search(t.seen), command
        assert b"\x1b[r" not in t.seen, command
    assert b"\x1b" not in (tmp_path / "err.txt").read_bytes()


def test_the_live_line_is_gone_while_the_job_is_stopped(terminal):
    shell = bash(terminal)
    shell.type(b"$B run -- sh -c 'echo ready; sleep 30'\n")
    shell.expect(READY)
    shell.expect(b"bedplate \xc2\xb7")
    shell.type(b"\x1a")
    assert b"\x1b[r\x1b[24;1H\x1b[2K" in shell.expect(b"Stopped")
    shell.type(b"kill %1; wait\n")
    shell.expect(b"prompt> ")


def test_killed_with_kill_9_the_terminal_is_put_right(terminal):
    shell = bash(terminal)
    shell.type(b"$B run -- sh -c 'echo ready; exec sleep 30' & echo pid $!; fg\n")
    pid = int(re.search(rb"pid (\d+)", shell.expect(READY)).group(1))
    shell.expect(b"bedplate \xc2\xb7")
    job = [p for p in children_of(pid) if command_line(p).startswith(b"sleep")]
    os.kill(pid, signal.SIGKILL)
    shell.expect(b"\x1b[r\x1b[24;1H\x1b[2K")
    assert job and all(alive(p) for p in job)
    for p in job:
        os.kill(p, signal.SIGKILL)


def test_a_terminal_that_takes_no_output_delays_nothing(terminal, tmp_path):
    # Ctrl-S: the job's end must be seen and its exit code recorded all the same.
    t = terminal("sh", "-c", f"{BEDPLATE} run -- sh -c 'echo ready; sleep 3; echo x > done'")
    t.expect(READY)
    t.type(b"\x13")
    eventually(lambda: (tmp_path / "done").exists(), "the job to end")
    eventually(lambda: "exit_code" in meta(only_run(tmp_path)), "the exit code in run.db")
    t.type(b"\x11")
    t.expect(b"run kept in")
    assert t.finish() == 0
