"""How a process ends or hangs: uncaught exceptions, and stacks on request.

The stack dump is faulthandler's: on a signal that only the collector sends, the interpreter writes
the Python stacks of all threads to <run>/stacks/<pid>.txt from inside the handler and goes on. It
is armed only where that signal had its default disposition, and its number is in the slot.
"""

import json
import os
import sys

from . import ring, wrap

# The end of a traceback says most. With a message of 1,000 characters, quoting included, this
# stays within a text line.
_TRACEBACK_BYTES = 4096
# High enough not to be the number that the job's next open() would have got.
_LOWEST_DESCRIPTOR = 512

_stack_file = []
_previous_thread_hook = None


def uncaught(kind, value, traceback):
    """Records an exception that nobody caught, then cuts Bedplate's frames out of it."""
    if ring.claim() is not None:
        _record(kind, value, traceback, "")
    _cut_own_frames(value, set())


def _record(kind, value, traceback, where):
    import traceback as formatter

    try:
        message = str(value)
    except Exception:
        message = "<no text: str() of the exception failed>"
    lines = "".join(formatter.format_exception(kind, value, traceback))
    data = lines.encode("utf-8", "backslashreplace")[-_TRACEBACK_BYTES:]
    description = {
        "type": getattr(kind, "__name__", str(kind)),
        "message": message[:1000].encode("utf-8", "backslashreplace").decode(),
        "traceback": data.decode("utf-8", "replace"),
    }
    if where:
        description["thread"] = where
    ring.text("exception", json.dumps(description, ensure_ascii=False))


def _cut_own_frames(error, seen):
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        previous, entry = None, error.__traceback__
        while entry is not None:
            following = entry.tb_next
            if entry.tb_frame.f_code.co_filename == wrap.HOOK_FILE and following is not None:
                if previous is None:
                    error.__traceback__ = following
                else:
                    previous.tb_next = following
            else:
                previous = entry
            entry = following
        if error.__context__ is not None:
            _cut_own_frames(error.__context__, seen)
        error = error.__cause__


def _thread_excepthook(arguments):
    try:
        if arguments.exc_type is not SystemExit and ring.claim() is not None:
            name = getattr(arguments.thread, "name", "?")
            _record(arguments.exc_type, arguments.exc_value, arguments.exc_traceback, name)
            _cut_own_frames(arguments.exc_value, set())
    except Exception as problem:
        ring.note_off("exception", problem)
    _previous_thread_hook(arguments)


def _watch_threads():
    global _previous_thread_hook
    import threading

    if threading.excepthook is _thread_excepthook:
        return
    _previous_thread_hook = threading.excepthook
    if getattr(threading, "__excepthook__", None) is threading.excepthook:
        threading.__excepthook__ = _thread_excepthook
    threading.excepthook = _thread_excepthook


def patch_spawn(module):
    """torch.multiprocessing.spawn swallows a rank's exception and exits with 1."""

    def record_exit(original):
        def _wrap(*args, **kwargs):
            try:
                return original(*args, **kwargs)
            except SystemExit as leaving:
                error = leaving.__context__
                if error is not None and ring.claim() is not None:
                    try:
                        _record(type(error), error, error.__traceback__, "")
                    except Exception as problem:
                        ring.note_off("exception", problem)
                raise

        return _wrap

    wrap.replace(module, "_wrap", record_exit, "spawn")


# --- stacks on request ----------------------------------------------------------------------


def _arm_stack_dump():
    """Once a process and again in each fork child that claims a slot: the file is per pid."""
    import faulthandler
    import fcntl
    import signal

    number = signal.SIGRTMAX - 3
    run = os.environ.get("BEDPLATE_RUN")
    if not run:
        return
    if _stack_file and _stack_file[0] == os.getpid():
        return
    if not _stack_file and _caught_or_ignored(number):
        ring.note_off("stack_dump", "the job uses signal %d itself" % number)
        return
    folder = os.path.join(run, "stacks")
    os.makedirs(folder, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    low = os.open(os.path.join(folder, "%d.txt" % os.getpid()), flags, 0o644)
    try:
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
    except OSError:
        ring.note_off("stack_dump", "the limit on open files is too low")
        return
    finally:
        os.close(low)
    faulthandler.register(number, file=high, all_threads=True, chain=False)
    if _stack_file:
        os.close(_stack_file[1])
    _stack_file[:] = [os.getpid(), high]
    ring.set_dump_signal(number)
    ring.note_active("stack_dump")


def _caught_or_ignored(number):
    import signal

    if signal.getsignal(number) is not signal.SIG_DFL:
        return True
    # A handler that C code installed is not in Python's table; the kernel's has all.
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(("SigCgt:", "SigIgn:")):
                if int(line.split()[1], 16) >> (number - 1) & 1:
                    return True
    return False


def _arm_stack_dump_safely():
    try:
        _arm_stack_dump()
    except Exception as problem:
        ring.note_off("stack_dump", "%s: %s" % (type(problem).__name__, problem))


def _remove_empty_file():
    # Workers that are started anew each epoch would leave thousands of them.
    if _stack_file and _stack_file[0] == os.getpid() and os.fstat(_stack_file[1]).st_size == 0:
        os.unlink(os.path.join(os.environ["BEDPLATE_RUN"], "stacks", "%d.txt" % os.getpid()))


def install():
    _watch_threads()
    ring.at_claim(_arm_stack_dump_safely)
    ring.at_close(_remove_empty_file)
