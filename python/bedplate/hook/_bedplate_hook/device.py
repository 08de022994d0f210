"""CUDA: copies, synchronisations, and the device's own time for a phase.

The host only launches work on a GPU, so a phase's device time comes from a pair of timed events
recorded around it on the current stream. The pair is looked at later with query() and read when
both have passed: Bedplate never synchronises. Nothing here is active before the job itself has
initialised CUDA, and nothing is recorded while a stream is capturing a CUDA graph.
"""

import collections
import threading
from time import monotonic_ns as now

from . import ring, wrap

_PENDING_LIMIT = 256
_POLLED_AT_ONCE = 32

_cuda = None  # the torch.cuda module (a stand-in in tests) once CUDA is initialised
_waiting_for = None  # torch.cuda before that
_pending = collections.deque()
_last_step = None
_thread = threading.local()
_is_compiling = None


def compiling():
    """True while torch.compile traces: wrappers must then leave no trace of themselves."""
    return _is_compiling is not None and _is_compiling()


def set_compiler(torch):
    global _is_compiling
    for home in (getattr(torch, "compiler", None), getattr(torch, "_utils", None)):  # 2.1: _utils
        _is_compiling = getattr(home, "is_compiling", None)
        if _is_compiling is not None:
            return


# --- timed events ---------------------------------------------------------------------------


def _record():
    if _cuda.is_current_stream_capturing():
        return None
    event = _cuda.Event(enable_timing=True)
    event.record()
    return event


def begin(kind):
    """Starts the device's clock for a phase; None without CUDA."""
    if _cuda is None:
        return None
    try:
        event = _record()
        return None if event is None else (kind, event)
    except Exception as problem:
        _give_up(problem)
        return None


def end(mark, began):
    """Stops it. `began` is the host's time of begin()."""
    if mark is None or _cuda is None:
        return
    try:
        event = _record()
        if event is not None:
            _keep(mark[0], mark[1], event, began)
    except Exception as problem:
        _give_up(problem)


def _keep(kind, start, stop, began):
    if len(_pending) >= _PENDING_LIMIT:
        _pending.popleft()
    _pending.append((kind, start, stop, began))


def poll():
    """Reports the pairs that have passed. Called at each step boundary."""
    global _last_step
    if _cuda is None:
        if _waiting_for is not None and getattr(_waiting_for, "_initialized", False):
            install(_waiting_for)
        return
    try:
        event, at = _record(), now()
        if event is not None:
            if _last_step is not None:
                _keep(ring.STEP, _last_step[0], event, _last_step[1])
            _last_step = (event, at)
        for _ in range(min(_POLLED_AT_ONCE, len(_pending))):
            kind, start, stop, began = _pending[0]
            if not (start.query() and stop.query()):
                break
            _pending.popleft()
            spent = max(0, int(start.elapsed_time(stop) * 1e6))
            ring.emit(ring.GPU_PHASE, began, began + spent, kind | spent << 8)
    except Exception as problem:
        _give_up(problem)


def _give_up(problem):
    global _cuda
    _cuda = None
    _pending.clear()
    ring.note_off("cuda_events", "%s: %s" % (type(problem).__name__, problem))


def _fork_child():
    global _cuda, _last_step, _thread
    # CUDA does not survive a fork; touching an event of the parent would raise or worse.
    _cuda, _last_step, _thread = None, None, threading.local()
    _pending.clear()


ring.at_fork(_fork_child)


# --- copies and synchronisations ------------------------------------------------------------


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


def _timed_copy(original, ends=lambda self, args, kwargs, result: (self, result)):
    """to(), cuda(), cpu(): from a tensor to a new one. `ends`: what a call copied from and to."""

    def copy(self, *args, **kwargs):
        if getattr(_thread, "inside", False) or compiling():
            return original(self, *args, **kwargs)
        _thread.inside = True
        try:
            began = now()
            result = original(self, *args, **kwargs)
            ended = now()
        finally:
            _thread.inside = False
        try:
            source, copied = ends(self, args, kwargs, result)
            if source.is_cuda != copied.is_cuda:
                kind = ring.H2D if copied.is_cuda else ring.DEVICE_SYNC
                ring.emit(kind, began, ended, _bytes(copied))
        except Exception:
            pass
        return result

    return copy


def _timed_copy_into(original):
    """x.copy_(source): from the argument into the tensor."""

    def ends(self, args, kwargs, _result):
        return args[0] if args else kwargs["src"], self

    return _timed_copy(original, ends)


def _timed_read(original):
    """item(), tolist(): the host waits until the device has computed the value."""

    def read(self, *args, **kwargs):
        if getattr(_thread, "inside", False) or compiling() or not self.is_cuda:
            return original(self, *args, **kwargs)
        began = now()
        try:
            return original(self, *args, **kwargs)
        finally:
            ring.emit(ring.DEVICE_SYNC, began, now())

    return read


def _timed_sync(original):
    def synchronize(*args, **kwargs):
        if getattr(_thread, "inside", False) or compiling():
            return original(*args, **kwargs)
        _thread.inside = True
        began = now()
        try:
            return original(*args, **kwargs)
        finally:
            _thread.inside = False
            ring.emit(ring.DEVICE_SYNC, began, now())

    return synchronize


def install(cuda, tensor_class=None):
    """CUDA is up: start timed events, wrap copies and synchronisations."""
    global _cuda, _waiting_for
    _waiting_for = None
    try:
        if tensor_class is None:
            import torch

            tensor_class = torch.Tensor
        for name in ("to", "cuda", "cpu"):
            wrap.replace(tensor_class, name, _timed_copy, "h2d")
        wrap.replace(tensor_class, "copy_", _timed_copy_into, "h2d")
        for name in ("item", "tolist"):
            wrap.replace(tensor_class, name, _timed_read, "device_sync")
        wrap.replace(cuda, "synchronize", _timed_sync, "device_sync")
        for name in ("Stream", "Event"):
            class_ = getattr(cuda, name, None)
            if class_ is not None and "synchronize" in class_.__dict__:
                wrap.replace(class_, "synchronize", _timed_sync, "device_sync")
        _cuda = cuda
        ring.note_active("cuda_events")
    except Exception as problem:
        _give_up(problem)


def patch_cuda(module):
    """Waits for the job to initialise CUDA: at once when it calls _lazy_init, else at a step."""
    global _waiting_for
    if getattr(module, "_initialized", False):
        install(module)
        return
    _waiting_for = module

    def notice_init(original):
        def _lazy_init():
            original()
            if getattr(module, "_initialized", False):
                module._lazy_init = original
                if _cuda is None:
                    install(module)

        return _lazy_init

    wrap.replace(module, "_lazy_init", notice_init, "cuda")
