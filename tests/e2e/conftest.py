import os
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import support  # noqa: E402


def pytest_configure(config):
    # A shell that starts us in the background ignores these, and every program we start would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if not os.access(support.BEDPLATE, os.X_OK):
        pytest.exit(f"no program to test at {support.BEDPLATE}: build it, or set BEDPLATE", 3)


@pytest.fixture
def terminal(tmp_path):
    """Starts programs in terminals of their own and ends what a failed test leaves."""
    opened = []

    def open_terminal(*command, **more):
        more.setdefault("cwd", tmp_path)
        opened.append(support.Terminal(*command, **more))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_other_users = pytest.mark.skipif(
    not os.stat("/").st_mode & 0o001, reason="other users may not enter this machine's root folder"
)
