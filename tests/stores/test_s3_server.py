"""The S3 driver against a real server, which is installed and started here and has keys of its own."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import seaweedfs

STORE_TESTS = Path(os.environ.get("BEDPLATE_STORE_TESTS", seaweedfs.ROOT / "build/dev/src/store/store_tests"))


def cases() -> list[str]:
    if not STORE_TESTS.exists():
        return []
    listed = subprocess.run([STORE_TESTS, "--gtest_list_tests", "--gtest_filter=S3Server.*"], stdout=subprocess.PIPE,
                            text=True, timeout=60, check=True)
    return re.findall(r"^  (\w+)$", listed.stdout, re.M)


@pytest.fixture(scope="module")
def program():
    try:
        return seaweedfs.weed()
    except seaweedfs.NotToBeHad as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def server(program, tmp_path_factory):
    with seaweedfs.serve(program, tmp_path_factory.mktemp("seaweedfs")) as running:
        yield running


def test_the_cases_are_there():
    if not STORE_TESTS.exists():
        pytest.skip(f"{STORE_TESTS} was not built")
    remote = subprocess.run([STORE_TESTS, "--gtest_list_tests", "--gtest_filter=S3.*"], stdout=subprocess.PIPE,
                            text=True, timeout=60, check=True)
    if not remote.stdout:
        pytest.skip("stores behind HTTP and S3 were not built (see bedplate version --features)")
    assert len(cases()) >= 10


@pytest.mark.parametrize("case", cases())
def test_server(server, case):
    done = subprocess.run([STORE_TESTS, f"--gtest_filter=S3Server.{case}"], env=server.environment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 0 and "[  PASSED  ] 1 test" in done.stdout and "SKIPPED" not in done.stdout, done.stdout
    assert server.secret not in done.stdout


def test_the_server_ends_with_the_tests_that_started_it(program, tmp_path):
    script = textwrap.dedent(f"""
        import os, sys
        from pathlib import Path
        sys.path.insert(0, {str(Path(seaweedfs.__file__).parent)!r})
        import seaweedfs
        with seaweedfs.serve(Path({str(program)!r}), Path({str(tmp_path)!r})) as server:
            print(server.url, *server.sockets, sep="\\n", end="\\n\\n", flush=True)
            sys.stdin.read()
    """)
    tests = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url, *sockets = iter(lambda: tests.stdout.readline().strip(), "")
    assert url.startswith("http://127.0.0.1:"), url
    children = Path(f"/proc/{tests.pid}/task/{tests.pid}/children").read_text().split()
    assert len(children) == 1
    os.kill(tests.pid, signal.SIGKILL)
    tests.communicate()
    deadline = time.monotonic() + 10
    while Path(f"/proc/{children[0]}").exists() and "\nState:\tZ" not in Path(f"/proc/{children[0]}/status").read_text():
        assert time.monotonic() < deadline, f"process {children[0]} goes on"
        time.sleep(0.02)
    for path in sockets:
        Path(path).unlink(missing_ok=True)
