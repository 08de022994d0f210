"""What `bedplate run` sees of a loader: waits for batches, how they were made, and its counters.

To the report a `Loader` is a loader as any other, with threads for workers: the hook's own numbering
and description of loaders are used, and one FETCH a batch tells the time and CPU time of making it.
What the loader, its caches and its remote stores count goes into the trace as growth (DATA), a few
times a second; what no counter can say is a line of text, `loader_data`.
Outside `bedplate run` nothing here does anything.
"""

import json
import os
import sys
from time import monotonic_ns as now
from typing import Any, Dict, Optional, Tuple

from .. import _native

# Between two looks at the batches, and between two at the counters: so many batches or so long,
# whichever ends first.
_EVERY = 16
_LOOK_NS = 500_000_000
_COUNT_NS = 500_000_000
# Lines of text become ever more seldom, for their room in the trace is small.
_LINE_NS = 1_000_000_000

# Numbers of DATA's counters, as in src/probe/trace_format.h.
_LOADER, _CACHE, _REMOTE = 0, 7, 15
_MOST = (1 << 56) - 1

# What was told of each counter set of this process: two loaders may share a cache.
_told: Dict[Any, Tuple[int, ...]] = {}
# Of each loader's line of text: when the next is due, how long after that the one after it, what
# kept its cache from use, and what does not change.
_lines: Dict[Any, Tuple[int, int, str, Dict[str, Any]]] = {}


def _fork_child() -> None:
    _told.clear()
    _lines.clear()


os.register_at_fork(after_in_child=_fork_child)


class Wait:
    """A context manager around each wait of one iteration for a batch."""

    __slots__ = (
        *("_loader", "_native", "_ring", "_arg", "_key"),
        *("_began", "_mark", "_waits", "_looked", "_counted", "_before"),
    )

    def __init__(self, loader: Any, native: Any) -> None:
        self._ring: Any = None
        if "_bedplate_hook" not in sys.modules:
            return
        try:
            from _bedplate_hook import loader as loaders  # type: ignore[import-not-found]
            from _bedplate_hook import ring

            if not hasattr(ring, "DATA"):  # the hook of an older bedplate
                return
            number = loaders._loader_id(loader)
            self._arg = (number & 0xFFFFFF) << 8
            self._key = ("loader", number)
        except Exception:
            return
        self._ring, self._native, self._loader, self._waits = ring, native, loader, 0
        self._looked = self._counted = now()
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
        if self._waits % _EVERY == 0 or ended - self._looked >= _LOOK_NS:
            self._look(ended, ended - self._counted >= _COUNT_NS)

    def ended(self) -> None:
        """At the end of an epoch."""
        if self._ring is not None:
            self._look(now(), True)

    def _look(self, at: int, count: bool) -> None:
        try:
            self._tell_all(at, count)
        except Exception as problem:  # the job goes on without
            self._ring.note_off("bedplate.data", "%s: %s" % (type(problem).__name__, problem))
            self._ring = None

    def _tell_all(self, at: int, count: bool) -> None:
        self._looked = at
        times, before = self._native.times(), self._before
        made = times[0] - before[0]
        if made > 0:
            # The batches made since the last time, as one FETCH each of the mean length.
            self._before = times
            began = at - (times[1] - before[1]) // made
            cpu = (times[3] - before[3]) // made // 1000 & 0xFFFFFFFF
            emit, fetch = self._ring.emit, self._ring.FETCH
            for _ in range(made):
                emit(fetch, began, at, cpu)
        if not count:
            return
        self._counted = at
        _, make, read, decode, idle, waited, samples, size = times
        self._tell(at, _LOADER, self._key, (size, samples, make, read, decode, idle, waited))
        trouble = ""
        for cache, counters, why in self._native.caches():
            self._tell(at, _CACHE, ("cache", cache), counters)
            trouble = trouble or why
        *remote, slowest = _native.remote_counters()
        self._tell(at, _REMOTE, "remote", tuple(remote))
        self._tell_line(at, trouble, slowest)

    def _tell(self, at: int, first: int, key: Any, counters: Tuple[int, ...]) -> None:
        for number, grown in enumerate(self._growth(key, counters), first):
            if grown > 0:
                self._ring.emit(self._ring.DATA, at, at, number << 56 | min(grown, _MOST))

    @staticmethod
    def _growth(key: Any, counters: Tuple[int, ...]) -> Tuple[int, ...]:
        before = _told.get(key)
        _told[key] = counters
        if before is None or any(new < old for new, old in zip(counters, before)):
            return counters  # another loader or cache of the same number: it began at 0
        return tuple(new - old for new, old in zip(counters, before))

    def _tell_line(self, at: int, trouble: str, slowest: int) -> None:
        if self._key not in _lines:
            _lines[self._key] = (at, _LINE_NS, "", _describe(self._loader, self._native))
        due, gap, before, described = _lines[self._key]
        if at < due and trouble == before:
            return
        _lines[self._key] = (at + gap, 2 * gap, trouble, described)
        line = dict(described, trouble=trouble[:500], remote_p99_ns=slowest)
        self._ring.text("loader_data", json.dumps(line))


def _describe(loader: Any, native: Any) -> Dict[str, Any]:
    """The data sets of a loader: where they lie, without what may be secret, and how large."""
    sets = [part for part, _ in loader._parts]
    cache: Optional[str] = next((one.cache for one in sets if one.cache), None)
    return {
        "url": sets[0].urls[0].partition("?")[0][:200] if sets[0].urls else "",
        "cache": cache,
        "window": native.window_bytes(),
        "bytes": sum(one.stored_bytes for one in sets),
        "samples": sum(len(one) for one in sets),
    }
