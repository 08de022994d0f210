"""Batches, made ahead of time by C++ threads."""

import atexit
import importlib.util
import json
import operator
import os
import sys
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Union

from .. import _native
from . import report
from .dataset import Dataset, parse_on_bad, seconds
from .fields import Spec
from .mix import Mix

_WORTH_A_REQUEST = 1 << 20  # bytes of a sample

_open_loaders: "weakref.WeakSet[Any]" = weakref.WeakSet()
_exiting = False
# Seconds that the end of the process waits for a decode function.
_LAST_PATIENCE = 5.0


class Loader:
    """Batches of a `Dataset` or a `Mix` for one rank.

    batch_size   samples of one rank
    seed         of the order and of all that is random in pictures
    shuffle      "block": blocks of storage order (4 MiB), mixed within a window (1 GiB): shuffled
                 well and read nearly in sequence; "full": a full permutation; False: storage order.
                 True is "block". docs/shuffle.md measures both.
    window       samples that are mixed with each other, in place of 1 GiB of them
    sampler      sample numbers for this rank in place of shuffle: a torch sampler or any other
                 iterable, asked anew for each epoch. Resuming counts what it gave: it must give
                 the same again. rank and world_size are then its own affair.
    fields       {"name": spec}: what becomes of each field; None: all of them, as they are
    decode       a function sample dict → anything, called in loader threads in place of `fields`;
                 a batch is then `collate(list of results)`. Threads share Python's lock: it pays
                 where the work is done in C (NumPy, Pillow, torch). sample["__seed__"] follows from
                 seed, epoch and position: draw from it what is to be random, and it is the same for
                 any number of ranks and threads
    collate      torch's default_collate when there is torch, else the list itself
    rank, world_size   None: of torch.distributed, or RANK and WORLD_SIZE, or 0 of 1
    tail         "pad": full batches, the first samples of the epoch once more; "drop": full
                 batches; "uneven": shorter ones, which is what an evaluation wants. Every rank has
                 the same number of batches.
    threads      None: what the processors of this rank suggest, 1 to 8
    prefetch     bytes of batches that are made ahead
    keep_window  memory for the samples that are mixed with each other, shared by the ranks of a
                 machine, so that neighbours in remote shards are read together and not each sample
                 alone. None: where samples are small and remote, the data set has no cache, and
                 four times as much memory is free; True; False. Not for a Mix or a sampler=
    on_bad       None: as the data set says; "raise"; "skip:N": its row is a copy of another one of
                 the batch, counted in stats(), an error beyond N; "refetch": read again, past
                 caches, then raise. Bad is what cannot be read, has a wrong checksum, or cannot be
                 decoded, an exception of decode= included
    verify       checksums: "first" (at the first reading), "always", "never"
    as_          "torch", "numpy"; None: torch when it is installed
    timeout      seconds for the reads of a batch, and for waiting for one beyond them

    Iterating goes through one epoch, or through what is left of it after load_state_dict(); the
    next iteration begins the next epoch, also when this one was left early. Batches are dicts of
    tensors that view memory of the loader: it is used again only after they are gone.

    Memory: (batches ahead) × (bytes of a batch), which `prefetch` bounds, and the samples of one
    batch a thread as they lie in shards, plus what you keep; and stats()["window"]["bytes"] a
    machine where a window is kept.

    Of a `Mix`, batches have the place of each row's data set as "__source__".

    One consumer, and one iteration at a time. In a child after fork(), and after unpickling, it goes on with threads of its own.
    """

    def __init__(
        self,
        dataset: Union[Dataset, Mix],
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: Union[bool, str] = "block",
        window: Optional[int] = None,
        sampler: Optional[Iterable[int]] = None,
        fields: Optional[Mapping[str, Optional[Spec]]] = None,
        decode: Optional[Callable[[Dict[str, Any]], Any]] = None,
        collate: Optional[Callable[[List[Any]], Any]] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        tail: str = "pad",
        threads: Optional[int] = None,
        prefetch: int = 256 << 20,
        keep_window: Optional[bool] = None,
        on_bad: Optional[str] = None,
        verify: str = "first",
        as_: Optional[str] = None,
        timeout: float = 60.0,
    ) -> None:
        if not isinstance(dataset, (Dataset, Mix)):
            raise TypeError(
                "Loader() takes a Dataset or a Mix, not %s; of a Subset, give its data set and "
                "sampler=subset.indices" % type(dataset).__name__
            )
        self.dataset = dataset
        self.batch_size = _whole("batch_size", batch_size, 1, 1 << 31)
        self._parts = dataset.parts if isinstance(dataset, Mix) else [(dataset, 1.0)]
        if sampler is not None:
            if isinstance(dataset, Mix) or rank is not None or world_size is not None:
                raise ValueError("a sampler is for one data set and says itself what this rank takes")
            rank, world_size, keep_window = 0, 1, False
        self._sampler = sampler
        if rank is None or world_size is None:
            found = _rank_and_world_size()
            rank = found[0] if rank is None else rank
            world_size = found[1] if world_size is None else world_size
        self.rank = _whole("rank", rank, 0, 1 << 31)
        self.world_size = _whole("world_size", world_size, 1, 1 << 31)
        _one_of("tail", tail, ("pad", "drop", "uneven"))
        _one_of("verify", verify, ("first", "always", "never"))
        if as_ is not None:
            _one_of("as_", as_, ("torch", "numpy"))
        if decode is not None and fields is not None:
            raise ValueError("Loader() takes fields= or decode=, not both")
        self._arrays = as_ or ("torch" if importlib.util.find_spec("torch") else "numpy")
        self._collate = collate
        self._decode = decode
        policy, most_skipped = parse_on_bad(on_bad or self._parts[0][0].on_bad)
        self._order = {
            "seed": _whole("seed", seed, 0, (1 << 64) - 1),
            "lanes": 1,
            "epoch_samples": getattr(dataset, "epoch", None) or 0,
            **_block_and_window(self._parts, shuffle, window),
        }
        self._options = {
            "batch_size": self.batch_size,
            "rank": self.rank,
            "world_size": self.world_size,
            "tail": tail,
            "threads": _default_threads() if threads is None else _whole("threads", threads, 1, 256),
            "prefetch_bytes": _whole("prefetch", prefetch, 0, 1 << 46),
            "keep_window": None if keep_window is None else bool(keep_window),
            "fields": [_field(name, spec) for name, spec in (fields or {}).items()],
            "on_bad": policy,
            "most_skipped": most_skipped,
            "verify": verify,
            "timeout": seconds("timeout", timeout),
            "decode": decode,
        }
        self.num_workers = self._options["threads"]  # as reports call them
        self._native: Any = None
        self._process = 0
        self._state: Optional[str] = None  # to begin with, when there is no native loader yet
        self._started = False  # an iteration of the epoch that the native loader is in has begun
        self._sampled_from: Optional[Tuple[int, int]] = None  # with sampler=: epoch, consumed
        self._iterations = 0
        self._epoch_samples = len(dataset)
        if tail == "drop" and sampler is None and len(self) == 0:
            raise ValueError(
                'tail="drop" leaves no batch: %d samples are fewer than a batch of %d for %d ranks'
                % (self._epoch_samples, self.batch_size, self.world_size)
            )
        in_storage_order = shuffle is False and sampler is None
        if self._open().stats()["window"] is None and not in_storage_order:
            _warn_of_requests(part for part, _ in self._parts)

    # --- iteration ----------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        native = self._open()
        if self._sampler is not None:
            self._begin_with_sampler(native)
        elif self._started:
            native.begin_epoch(json.loads(native.state())["epoch"] + 1)
        self._started = True
        arrays = _native.Arrays.TORCH if self._arrays == "torch" else _native.Arrays.NUMPY
        if self._arrays == "torch":
            import torch  # noqa: F401  (the first batch should not wait for it)
        process, wait = self._process, self._options["timeout"] + 60.0
        self._iterations += 1
        iteration = self._iterations
        seen = report.Wait(self, native)
        while True:
            if process != os.getpid():
                raise RuntimeError("this iteration began in another process; begin a new one")
            if iteration != self._iterations:
                raise RuntimeError("another iteration of this loader has begun; this one is over")
            with seen:
                batch = native.next(arrays, wait)
            if batch is None:
                seen.ended()
                return
            if self._decode is not None:
                batch = (self._collate or _default_collate(self._arrays))(batch)
            yield batch

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        batch = self.batch_size * self.world_size
        samples = self._epoch_samples
        if self._sampler is not None:
            samples = len(self._sampler)  # type: ignore[arg-type]
        if self._options["tail"] == "drop":
            return samples // batch
        return -(-samples // batch)

    def _begin_with_sampler(self, native: Any) -> None:
        state = json.loads(native.state())
        epoch, consumed = self._sampled_from or (state["epoch"], state["consumed"])
        self._sampled_from = None
        samples = [int(i) for i in self._sampler]  # type: ignore[union-attr]
        if self._started or (samples and consumed >= len(samples)):
            epoch, consumed = epoch + 1, 0
        try:
            native.begin_with(samples, epoch, consumed)
        except TypeError:
            raise ValueError("the sampler gave a number beyond 2^63") from None

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, from its beginning."""
        self._open().begin_epoch(_whole("epoch", epoch, 0, (1 << 40) - 1))
        self._sampled_from = None
        self._started = False

    # --- state --------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """Where the epoch stands, after the batches that were handed over: below 200 bytes as JSON.

        The same on every rank.
        """
        state = dict(json.loads(self._open().state()))
        if self._sampled_from is not None:
            state["epoch"], state["consumed"] = self._sampled_from
        return state

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on after `state`, exactly, with any world size, batch size and number of threads.

        ValueError when it is of other data, or of another seed, shuffle, window or mix.
        """
        native = self._open()
        if self._sampler is None:
            native.begin(json.dumps(state))
        else:  # how long its epochs are, the sampler says when it is asked
            native.begin(json.dumps({**state, "consumed": 0}))
            self._sampled_from = (int(state["epoch"]), int(state["consumed"]))
        self._started = False

    def stats(self) -> Dict[str, Any]:
        """Counters since the loader was made.

        batches, samples, bytes; make_ns (threads make batches), of that read_ns (they wait for
        stores) and check_ns (checksums); decode_ns (CPU time of copying and decoding); idle_ns
        (threads wait for the consumer), wait_ns (the consumer waits for batches); skipped, refetched, bad (the first hundred: sample, what was wrong); ahead; window (None, or
        what its memory did in this process: bytes that it may take, hits, misses, origin_reads, origin_bytes).
        """
        return dict(self._open().stats())

    def close(self) -> None:
        """Ends the threads and lets memory go that no batch holds. Iterating opens it again.

        TimeoutError when decode() does not return within `timeout` seconds: its thread is left.
        """
        if not self._close(self._options["timeout"]):
            raise TimeoutError("decode() did not return within %g s" % self._options["timeout"])

    def _close(self, patience: float) -> bool:
        if self._native is None or self._process != os.getpid():
            return True
        self._state = self._native.state()
        native, self._native = self._native, None
        return bool(native.close(patience))

    # --- processes ----------------------------------------------------------------------------

    def _open(self) -> Any:
        """The native loader of this process."""
        if self._native is not None and self._process == os.getpid():
            return self._native
        if _exiting:
            raise RuntimeError("the interpreter is about to end; no loader is opened any more")
        parts = [(dataset._native, weight) for dataset, weight in self._parts]
        native = _native.Loader(parts, self._order, self._options)
        if self._state is not None:
            native.begin(self._state)
        self._native, self._process = native, os.getpid()
        _open_loaders.add(self)
        return native

    def __getstate__(self) -> Dict[str, Any]:
        state = self.__dict__.copy()
        state["_state"] = self._open().state()
        state["_native"], state["_process"] = None, 0
        return state

    def __repr__(self) -> str:
        return "Loader(%r, batch_size=%d, rank %d of %d)" % (
            self.dataset,
            self.batch_size,
            self.rank,
            self.world_size,
        )


def _before_fork() -> None:
    # The child cannot ask the native loader: a thread that it does not have may hold its lock.
    for loader in list(_open_loaders):
        if loader._native is not None and loader._process == os.getpid():
            loader._state = loader._native.state()


os.register_at_fork(before=_before_fork)


@atexit.register
def _close_all() -> None:
    # Before the interpreter goes: threads may be about to call decode().
    global _exiting
    _exiting = True
    ended = all([loader._close(_LAST_PATIENCE) for loader in list(_open_loaders)])
    # Those that were closed before may have threads that have not come back from decode() yet.
    # From here on no thread of theirs enters Python, whose end would kill it.
    if not (_native.end_turns(_LAST_PATIENCE if ended else 0) and ended):
        print(
            "bedplate: decode() has not returned for %g s; the process ends without it" % _LAST_PATIENCE,
            file=sys.stderr,
        )


def _whole(name: str, value: Any, least: int, most: int) -> int:
    """`value` as an int, or a ValueError that says what it must be."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError("%s is a whole number, not %r" % (name, value)) from None
    if not least <= number <= most:
        raise ValueError("%s is %d; it must be %d to %d" % (name, number, least, most))
    return number


def _default_collate(arrays: str) -> Callable[[List[Any]], Any]:
    if arrays == "torch":
        from torch.utils.data import default_collate

        return default_collate  # type: ignore[no-any-return]
    return list


def _one_of(name: str, value: str, choices: Tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError("%s is one of %s, not %r" % (name, ", ".join(choices), value))


def _field(name: str, spec: Optional[Spec]) -> Dict[str, Any]:
    if spec is None:
        spec = Spec(kind="as_is")
    if not isinstance(spec, Spec):
        raise TypeError("fields[%r] is a spec such as image(224, 224) or None, not %r" % (name, spec))
    return spec.options(name, name.split("|")[0])


def _rank_and_world_size() -> Tuple[int, int]:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _default_threads() -> int:
    """A rank's part of the processors that it may use."""
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(8, max(1, len(os.sched_getaffinity(0)) // max(1, ranks_here)))


def _warn_of_requests(datasets: Iterable[Dataset]) -> None:
    for dataset in datasets:
        remote = [u for u in dataset.urls if u.startswith(("s3://", "http://", "https://"))]
        if not remote or dataset.cache or len(dataset) == 0:
            continue
        if dataset.stored_bytes / len(dataset) < _WORTH_A_REQUEST:
            warnings.warn(
                "%s has no cache, and no window of it is kept in memory: each of its shuffled samples is a "
                'request of its own. With Dataset(…, cache="/nvme/cache:200GB") neighbours are read '
                "together (docs/cache.md)" % remote[0],
                stacklevel=3,
            )


def _block_and_window(
    parts: List[Tuple[Dataset, float]], shuffle: Union[bool, str], window: Optional[int]
) -> Dict[str, int]:
    most = max(len(dataset) for dataset, _ in parts)
    if shuffle is False:
        if window is not None:
            raise ValueError("window= shuffles; with shuffle=False there is nothing for it to do")
        return {"block": max(1, most), "window": 1}
    if shuffle == "full":
        if window is not None:
            raise ValueError('shuffle="full" mixes all samples; window= would limit that')
        return {"block": 1, "window": 1}
    if shuffle not in (True, "block"):
        raise ValueError('shuffle is "block", "full", True or False, not %r' % (shuffle,))
    samples = sum(len(dataset) for dataset, _ in parts)
    stored = sum(dataset.stored_bytes for dataset, _ in parts)
    block, usual_window = _native.block_shuffle(stored, samples)
    if window is not None:
        window = _whole("window", window, 1, 1 << 62)
    return {"block": block, "window": usual_window if window is None else window}
