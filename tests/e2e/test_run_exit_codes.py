"""`bedplate run` ends as its job did, and a job that cannot start leaves nothing behind."""

import signal

import pytest
from support import meta, only_run, run, run_folders


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 126, 127, 255])
def test_exit_code_is_the_jobs(tmp_path, code):
    result = run("sh", "-c", f"exit {code}", cwd=tmp_path)
    assert result.returncode == code, result.stderr
    assert meta(only_run(tmp_path))["exit_code"] == str(code)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM", "SIGINT", "SIGABRT", "SIGHUP"])
def test_death_by_signal_is_128_plus_signal(tmp_path, name):
    number = getattr(signal, name)
    result = run("sh", "-c", f"kill -{name[3:]} $$", cwd=tmp_path)
    assert result.returncode == 128 + number, result.stderr
    recorded = meta(only_run(tmp_path))
    assert recorded["exit_code"] == str(128 + number)
    assert recorded["signal"] == str(int(number))


@pytest.mark.parametrize(
    "command, code, text",
    [
        ("no-such-command-anywhere", 127, b"command not found"),
        ("./absent", 127, b"no such file"),
        ("./plain", 126, b"not executable"),
        (".", 126, b"is a folder"),
        ("./orphan", 126, b"interpreter /no/such/interpreter does not exist"),
        ("./binary", 126, b"not a program for this machine"),
    ],
)
def test_what_cannot_run_is_said_and_leaves_nothing(tmp_path, command, code, text):
    (tmp_path / "plain").write_text("echo hello\n")
    (tmp_path / "orphan").write_text("#!/no/such/interpreter\n")
    (tmp_path / "binary").write_bytes(b"\x01\x00\x02\x00")
    (tmp_path / "orphan").chmod(0o755)
    (tmp_path / "binary").chmod(0o755)
    result = run(command, cwd=tmp_path)
    assert result.returncode == code
    assert text in result.stderr
    assert result.stdout == b""
    assert run_folders(tmp_path) == []


def test_a_script_without_first_line_runs_as_in_a_shell(tmp_path):
    script = tmp_path / "script"
    script.write_text("echo $1; exit 6\n")
    script.chmod(0o755)
    result = run("./script", "word", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (6, b"word\n")


def test_too_long_a_command_line_is_said(tmp_path):
    # Each argument alone fits through our own exec; the job's environment makes it too long.
    result = run("true", *["x" * 120_000] * 16, cwd=tmp_path)
    assert result.returncode in (0, 126)
    if result.returncode == 126:
        assert b"Argument list too long" in result.stderr
        assert run_folders(tmp_path) == []
