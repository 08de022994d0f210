"""What `bedplate run` sees of a loader: waits for batches, how they were made, and its counters.

To the report a `Loader` is a loader as any other, with threads for workers: the hook's own numbering
and description of loaders are used, and one FETCH a batch tells the time and CPU time of making it.
Outside `bedplate run` nothing here does anything.
"""

import json
import sys
from time import monotonic_ns as now
from typing import Any

# Batches between two looks at the counters.
_EVERY = 16


class Wait:
    """A context manager around each wait of one iteration for a batch."""

    __slots__ = ("_loader", "_native", "_ring", "_arg", "_began", "_mark", "_waits", "_before")

    def __init__(self, loader: Any, native: Any) -> None:
        self._ring = None
        if "_bedplate_hook" not in sys.modules:
            return
        try:
            from _bedplate_hook import loader as loaders  # type: ignore[import-not-found]
            from _bedplate_hook import ring

            self._arg = (loaders._loader_id(loader) & 0xFFFFFF) << 8
        except Exception:
            return
        self._ring, self._native, self._waits = ring, native, 0
        self._before = native.times()

    def __enter__(self) -> None:
        if self._ring is not None:
            self._began = now()
            self._mark = self._ring.open_mark(self._ring.INPUT_WAIT, self._began, self._arg)

    def __exit__(self, *_: Any) -> None:
        ring = self._ring
        if ring is None:
            return
        ended = now()
        ring.close_mark(self._mark)
        ring.emit(ring.INPUT_WAIT, self._began, ended, self._arg)
        ring.set_role(ring.ROLE_RANK)
        self._waits += 1
        if self._waits % _EVERY == 0:
            self._tell_fetches(ended)

    def _tell_fetches(self, ended: int) -> None:
        """The batches made since the last time, as one FETCH each of the mean length."""
        times = self._native.times()
        made = times[0] - self._before[0]
        if made <= 0:
            return
        wall = (times[1] - self._before[1]) // made
        cpu = (times[3] - self._before[3]) // made // 1000
        self._before = times
        for _ in range(made):
            self._ring.emit(self._ring.FETCH, ended - wall, ended, cpu & 0xFFFFFFFF)

    def ended(self) -> None:
        """At the end of an epoch: what the loader's threads did, as a line of text."""
        if self._ring is None:
            return
        batches, make, read, decode, idle, waited = self._native.times()
        line = {
            "batches": batches,
            "make_ns": make,
            "read_ns": read,
            "decode_ns": decode,
            "idle_ns": idle,
            "wait_ns": waited,
        }
        self._ring.text("loader_times", json.dumps(line))
