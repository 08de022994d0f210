"""Fixtures of the hook's tests: a trace to write into and a way to run a script under it."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ring_reader import Trace  # noqa: E402

def torch_since(major, minor, what):
    """Skips a test of what only newer versions of torch have."""
    import torch

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    reason = "torch %s has no %s" % (torch.__version__, what)
    return pytest.mark.skipif(version < (major, minor), reason=reason)


PACKAGE = pathlib.Path(__file__).resolve().parents[1]


def pytest_configure(config):
    # A shell that starts us in the background ignores it, and every program we start would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def trace(tmp_path):
    with Trace(tmp_path) as made:
        yield made


@pytest.fixture
def run(trace, tmp_path):
    """run("print(1)") runs the script as `python script.py` under the trace.

    The result has .stdout and .stderr as text. A non-zero exit fails the test unless code= says
    which one is expected (None: any).
    """

    def run_script(
        script, *arguments, python=sys.executable, options=(), code=0, hooked=True, name="script.py",
        launcher=None, **environment,
    ):
        path = tmp_path / name
        path.write_text(textwrap.dedent(script), encoding="utf-8")
        if hooked:
            variables = trace.environment(**environment)
        else:
            variables = {**os.environ, **environment}
            variables.pop("BEDPLATE_TRACE", None)
        command = list(launcher or [python, *options]) + [str(path), *arguments]
        result = subprocess.run(
            command, env=variables, capture_output=True, timeout=300, cwd=str(tmp_path)
        )
        result.stdout = result.stdout.decode("utf-8", "backslashreplace")
        result.stderr = result.stderr.decode("utf-8", "backslashreplace")
        if code is not None and result.returncode != code:
            pytest.fail("exit code %s\n%s\n%s" % (result.returncode, result.stdout, result.stderr))
        return result

    return run_script


@pytest.fixture
def torchrun():
    """The launcher words for a job of n ranks."""

    def words(ranks):
        return [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            "--nproc-per-node", str(ranks),
        ]

    return words
