"""DistributedDataParallel's own all-reduce, which runs in C++ where no Python hook sees it.

DDP can time itself; its logging data then hold the last iteration's communication time and how
much of it the backward pass hid. What was not hidden is the record (DDP_COMM). The figures of an
iteration are complete when the next forward has begun, so they are read before the next backward.

Reading them costs tens of microseconds. The hook keeps that below 0.5 % of the time between two
backward passes by asking only every n-th time when steps are short. On CUDA the same switch would
make DDP wait for its timing events, so there it stays off and the report says so.
"""

import weakref
from time import monotonic_ns as now

from . import ring, training, wrap

_SHARE_OF_STEP = 200  # one 200th
_models = []


class _Watched:
    def __init__(self, model):
        self.model = weakref.ref(model)
        self.iteration = -1
        self.every = 1
        self.skipped = 0
        self.last_asked = 0
        self.backward_ended = 0


def _before_backward():
    for watched in list(_models):
        try:
            _ask(watched)
        except Exception as problem:
            _models.remove(watched)
            ring.note_off("ddp", "%s: %s" % (type(problem).__name__, problem))


def _after_backward(_began, ended):
    for watched in _models:
        watched.backward_ended = ended


def _ask(watched):
    model = watched.model()
    if model is None:
        _models.remove(watched)
        return
    watched.skipped += 1
    if not watched.backward_ended or watched.skipped < watched.every:
        return
    began = now()
    data = model._get_ddp_logging_data()
    cost = now() - began
    if watched.last_asked:
        step = max(1, (began - watched.last_asked) // watched.skipped)
        watched.every = min(1000, 1 + cost * _SHARE_OF_STEP // step)
    watched.last_asked, watched.skipped = began, 0
    iteration = data.get("iteration", -1)
    if iteration == watched.iteration:
        return  # no gradients were exchanged since (no_sync)
    watched.iteration = iteration
    total = int(data.get("backward_comm_time", 0))
    hidden = int(data.get("backward_compute_comm_overlap_time", 0))
    exposed = total - hidden
    if total > 0 and exposed >= 0:
        ended = watched.backward_ended
        ring.emit(ring.DDP_COMM, ended - exposed, ended, total)


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
    model._set_ddp_runtime_logging_sample_rate(1)
    _models.append(_Watched(model))
    ring.note_active("ddp")


def _fork_child():
    del _models[:]


ring.at_fork(_fork_child)


def patch(module):
    if wrap.replace(module.DistributedDataParallel, "__init__", _watched_init, "ddp"):
        training.before_backward.append(_before_backward)
        training.after_backward.append(_after_backward)
