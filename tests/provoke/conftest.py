"""Faults provoked for real and judged by ablation; see README.md.

The short form (about nine minutes) is the default and judges what is found. BEDPLATE_PROVOKE=long repeats and judges gains as well:
every fault 5 times faulty and mended in turn, every healthy job 20 times.
"""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import harness  # noqa: E402

_rows = []


def row(name, status, ceiling=None, gain=None, note=""):
    """One line of the table that is printed at the end."""
    _rows.append((name, status, ceiling, gain, note))


@pytest.fixture(scope="session")
def rounds():
    return 5 if harness.LONG else 1


@pytest.fixture(scope="session")
def healthy_rounds():
    return 20 if harness.LONG else 1


def pytest_terminal_summary(terminalreporter):
    if not _rows:
        return

    def percent(value):
        return "" if value is None else f"{100 * value:.0f} %"

    terminalreporter.write_line("")
    terminalreporter.write_line(f"{'provoked':<30} {'status':<12} {'ceiling':>8} {'gain':>8}  note")
    for name, status, ceiling, gain, note in _rows:
        terminalreporter.write_line(f"{name:<30} {status:<12} {percent(ceiling):>8} {percent(gain):>8}  {note}")
