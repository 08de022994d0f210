"""Data files that Python code opens while it produces a batch (kind FILES).

An audit hook sees every open() and os.open() of the interpreter, and cannot be removed again; it
therefore starts with the cheapest test there is, and it is installed by the first fetch only.
Files opened by C++ code (OpenCV, HDF5) are not seen here; the host's system call counts show them.
"""

import os
import sys
from time import monotonic_ns as now

from . import ring

_SAMPLED_PATHS = 64
_SAMPLED_BYTES = 3072
_CLOSE_ON_EXEC = os.O_CLOEXEC
_WRITES_OR_LISTS = os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY
_NOT_DATA = ("/proc/", "/sys/", "/dev/")

# Read by loader.py. counting: this process is inside a fetch. opened: files since the last record.
counting = False
opened = 0
_sampled = set()
_sample_room = _SAMPLED_BYTES
_last_record = 0
_installed = False


def _count(arguments):
    global opened, _sample_room
    path, _, flags = arguments
    # C code that opens for Python's own ends passes no O_CLOEXEC.
    if not flags & _CLOSE_ON_EXEC or flags & _WRITES_OR_LISTS:
        return
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if not isinstance(path, str) or path.startswith(_NOT_DATA):
        return
    # Imports read code, not data; but a data set may well consist of Python files.
    if path.endswith((".py", ".pyc")):
        if sys._getframe(2).f_code.co_filename == "<frozen importlib._bootstrap_external>":
            return
    opened += 1
    if _sample_room > 0 and path not in _sampled:
        _sampled.add(path)
        _sample_room = 0 if len(_sampled) == _SAMPLED_PATHS else _sample_room - len(path) - 11
        ring.text("open_path", path[:240])
    if opened & 63 == 0 and now() - _last_record > 500_000_000:
        flush(now())


def _audit(event, arguments):
    # An exception of an audit hook would stop what the job is doing.
    if counting and event == "open":
        try:
            _count(arguments)
        except Exception:
            pass


def flush(at):
    """One FILES record for what was opened since the last one; none for nothing."""
    global opened, _last_record
    count, opened = opened, 0
    _last_record = at
    if count:
        ring.emit(ring.FILES, at, at, count)


def ensure():
    """Called before each fetch: there is a slot for the paths, and the audit hook is in."""
    global _installed
    if not ring.has_slot():
        ring.claim()
    if not _installed:
        _installed = True
        sys.addaudithook(_audit)
        ring.note_active("files")


def _fork_child():
    global counting, opened, _sample_room
    counting, opened, _sample_room = False, 0, _SAMPLED_BYTES
    _sampled.clear()


def install():
    ring.at_fork(_fork_child)
