"""What the end-to-end tests share: the program, a way to run it with a deadline, a terminal.

Every wait here has a deadline; when it passes, the error says what was waited for and what came
instead.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import signal
import sqlite3
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Callable, Optional, Sequence, Union

ROOT = Path(__file__).resolve().parents[2]
BEDPLATE = str(Path(os.environ.get("BEDPLATE", ROOT / "build/dev/src/cli/bedplate")).resolve())
DEADLINE = 60.0

Argument = Union[str, bytes, Path]


def bedplate(
    *arguments: Argument,
    cwd: Path,
    stdin: bytes = b"",
    env: Optional[dict] = None,
    timeout: float = DEADLINE,
    **popen,
) -> subprocess.CompletedProcess:
    """Runs `bedplate ARGUMENTS…` and gives its exit code, stdout and stderr as bytes."""
    return subprocess.run(
        [BEDPLATE, *arguments],
        cwd=cwd,
        input=stdin,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=timeout,
        **popen,
    )


def run(*job: Argument, cwd: Path, options: Sequence[str] = (), **more):
    return bedplate("run", *options, "--", *job, cwd=cwd, **more)


def start(*job: Argument, cwd: Path, options: Sequence[str] = (), **popen) -> subprocess.Popen:
    popen.setdefault("stdin", subprocess.DEVNULL)
    popen.setdefault("stdout", subprocess.PIPE)
    popen.setdefault("stderr", subprocess.PIPE)
    return subprocess.Popen([BEDPLATE, "run", *options, "--", *job], cwd=cwd, **popen)


def finish(process: subprocess.Popen, timeout: float = DEADLINE) -> tuple[bytes, bytes]:
    """The process's output to its end; kills it when the deadline passes."""
    try:
        return process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end within {timeout} s; stdout {out!r}, stderr {err!r}")


def eventually(condition: Callable[[], object], what: str, timeout: float = 20.0):
    """The first true value of `condition`."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s in vain for: {what}")
        time.sleep(0.01)


def read_until(fd: int, wanted: bytes, timeout: float = 20.0) -> bytes:
    """Bytes from `fd` up to and with the first `wanted`, or to the end when that comes first."""
    text = b""
    deadline = time.monotonic() + timeout
    while wanted not in text:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise AssertionError(f"waited {timeout} s in vain for {wanted!r}; got {text!r}")
        block = os.read(fd, 1)
        if not block:
            break
        text += block
    return text


def run_folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if re.match(r"bedplate-run-\d{8}-\d{6}-\d+$", p.name))


def only_run(folder: Path) -> Path:
    folders = run_folders(folder)
    assert len(folders) == 1, folders
    return folders[0]


def meta(run_folder: Path) -> dict[str, str]:
    """The meta table of a run.db; opened as a reader would who finds it after a crash."""
    with sqlite3.connect(f"file:{run_folder / 'run.db'}?mode=ro", uri=True, timeout=10) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
        return dict(db.execute("select key, value from meta"))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def children_of(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def job_cgroups(pid: Optional[int] = None) -> list[Path]:
    """Groups that `bedplate run` made: of one process, or all of them."""
    pattern = f"bedplate.run.{pid}.*" if pid else "bedplate.run.*"
    return [p for p in Path("/sys/fs/cgroup").rglob(pattern) if p.is_dir()]


class Terminal:
    """A program in a pseudo-terminal of its own, in which it leads the session."""

    def __init__(self, *command: Argument, cwd: Path, env: Optional[dict] = None, rows=24, columns=100):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                os.chdir(cwd)
                os.execvpe(
                    os.fspath(command[0]),
                    [os.fspath(c) for c in command],
                    {**os.environ, "TERM": "xterm-256color", **(env or {})},
                )
            finally:
                os._exit(120)

    def read_more(self, timeout: float) -> bool:
        if not select.select([self.fd], [], [], timeout)[0]:
            return False
        try:
            block = os.read(self.fd, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False
        self.seen += block
        return bool(block)

    def expect(self, wanted: bytes, timeout: float = 20.0) -> bytes:
        """Waits for `wanted` in what came since the last expect(); gives what came before it."""
        deadline = time.monotonic() + timeout
        while wanted not in self.seen:
            if not self.read_more(max(0.0, deadline - time.monotonic())):
                if time.monotonic() >= deadline or self.ended():
                    raise AssertionError(f"no {wanted!r} in {self.seen!r}")
        before, _, self.seen = self.seen.partition(wanted)
        return before

    def ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def finish(self, timeout: float = DEADLINE) -> int:
        """Reads to the end; the exit code as a shell would tell it."""
        deadline = time.monotonic() + timeout
        while True:
            self.read_more(0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                self.close()
                raise AssertionError(f"did not end within {timeout} s; saw {self.seen!r}")
        while self.read_more(0.2):
            pass
        self.pid = 0
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)

    def close(self) -> None:
        if self.pid:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
            self.pid = 0
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
