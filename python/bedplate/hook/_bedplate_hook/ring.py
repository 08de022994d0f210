"""The writer's side of trace protocol 1: one slot of a shared memfd per process.

    emit(STEP, t0, t0, ordinal)      one 32-byte record; never blocks, never raises
    token = open_mark(KIND, t0, a)   "this process is inside ... since t0", for stuck processes
    close_mark(token)
    text("loader", "{...}")          a metadata line

The slot is claimed at the first emit (or by claim()), a fork child starts without one, and all of
it is a no-op once anything has failed. All functions may be called from any thread, from signal
handlers and from gc callbacks: the lock is reentrant and held for a microsecond.
"""

import functools
import os
import sys
import threading
from time import monotonic_ns as now

from .claim import CLOSED, SLOT_HEADER, claim_slot, rank_or_environment

# Kinds of records. Numbers are the protocol's, shared with the collector and bedplate/trace.h.
STEP = 1
OPTIMIZER = 2
INPUT_WAIT = 3
BACKWARD = 4
COLLECTIVE = 5
DDP_COMM = 6
CHECKPOINT = 7
GC = 8
FETCH = 9
FILES = 10
H2D = 11
DEVICE_SYNC = 12
PHASE = 13
USER_STEP = 14
BYTES = 15
LOAD = 16
FSYNC = 17
VALIDATION = 18
GPU_PHASE = 19
DATA = 20

ROLE_RANK = 1
ROLE_WORKER = 2
ROLE_OTHER = 3

# Byte offsets inside a slot's header that are written after the claim.
_OFF_RANK, _OFF_TEXT_USED, _OFF_TEXT_LOST = 12, 48, 52
_OFF_WORLD, _OFF_LOCAL_RANK, _OFF_ROLE, _OFF_DUMP_SIGNAL = 56, 60, 64, 72
# 64-bit words of the header that every event touches.
_WORD_HEAD, _WORD_OPEN_SINCE, _WORD_OPEN_KIND = 3, 4, 5

# Longest value of a text line, in characters, and what other lines leave free at the end of the text
# area: an exception with its traceback must always find room.
LINE_LIMIT = 8192
_EXCEPTION_ROOM = 6144


class _State:
    """Everything that must be fresh in a fork child."""

    def __init__(self):
        self.slot = None
        self.tried = False
        self.claiming = False
        self.lock = threading.RLock()
        self.threads = threading.local()
        self.open = []
        self.written = 0
        self.role = ROLE_OTHER
        self.forked = False


_state = _State()
_rank = [-1, -1, -1]  # rank, world size, local rank as torch.distributed or the environment say
_active_hooks = []
_offs = []
_sticky = []  # lines that every claimed slot of this process and its fork children gets
_at_claim = []
_at_close = []


# --- claiming -------------------------------------------------------------------------------


def claim():
    """The slot of this process, claiming one at the first call; None when there is none."""
    state = _state
    if state.tried:
        return state.slot
    with state.lock:  # other threads wait here, once, for the time of a claim
        if state.tried or state.claiming:
            return state.slot
        state.claiming = True  # a gc callback or signal handler of this very thread goes without
        try:
            state.slot = claim_slot(state.role, _rank)
            _mappings.append(state.slot.mapping)
        except Exception as problem:
            _note_in_run_folder("%s: %s" % (type(problem).__name__, problem))
        finally:
            state.tried = True
    if state.slot is not None:
        _after_claim(state)
    return state.slot


def _after_claim(state):
    import json

    def plain(words):
        return json.dumps([w.encode("utf-8", "backslashreplace").decode() for w in words])

    text("python", "%d.%d.%d" % sys.version_info[:3])
    words = getattr(sys, "orig_argv", None) or getattr(sys, "argv", None) or []
    text("argv", plain([str(word)[:200] for word in words[:20]]))
    if _active_hooks:
        text("hooks", ",".join(_active_hooks))
    for line in _offs:
        text("hook_off", line)
    for key, value in _sticky:
        text(key, value)
    if not state.forked:
        import atexit

        atexit.register(close)
    for function in _at_claim:
        try:
            function()
        except Exception as problem:
            note_off(getattr(function, "__name__", "?"), "%s" % problem)


def has_slot():
    """True when this process has a slot already: for events that are not worth claiming one."""
    return _state.slot is not None


def at_claim(function):
    """Runs `function` after each claim (again in a fork child that claims), and now if claimed."""
    _at_claim.append(function)
    if _state.slot is not None:
        function()


def close():
    """Marks the slot closed: its owner writes no more. For exits that run Python code."""
    state = _state
    slot = state.slot
    if slot is not None:
        with state.lock:
            state.slot = None
            slot.put("I", 0, CLOSED)
        for function in _at_close:
            try:
                function()
            except Exception:
                pass


def at_close(function):
    """Runs `function` when this process (or a fork child) closes its slot in good order."""
    _at_close.append(function)


def _fork_child(_mappings):
    # The mapping is the parent's slot: leave it before the child can write a single word. Locks
    # and per-thread state may have been in use by threads that do not exist here.
    global _state
    old, _state = _state, _State()
    _state.forked = True
    _state.tried = old.tried and old.slot is None and not old.forked
    for function in _at_fork:
        try:
            function()
        except Exception:
            pass
    if old.slot is not None:
        try:
            _mappings.clear()
            old.slot.unmap()
        except Exception:
            pass


_at_fork = []


def at_fork(function):
    """Runs `function` in each fork child."""
    _at_fork.append(function)


# An mmap that dies closes the descriptor number it holds (before Python 3.13), which a job that
# closed all descriptors may have reused. So the mappings live in the interpreter's own list of fork
# callbacks, which goes last of all, after every file of the job has been flushed and closed.
_mappings = []
os.register_at_fork(after_in_child=functools.partial(_fork_child, _mappings))


# --- events ---------------------------------------------------------------------------------


def emit(kind, t0, t1, arg=0):
    """Writes one record. `arg` is taken modulo 2**64; t1 < t0 counts as an empty interval."""
    state = _state
    slot = state.slot
    if slot is None:
        if state.tried or claim() is None:
            return
        state = _state
        slot = state.slot
    try:
        try:
            thread = state.threads.id
        except AttributeError:
            thread = state.threads.id = threading.get_native_id() << 32
        words = slot.words
        with state.lock:
            number = state.written
            state.written = number + 1
            at = slot.first_record + ((number & slot.mask) << 2)
            words[at] = t0
            words[at + 1] = t1 - t0
            words[at + 3] = arg
            # The sequence goes in last: a reader that finds it finds the rest.
            words[at + 2] = kind | (number & 0xFFFF) << 16 | thread
            words[_WORD_HEAD] = state.written
    except Exception:
        _emit_failed(state, kind, t0, t1, arg)


def _emit_failed(state, kind, t0, t1, arg):
    """The rare way out of emit: a value out of range is mended once, anything else ends it."""
    if 0 <= t0 and not (t1 >= t0 and 0 <= arg < 1 << 64):
        emit(kind, t0, max(t0, t1), arg & 0xFFFFFFFFFFFFFFFF)
        return
    state.slot = None


def open_mark(kind, t0, arg=0):
    """Shows `kind` as what this process is inside of. Returns the token for close_mark."""
    state = _state
    slot = state.slot
    if slot is None:
        if state.tried or claim() is None:
            return None
        state = _state
        slot = state.slot
    token = (t0, kind | (arg & 0xFFFFFFFF) << 32)
    try:
        with state.lock:
            state.open.append(token)
            words = slot.words
            words[_WORD_OPEN_SINCE] = t0
            words[_WORD_OPEN_KIND] = token[1]
    except Exception:
        return None
    return token


def close_mark(token):
    """Ends a mark; whatever was open around it (or in another thread) shows again."""
    state = _state
    slot = state.slot
    if slot is None or token is None:
        return
    try:
        with state.lock:
            marks = state.open
            if marks and marks[-1] is token:
                marks.pop()
            else:
                for index, mark in enumerate(marks):
                    if mark is token:
                        del marks[index]
                        break
                return
            since, kind = marks[-1] if marks else (0, 0)
            words = slot.words
            words[_WORD_OPEN_KIND] = kind
            words[_WORD_OPEN_SINCE] = since
    except Exception:
        pass


# --- metadata -------------------------------------------------------------------------------


def text(key, value):
    """Appends a metadata line, or counts it as lost when the text area is full."""
    state = _state
    slot = state.slot
    if slot is None:
        return
    try:
        value = str(value)[:LINE_LIMIT]
        value = value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
        line = ("%s\t%s\n" % (key, value)).encode("utf-8", "backslashreplace")
        with state.lock:
            used = slot.text_used
            room = slot.text_bytes - used
            if key != "exception" and slot.text_bytes > 2 * _EXCEPTION_ROOM:
                room -= _EXCEPTION_ROOM
            if len(line) > room:
                slot.text_lost += 1
                slot.put("I", _OFF_TEXT_LOST, slot.text_lost)
                return
            at = slot.base + SLOT_HEADER + used
            slot.mapping[at : at + len(line)] = line
            slot.text_used = used + len(line)
            slot.put("I", _OFF_TEXT_USED, slot.text_used)
    except Exception:
        pass


def sticky_text(key, value):
    """Like text(), and repeated in slots that fork children of this process claim."""
    if len(_sticky) < 256:
        _sticky.append((key, value))
    text(key, value)


def set_rank(rank, world_size, local_rank=-1):
    """What torch.distributed says; stays known for fork children."""
    _rank[:] = [rank, world_size, local_rank if local_rank >= 0 else rank_or_environment([-1, -1, -1])[2]]
    slot = claim()
    if slot is not None:
        slot.put("i", _OFF_RANK, _rank[0])
        slot.put("i", _OFF_WORLD, _rank[1])
        slot.put("i", _OFF_LOCAL_RANK, _rank[2])


def set_role(role):
    """Rank wins over other, worker wins over both (a worker may run collectives of its own)."""
    state = _state
    if state.role == ROLE_WORKER or state.role == role:
        return
    state.role = role
    if state.slot is not None:
        state.slot.put("I", _OFF_ROLE, role)


def set_dump_signal(number):
    if _state.slot is not None:
        _state.slot.put("I", _OFF_DUMP_SIGNAL, number)


def role():
    return _state.role


def note_active(name):
    """A part of the hook is in place."""
    if name not in _active_hooks:
        _active_hooks.append(name)
        text("hooks", name)


def note_off(name, reason):
    """A part of the hook is off. Kept for slots claimed later; 64 lines at most."""
    line = "%s: %s" % (name, str(reason)[:300])
    if line not in _offs and len(_offs) < 64:
        _offs.append(line)
        text("hook_off", line)


def _note_in_run_folder(reason):
    # Without a slot the run folder is the only place to say why; bounded, and silent on failure.
    try:
        path = os.path.join(os.environ["BEDPLATE_RUN"], "hook_off.log")
        if not os.path.exists(path) or os.path.getsize(path) < 65536:
            line = "%d\t%s\n" % (os.getpid(), reason.replace("\n", " ")[:500])
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o644)
            try:
                os.write(descriptor, line.encode("utf-8", "backslashreplace"))
            finally:
                os.close(descriptor)
    except Exception:
        pass
