"""Garbage collector pauses (kind GC), through gc.callbacks.

Young collections come thousands of times a second and take microseconds: only pauses from 50 us
on, and every full collection, become a record.
"""

import gc
from time import monotonic_ns as now

from . import ring

_WORTH_A_RECORD_NS = 50_000
_began = [0]


def _callback(phase, info):
    if phase == "start":
        _began[0] = now()
        return
    began = _began[0]
    ended = now()
    generation = info.get("generation", 0)
    if began and (ended - began >= _WORTH_A_RECORD_NS or generation == 2):
        # Claims nothing: a process that only collects garbage has nothing to tell.
        if ring.has_slot():
            ring.emit(ring.GC, began, ended, generation | info.get("collected", 0) << 8)


def install():
    if _callback not in gc.callbacks:
        gc.callbacks.append(_callback)
    ring.note_active("gc")
