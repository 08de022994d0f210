"""stdin, stdout and stderr belong to the job, byte for byte and to their end."""

import os
import subprocess
import sys

from support import BEDPLATE, eventually, finish, meta, only_run, read_until, run, start


def test_stdin_and_stdout_pass_every_byte(tmp_path):
    data = bytes(range(256)) * 5000
    result = run("cat", cwd=tmp_path, stdin=data)
    assert result.returncode == 0
    assert result.stdout == data


def test_only_the_jobs_bytes_are_on_stdout(tmp_path):
    result = run("sh", "-c", "printf out; printf err >&2", cwd=tmp_path)
    assert result.stdout == b"out"
    assert result.stderr.startswith(b"err")
    assert b"run kept in" in result.stderr


def broken(pipe: int) -> bool:
    try:
        os.write(pipe, b"x")
    except BrokenPipeError:
        return True
    return False


def test_a_producer_in_front_sees_its_pipe_close_when_the_job_closes_it(tmp_path):
    # The job closes its stdin and lives on; a writer must get EPIPE now, not when the job ends.
    reader, writer = os.pipe()
    job = start("sh", "-c", "exec <&-; echo closed; exec sleep 60", cwd=tmp_path, stdin=reader)
    os.close(reader)
    try:
        assert read_until(job.stdout.fileno(), b"closed") == b"closed"
        eventually(lambda: broken(writer), "the pipe's last reading end to be closed")
    finally:
        os.close(writer)
        job.terminate()
        finish(job)


def test_a_consumer_behind_sees_the_end_when_the_job_closes_stdout(tmp_path):
    job = start("sh", "-c", "echo last; exec >&-; exec sleep 60", cwd=tmp_path)
    try:
        assert read_until(job.stdout.fileno(), b"never") == b"last\n"
    finally:
        job.terminate()
        finish(job)


def test_in_the_middle_of_a_pipeline(tmp_path):
    script = f"set -o pipefail; seq 1 100000 | {BEDPLATE} run -- head -n 2 | tr '\\n' ,; echo ${{PIPESTATUS[*]}}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60
    )
    assert done.stdout == b"1,2,141 0 0\n", done.stderr


def test_a_consumer_that_leaves_kills_the_job_by_sigpipe_not_us(tmp_path):
    script = f"{BEDPLATE} run -- yes | head -n 1; echo ${{PIPESTATUS[*]}}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60
    )
    assert done.stdout == b"y\n141 0\n", done.stderr
    assert b"run kept in" in done.stderr


def test_both_streams_into_one_pipe(tmp_path):
    done = subprocess.run(
        ["bash", "-c", f"{BEDPLATE} run -- sh -c 'echo a; echo b >&2; echo c' 2>&1 | cat"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        timeout=60,
    )
    assert done.stdout.startswith(b"a\nb\nc\n")


SHOW_OPEN = "import os; os.write(3, repr([os.path.exists(f'/proc/self/fd/{n}') for n in range(3)]).encode())"


def with_closed(tmp_path, closing: str) -> tuple[int, str]:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        # As a shell would: the job itself must find closed what was closed, and its files intact.
        done = subprocess.run(
            ["bash", "-c", f'"$0" run -- "$1" -S -c "$2" 3>&{writer} {closing}', BEDPLATE, sys.executable, SHOW_OPEN],
            cwd=tmp_path,
            pass_fds=(writer,),
            timeout=60,
        )
        os.close(writer)
        writer = -1
        return done.returncode, read_until(reader, b"]").decode()
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


def test_closed_descriptors_stay_closed_for_the_job(tmp_path):
    # Python reopens nothing with -S; what it sees is what exec handed on.
    for closing, expected in {
        "<&-": [False, True, True],
        ">&-": [True, False, True],
        "2>&-": [True, True, False],
        "<&- >&- 2>&-": [False, False, False],
    }.items():
        folder = tmp_path / closing.replace("&", "_").replace(" ", "").replace("<", "i").replace(">", "o")
        folder.mkdir()
        code, seen = with_closed(folder, closing)
        assert (code, seen) == (0, repr(expected)), closing
        assert meta(only_run(folder))["exit_code"] == "0"


def test_other_descriptors_reach_the_job(tmp_path):
    reader, writer = os.pipe()
    result = run("bash", "-c", f"echo through >&{writer}", cwd=tmp_path, pass_fds=(writer,))
    os.close(writer)
    assert result.returncode == 0
    assert read_until(reader, b"\n") == b"through\n"
    os.close(reader)


def test_no_descriptor_of_ours_reaches_the_job(tmp_path):
    result = run("ls", "/proc/self/fd", cwd=tmp_path)
    # 0, 1, 2 and the folder that ls itself has open.
    assert result.stdout.split() == [b"0", b"1", b"2", b"3"]


def test_files_behind_stdout_and_stderr_are_noted(tmp_path):
    with open(tmp_path / "out.txt", "wb") as out, open(tmp_path / "err.txt", "wb") as err:
        job = start("sh", "-c", "echo a; echo b >&2", cwd=tmp_path, stdout=out, stderr=err)
        job.wait(timeout=60)
    recorded = meta(only_run(tmp_path))
    assert recorded["stdout_path"] == str(tmp_path / "out.txt")
    assert recorded["stderr_path"] == str(tmp_path / "err.txt")
    assert (tmp_path / "out.txt").read_bytes() == b"a\n"
    assert (tmp_path / "err.txt").read_bytes().startswith(b"b\n")


def test_a_full_stderr_does_not_change_the_exit_code(tmp_path):
    with open("/dev/full", "wb") as full:
        job = start("sh", "-c", "exit 5", cwd=tmp_path, stderr=full)
        assert job.wait(timeout=60) == 5
    assert meta(only_run(tmp_path))["exit_code"] == "5"
