"""Backward passes and optimizer steps: the skeleton of a training step.

An optimizer's step() is the step boundary. Steps nested in another optimizer's step (wrappers such
as ZeroRedundancyOptimizer, or closures) belong to the outermost one; each optimizer object has an
ordinal in order of its first step, so that a GAN's two optimizers can be told apart.
"""

import json
import sys
import threading
import weakref
from time import monotonic_ns as now

from . import device, ring, wrap

_thread = threading.local()
_ordinals = weakref.WeakKeyDictionary()
_backward_depth = [0]

# Called with (begin, end) after each outermost backward, and with the time before it (ddp.py).
before_backward = []
after_backward = []


def _fork_child():
    global _thread
    _thread = threading.local()
    _backward_depth[0] = 0


ring.at_fork(_fork_child)


# --- backward -------------------------------------------------------------------------------


def _timed_backward(original):
    def backward(*args, **kwargs):
        # Reentrant activation checkpointing calls backward inside of backward.
        if _backward_depth[0] or device.compiling():
            return original(*args, **kwargs)
        _backward_depth[0] = 1
        for function in before_backward:
            function()
        mark = device.begin(ring.BACKWARD)
        began = now()
        try:
            return original(*args, **kwargs)
        finally:
            ended = now()
            _backward_depth[0] = 0
            device.end(mark, began)
            ring.emit(ring.BACKWARD, began, ended)
            ring.set_role(ring.ROLE_RANK)
            for function in after_backward:
                function(began, ended)

    return backward


def patch_autograd(module):
    """torch.autograd.backward is where Tensor.backward ends as well; grad() is the other door."""
    wrap.replace(module, "backward", _timed_backward, "backward")
    wrap.replace(module, "grad", _timed_backward, "backward")


# --- optimizer ------------------------------------------------------------------------------


def _ordinal(optimizer):
    try:
        return _ordinals[optimizer]
    except KeyError:
        number = _ordinals[optimizer] = len(_ordinals)
        if number < 32:
            name = type(optimizer).__name__
            ring.sticky_text("optimizer", json.dumps({"id": number, "class": name}))
        return number


def _running_steps():
    """How many optimizer steps the calling thread is really inside of, the new one not counted."""
    frame, found = sys._getframe(4), 0  # above us: _pre_step, hook, this step's wrapper
    while frame is not None:
        code = frame.f_code
        if code.co_name == "wrapper" and code.co_filename.endswith("optimizer.py"):
            found += 1
        frame = frame.f_back
    return found


def _pre_step(optimizer, _args, _kwargs):
    try:
        stack = _thread.steps
    except AttributeError:
        stack = _thread.steps = []
    if stack and not _running_steps():
        stack.clear()  # an earlier step() raised and never came to its post hook
    mark = None if stack else device.begin(ring.OPTIMIZER)
    stack.append((id(optimizer), now(), mark))


def _post_step(optimizer, _args, _kwargs):
    ended = now()
    stack = getattr(_thread, "steps", None)
    while stack:
        owner, began, mark = stack.pop()
        if owner == id(optimizer):
            break
    else:
        return
    if stack:
        return
    ordinal = _ordinal(optimizer)
    device.end(mark, began)
    ring.emit(ring.OPTIMIZER, began, ended, ordinal)
    ring.emit(ring.STEP, ended, ended, ordinal)
    ring.set_role(ring.ROLE_RANK)
    device.poll()


def _safe(function):
    def hook(optimizer, args, kwargs):
        if device.compiling():
            return  # a compiled step() has no hooks left in it: bedplate.step() tells where it ends
        try:
            function(optimizer, args, kwargs)
        except Exception as problem:
            ring.note_off("optimizer", problem)

    return hook


_pre_hook, _post_hook = _safe(_pre_step), _safe(_post_step)


def patch_optimizer(module):
    pre, post = _pre_hook, _post_hook
    if hasattr(module, "register_optimizer_step_pre_hook"):
        registered = getattr(module, "_global_optimizer_pre_hooks", {})  # empty again after a reload
        if pre not in registered.values():
            module.register_optimizer_step_pre_hook(pre)
            module.register_optimizer_step_post_hook(post)
            ring.note_active("optimizer")
        return

    def timed_profile_hook_step(original):
        def profile_hook_step(step):
            inner = original(step)

            def wrapper(*args, **kwargs):
                pre(args[0], args, kwargs)
                result = inner(*args, **kwargs)
                post(args[0], args, kwargs)
                return result

            wrapper.__dict__.update(getattr(inner, "__dict__", {}))
            wrapper.__wrapped__ = step
            return wrapper

        return profile_hook_step

    static = timed_profile_hook_step(module.Optimizer.profile_hook_step)
    module.Optimizer.profile_hook_step = staticmethod(static)
    ring.note_active("optimizer")
