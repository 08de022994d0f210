"""Waiting for batches (INPUT_WAIT) and making them (FETCH).

INPUT_WAIT is what the training loop sees: `next()` of a DataLoader's iterator, with one or many
processes behind it. FETCH is what the producer does, in a worker or in the training process
itself, with the CPU time of its thread, so that blocked time can be told from busy time.
"""

import json
import resource
import threading
import weakref
from time import monotonic_ns as now
from time import thread_time_ns as cpu_time

from . import files, ring, wrap

# arg of INPUT_WAIT: bit 0 evaluation (gradients disabled), bit 1 the iterator was exhausted,
# bit 2 making the iterator (starting workers) rather than waiting for a batch, bits 8..31 loader.
_EVALUATION, _EXHAUSTED, _STARTING = 1, 2, 4

_thread = threading.local()
_loader_ids = weakref.WeakKeyDictionary()
_count = [0]
_torch = []


def _fork_child():
    global _producer, _thread
    _thread = threading.local()
    _producer = _Producer()


ring.at_fork(_fork_child)


def _grad_disabled():
    if not _torch:
        import torch

        _torch.append(torch.is_grad_enabled)
    return 0 if _torch[0]() else _EVALUATION


def _loader_id(loader):
    try:
        return _loader_ids[loader]
    except (KeyError, TypeError):
        pass
    _count[0] += 1
    number = _count[0]
    try:
        _loader_ids[loader] = number
    except TypeError:
        pass
    if ring.claim() is not None and number <= 64:
        ring.text("loader", json.dumps(_describe(loader, number)))
    return number


def _describe(loader, number):
    def plain(name):
        value = getattr(loader, name, None)
        return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)[:80]

    batch_size = plain("batch_size")
    if batch_size is None:  # a batch_sampler decides
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
        batch_size = size if isinstance(size, int) else None
    dataset = type(getattr(loader, "dataset", None))
    context = getattr(loader, "multiprocessing_context", None)
    start = getattr(context, "get_start_method", None)
    return {
        "id": number,
        "num_workers": plain("num_workers"),
        "batch_size": batch_size,
        "prefetch_factor": plain("prefetch_factor"),
        "pin_memory": plain("pin_memory"),
        "persistent": plain("persistent_workers"),
        "dataset": "%s.%s" % (dataset.__module__, dataset.__qualname__),
        "iterable": plain("_dataset_kind") == 1,
        "start_method": start() if callable(start) else None,
    }


def _waiting(call, arg, loop):
    """Runs `call` as one INPUT_WAIT, unless the thread already waits for an outer loader."""
    if getattr(_thread, "waiting", False):
        return call()
    _thread.waiting = True
    began = now()
    mark = ring.open_mark(ring.INPUT_WAIT, began, arg)
    try:
        return call()
    except StopIteration:
        arg |= _EXHAUSTED
        raise
    finally:
        ended = now()
        _thread.waiting = False
        ring.close_mark(mark)
        ring.emit(ring.INPUT_WAIT, began, ended, arg)
        if loop:
            ring.set_role(ring.ROLE_RANK)


wrap.transparent(_waiting)


def _timed_next(original):
    def __next__(self):
        if getattr(_thread, "waiting", False):
            return original(self)
        arg = _grad_disabled() | (self.__dict__.get("_bedplate_loader", 0) & 0xFFFFFF) << 8
        _thread.waiting = True
        began = now()
        mark = ring.open_mark(ring.INPUT_WAIT, began, arg)
        try:
            return original(self)
        except StopIteration:
            arg |= _EXHAUSTED
            raise
        finally:
            ended = now()
            _thread.waiting = False
            ring.close_mark(mark)
            ring.emit(ring.INPUT_WAIT, began, ended, arg)

    return __next__


def _noted_init(original):
    def __init__(self, loader, *args, **kwargs):
        try:
            number = self._bedplate_loader = _loader_id(loader)
        except Exception:
            number = 0
        arg = _grad_disabled() | _STARTING | (number & 0xFFFFFF) << 8
        return _waiting(lambda: original(self, loader, *args, **kwargs), arg, True)

    return __init__


def patch_dataloader(module):
    iterators = [
        module._BaseDataLoaderIter,
        module._SingleProcessDataLoaderIter,
        module._MultiProcessingDataLoaderIter,
    ]
    _patch_iterators(iterators)


def patch_stateful_dataloader(module):
    names = [name for name in vars(module) if name.endswith("DataLoaderIter")]
    _patch_iterators([vars(module)[name] for name in names])


def _patch_iterators(classes):
    for class_ in classes:
        if "__next__" in class_.__dict__:
            wrap.replace(class_, "__next__", _timed_next, "loader")
        if "__init__" in class_.__dict__:
            wrap.replace(class_, "__init__", _noted_init, "loader")


# --- producers ------------------------------------------------------------------------------


class _Producer(threading.local):
    """How a thread that makes batches shares its CPU time between itself and the kernel."""

    LOOK_AGAIN = 50_000_000  # ns; getrusage is as old as the last tick, and costs more than a record

    def __init__(self):
        self.fetching = False
        self.looked = 0
        self.user = self.system = self.system_share = 0.0

    def look(self, at):
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        user, system = usage.ru_utime - self.user, usage.ru_stime - self.system
        if user + system > 0:
            self.system_share = system / (user + system)
        self.looked, self.user, self.system = at, usage.ru_utime, usage.ru_stime


_producer = _Producer()


def _timed_fetch(original):
    def fetch(self, possibly_batched_index):
        producer = _producer
        if producer.fetching:
            return original(self, possibly_batched_index)
        producer.fetching = True
        files.ensure()
        files.counting = True
        began_cpu = cpu_time()
        began = now()
        if not producer.looked:
            producer.look(began)
        batch = True
        try:
            return original(self, possibly_batched_index)
        except StopIteration:
            batch = False
            raise
        finally:
            ended = now()
            cpu = (cpu_time() - began_cpu) // 1000
            producer.fetching = False
            files.counting = False
            if batch:
                if ended - producer.looked > producer.LOOK_AGAIN:
                    producer.look(ended)
                system = int(cpu * producer.system_share)
                arg = (cpu - system) & 0xFFFFFFFF | (system & 0xFFFFFFFF) << 32
                ring.emit(ring.FETCH, began, ended, arg)
            if files.opened:
                files.flush(ended)

    return fetch


def patch_fetch(module):
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        class_ = getattr(module, name, None)
        if class_ is not None:
            wrap.replace(class_, "fetch", _timed_fetch, "fetch")


def _marked_worker_loop(original):
    def _worker_loop(*args, **kwargs):
        try:
            ring.set_role(ring.ROLE_WORKER)
        except Exception:
            pass
        try:
            return original(*args, **kwargs)
        finally:
            ring.close()

    return _worker_loop


def patch_worker(module):
    wrap.replace(module, "_worker_loop", _marked_worker_loop, "worker")
