"""DistributedDataParallel's own all-reduce, which runs in C++ where no Python hook sees it.

DDP can time itself; its logging data then hold the last iteration's communication time and how
much of it the backward pass hid. What was not hidden is the record (DDP_COMM). The figures of an
iteration are complete when the next forward has begun, so they are read before the next backward.

Reading them costs some hundred microseconds where a step has swept the caches, and DDP's timers
about as much again. So of short steps only every 2nd, 4th … 64th iteration is timed and asked for: as
many as keep the asking below a thousandth of the time. All ranks count alike, so they ask for the
same iterations. On CUDA the timers would make DDP wait for the device, so there they stay off and
the report says so.
"""

import weakref
from time import monotonic_ns as now
from time import thread_time_ns as cpu_time

from . import ring, training, wrap

_PART_OF_STEP = 1000  # a thousandth
_MOST_STEPS = 64
_TIMED = 1  # DDP's sample rates: every iteration, and none
_UNTIMED = 1 << 30
_models = []


class _Watched:
    def __init__(self, model):
        self.model = weakref.ref(model)
        self.number = 0  # of the backward to come, of those that exchange gradients
        self.look_at = 0  # the next number with something to do
        self.every = 1  # a power of two
        self.timed_from = -1  # number from whose backward on DDP times itself; None: it does not
        self.iteration = -1
        self.asked = None  # (number, time) of the last question
        self.ended = 0  # the last backward that exchanged gradients


def _before_backward():
    for watched in list(_models):
        if watched.number < watched.look_at:
            continue
        try:
            _look(watched)
        except Exception as problem:
            _models.remove(watched)
            ring.note_off("ddp", "%s: %s" % (type(problem).__name__, problem))


def _after_backward(_began, ended):
    for watched in _models:
        model = watched.model()
        # In no_sync, DDP does not count an iteration.
        if model is not None and model.require_backward_grad_sync:
            watched.ended = ended
            watched.number += 1


def _look(watched):
    model = watched.model()
    if model is None:
        _models.remove(watched)
        return
    if not model.require_backward_grad_sync:
        return
    # An iteration is timed as a whole when the timers went on before the backward before it.
    whole = watched.timed_from is not None and watched.number - watched.timed_from >= 2
    if whole and watched.number % watched.every == 0:
        _ask(watched, model)
    turn = watched.number % watched.every
    timed = turn >= watched.every - 2
    if timed != (watched.timed_from is not None):
        model._set_ddp_runtime_logging_sample_rate(_TIMED if timed else _UNTIMED)
        watched.timed_from = watched.number if timed else None
    watched.look_at = watched.number + watched.every - turn - (0 if timed else 2)


def _ask(watched, model):
    began, began_cpu = now(), cpu_time()
    data = model.logger._get_ddp_logging_data().ints_map
    cost = cpu_time() - began_cpu
    if watched.asked:
        number, time = watched.asked
        step = max(1, (began - time) // (watched.number - number))
        _ask_every(watched, cost * _PART_OF_STEP // step)
    watched.asked = watched.number, began
    iteration = data.get("iteration", -1)
    if iteration == watched.iteration:
        return  # no gradients were exchanged since
    watched.iteration = iteration
    total = int(data.get("backward_comm_time", 0))
    hidden = int(data.get("backward_compute_comm_overlap_time", 0))
    exposed = total - hidden
    if total > 0 and exposed >= 0:
        ring.emit(ring.DDP_COMM, watched.ended - exposed, watched.ended, total)


def _ask_every(watched, steps):
    every = 1
    while every < min(steps, _MOST_STEPS):
        every *= 2
    if every > 1 and watched.every == 1:
        ring.text("ddp_asked", "now and then")
    watched.every = every


def _watched_init(original):
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        try:
            _watch(self)
        except Exception as problem:
            ring.note_off("ddp", "%s: %s" % (type(problem).__name__, problem))

    return __init__


def _watch(model):
    kinds = {parameter.device.type for parameter in model.parameters()}
    if kinds != {"cpu"}:
        where = ",".join(sorted(kinds))
        ring.note_off("ddp", "DDP's timers wait for the device on %s, so they stay off" % where)
        return
    model._set_ddp_runtime_logging_sample_rate(_TIMED)
    _models.append(_Watched(model))
    ring.note_active("ddp")


def _fork_child():
    del _models[:]


ring.at_fork(_fork_child)


def patch(module):
    if wrap.replace(module.DistributedDataParallel, "__init__", _watched_init, "ddp"):
        training.before_backward.append(_before_backward)
        training.after_backward.append(_after_backward)
