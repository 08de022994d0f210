"""torch.distributed: who entered which collective when, and how long it took.

    arg = op | async << 8 | group << 9 | sequence << 16

Sequence numbers count the collectives of one group in this process (point-to-point operations
count on their own), so ranks of a group that are in step show the same number. Group 0 is the
default group; the others are announced with their ranks in the text line `group`. An asynchronous
operation gives two records with the same arg: its launch, and the wait() for it. Collectives made
of collectives (objects, barriers) count once.
"""

import json
import threading
import weakref
from time import monotonic_ns as now

from . import device, ring, wrap

# op number, position and name of the argument whose bytes are moved (None: not known)
_OPERATIONS = {
    "all_reduce": (1, 0, "tensor"),
    "all_reduce_coalesced": (1, 0, "tensors"),
    "reduce": (2, 0, "tensor"),
    "broadcast": (3, 0, "tensor"),
    "all_gather": (4, 0, "tensor_list"),
    "all_gather_into_tensor": (4, 0, "output_tensor"),
    "all_gather_single": (4, 0, "output_tensor"),
    "_all_gather_base": (4, 0, "output_tensor"),
    "all_gather_coalesced": (4, 1, "input_tensor_list"),
    "reduce_scatter": (5, 1, "input_list"),
    "reduce_scatter_tensor": (5, 1, "input"),
    "reduce_scatter_single": (5, 1, "input"),
    "_reduce_scatter_base": (5, 1, "input"),
    "all_to_all": (6, 1, "input_tensor_list"),
    "all_to_all_single": (6, 1, "input"),
    "barrier": (7, None, None),
    "monitored_barrier": (8, None, None),
    "gather": (9, 0, "tensor"),
    "scatter": (10, 0, "tensor"),
    "all_gather_object": (11, None, None),
    "gather_object": (12, None, None),
    "broadcast_object_list": (13, None, None),
    "scatter_object_list": (14, None, None),
    "send": (32, 0, "tensor"),
    "recv": (33, 0, "tensor"),
    "isend": (34, 0, "tensor"),
    "irecv": (35, 0, "tensor"),
    "send_object_list": (36, None, None),
    "recv_object_list": (37, None, None),
    "init_process_group": (64, None, None),
}
_FIRST_POINT_TO_POINT, _INIT = 32, 64
_ASYNC = 1 << 8

_thread = threading.local()
_sequence = {}
_groups = {}
_pending = weakref.WeakKeyDictionary()
_c10d = None


def _fork_child():
    global _thread
    _thread = threading.local()


ring.at_fork(_fork_child)


def _group_number(group):
    """0 for the default group, else a small number announced with the group's ranks."""
    if group is None or group is _c10d.GroupMember.WORLD:
        return 0
    name = getattr(group, "group_name", None) or id(group)
    try:
        return _groups[name]
    except KeyError:
        number = _groups[name] = min(len(_groups) + 1, 127)
        if number < 127:
            try:
                ranks = _c10d.get_process_group_ranks(group)
            except Exception:
                ranks = []
            description = {"id": number, "name": str(name), "ranks": list(ranks)[:256]}
            ring.sticky_text("group", json.dumps(description))
        return number


def _bytes(value):
    if isinstance(value, (list, tuple)):
        return sum(_bytes(part) for part in value)
    try:
        return value.numel() * value.element_size()
    except Exception:
        return 0


def _begin(op, group, is_async):
    number = _group_number(group)
    counter = (number, op >= _FIRST_POINT_TO_POINT)
    sequence = _sequence.get(counter, 0) + 1
    if op != _INIT:
        _sequence[counter] = sequence
    return op | (_ASYNC if is_async else 0) | number << 9 | (sequence & (1 << 48) - 1) << 16


def _timed(name, module):
    op, position, keyword = _OPERATIONS[name]
    always_async = name in ("isend", "irecv")
    announced = []

    def make(original):
        group_at = async_at = None
        code = getattr(getattr(original, "__wrapped__", original), "__code__", None)
        if code is not None:
            names = code.co_varnames[: code.co_argcount]
            group_at = names.index("group") if "group" in names else None
            async_at = names.index("async_op") if "async_op" in names else None

        def pick(args, kwargs, at, key):
            if at is not None and len(args) > at:
                return args[at]
            return kwargs.get(key)

        def prepare(args, kwargs):
            group = pick(args, kwargs, group_at, "group")
            if group is not None and group is module.GroupMember.NON_GROUP_MEMBER:
                return None
            if not announced:
                announced.append(name)
                ring.sticky_text("op_name", json.dumps({"id": op, "name": name}))
            is_async = always_async or bool(pick(args, kwargs, async_at, "async_op"))
            return _begin(op, group, is_async)

        def collective(*args, **kwargs):
            if getattr(_thread, "inside", False) or device.compiling():
                return original(*args, **kwargs)
            try:
                arg = prepare(args, kwargs)
            except Exception as problem:
                ring.note_off(name, problem)
                arg = op
            if arg is None:
                return original(*args, **kwargs)
            _thread.inside = True
            began = now()
            mark = ring.open_mark(ring.COLLECTIVE, began, arg)
            try:
                result = original(*args, **kwargs)
                if arg & _ASYNC and result is not None:
                    _remember(result, arg)
                return result
            finally:
                ended = now()
                _thread.inside = False
                ring.close_mark(mark)
                ring.emit(ring.COLLECTIVE, began, ended, arg)
                if position is not None or keyword is not None:
                    moved = _bytes(pick(args, kwargs, position, keyword))
                    if moved:
                        ring.emit(ring.BYTES, began, began, moved)

        return collective

    return make


def _remember(work, arg):
    try:
        _pending[work] = arg
    except TypeError:
        pass


def _timed_wait(original):
    def wait(self, *args, **kwargs):
        if getattr(_thread, "inside", False) or device.compiling():
            return original(self, *args, **kwargs)
        try:
            arg = _pending.get(self)
        except TypeError:
            arg = None
        if arg is None:
            return original(self, *args, **kwargs)
        _thread.inside = True
        began = now()
        mark = ring.open_mark(ring.COLLECTIVE, began, arg)
        try:
            return original(self, *args, **kwargs)
        finally:
            ended = now()
            _thread.inside = False
            ring.close_mark(mark)
            ring.emit(ring.COLLECTIVE, began, ended, arg)
            try:
                del _pending[self]
            except Exception:
                pass

    return wait


def _after_init(original):
    def init_process_group(*args, **kwargs):
        result = original(*args, **kwargs)
        try:
            ring.set_rank(_c10d.get_rank(), _c10d.get_world_size())
            ring.set_role(ring.ROLE_RANK)
            ring.sticky_text("backend", str(_c10d.get_backend()))
        except Exception as problem:
            ring.note_off("init_process_group", problem)
        return result

    return init_process_group


def patch(module):
    """Wraps the functions where they are defined, before torch.distributed re-exports them."""
    global _c10d
    if not hasattr(module, "GroupMember"):
        ring.note_off("collectives", "this torch was built without torch.distributed")
        return
    _c10d = module
    for name in _OPERATIONS:
        wrap.replace(module, name, _timed(name, module), "collectives")
    if hasattr(module, "init_process_group"):
        inner = module.init_process_group
        outer = wrap.transparent(_after_init(inner))
        outer.__dict__.update(inner.__dict__)
        outer.__name__, outer.__qualname__ = inner.__name__, inner.__qualname__
        outer.__module__, outer.__doc__ = inner.__module__, inner.__doc__
        outer.__wrapped__ = inner
        module.init_process_group = outer
    work = getattr(module, "Work", None)
    if work is not None:
        wrap.replace(work, "wait", _timed_wait, "collectives")
