"""Shards as one row of samples."""

import math
import warnings
from os import PathLike, fsencode, fspath
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from .. import _native

_STORAGE = {"anonymous", "endpoint", "region", "instance_profile", "direct"}

Urls = Union[str, "PathLike[str]", Sequence[Union[str, "PathLike[str]"]]]


class Dataset:
    """The samples of shards, wherever they lie: a map-style dataset, and what a `Loader` reads.

        Dataset("train")                                    # all shards below a folder
        Dataset("s3://bucket/train-{000000..001023}.tar")   # braces, as in a shell
        Dataset(["a.shard", "https://host/b.shard"])

    urls      names of shards, patterns, or folders (in a bucket: prefixes that end in "/")
    format    "packed", "webdataset", "mds", "tfrecord", "megatron" or "files"; None: by the names
    recover   take the whole samples of a shard whose end is missing, in place of an error
    cache     where copies of remote shards are kept: "/nvme/cache:200GB", "memory:4GB", or
              "memory:4GB,/nvme/cache:200GB" (docs/cache.md); shared with other processes and jobs
    on_bad    "raise", "skip:N" or "refetch": what loaders do with a damaged sample; see `Loader`
    timeout   seconds for one read, and to open one shard
    storage   {"anonymous": True}: no credentials for a public bucket; {"endpoint": url}, {"region":
              name}, {"instance_profile": True}: in place of AWS_ENDPOINT_URL_S3, AWS_REGION, …
              (docs/data.md lists all). {"direct": True}: files are read past the page cache
              (O_DIRECT), which pays for sets far larger than memory

    `dataset[i]` is a dict: bytes, str, or NumPy arrays (copies), and "__key__" where the format
    names its samples. Opening reads indices, never samples. Thread-safe; usable after fork() and,
    by pickling, in spawned processes.

    Raises FileNotFoundError, PermissionError, TimeoutError, ConnectionError, OSError, ValueError
    for names that make no sense, and CorruptError for shards that are damaged.
    """

    def __init__(
        self,
        urls: Urls,
        *,
        format: "str | None" = None,
        recover: bool = False,
        cache: "str | None" = None,
        on_bad: str = "raise",
        timeout: float = 60.0,
        storage: Optional[Mapping[str, Union[str, bool]]] = None,
    ) -> None:
        one = isinstance(urls, (str, PathLike))
        self.urls: List[str] = [_url(u) for u in ([urls] if one else urls)]  # type: ignore[list-item]
        self.format = format
        self.recover = bool(recover)
        self.cache = cache
        self.on_bad = on_bad
        self.timeout = seconds("timeout", timeout)
        self.storage = dict(storage or {})
        unknown = set(self.storage) - _STORAGE
        if unknown:
            raise ValueError("storage has no option %s" % ", ".join(sorted(map(repr, unknown))))
        parse_on_bad(on_bad)
        self._native = _native.Dataset.open(
            [fsencode(u) for u in self.urls],
            format or "",
            self.recover,
            self.timeout,
            cache or "",
            self.storage,
        )
        for note in self._native.notes():
            warnings.warn(note, stacklevel=2)

    def __len__(self) -> int:
        return int(self._native.samples)

    def __getitem__(self, index: int) -> Dict[str, Any]:
        length = len(self)
        at = index + length if index < 0 else index
        if not 0 <= at < length:
            raise IndexError("sample %d of %d" % (index, length))
        return dict(self._native.get(at, self.timeout))

    def __getitems__(self, indices: Sequence[int]) -> List[Dict[str, Any]]:
        return [self[i] for i in indices]

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        for i in range(len(self)):
            yield self[i]

    @property
    def fingerprint(self) -> str:
        """Of the shards' names, sizes and numbers of samples: 16 hexadecimal digits."""
        return "%016x" % self._native.fingerprint

    @property
    def stored_bytes(self) -> int:
        """Of all shards, as they lie there."""
        return int(self._native.stored_bytes)

    def shards(self) -> List[Dict[str, Any]]:
        """Key, bytes, format, number of the first sample and number of samples of each shard."""
        return list(self._native.shards())

    def cache_counters(self) -> "Dict[str, int] | None":
        """What the cache did in this process: hits, misses, origin_bytes, evictions, …"""
        counters = self._native.cache_counters()
        return None if counters is None else dict(counters)

    def __repr__(self) -> str:
        shards = len(self._native.shards())
        return "Dataset(%r: %d samples in %d shards)" % (self.urls, len(self), shards)

    def __reduce__(self) -> Any:
        options = {
            "format": self.format,
            "recover": self.recover,
            "cache": self.cache,
            "on_bad": self.on_bad,
            "timeout": self.timeout,
            "storage": self.storage,
        }
        return _open, (self.urls, options)


def _open(urls: List[str], options: Dict[str, Any]) -> Dataset:
    return Dataset(urls, **options)


def _url(value: "Union[str, PathLike[str]]") -> str:
    text = fspath(value)
    if not isinstance(text, str):
        raise TypeError("the URL of a shard is text, not %r" % (value,))
    return text


def seconds(name: str, value: float) -> float:
    """`value` as a time that can be waited for, or ValueError."""
    number = float(value)
    if not math.isfinite(number) or not 0 < number <= 1e6:
        raise ValueError("%s is %r; it must be above 0 and at most 1,000,000 seconds" % (name, value))
    return number


def parse_on_bad(text: str) -> "tuple[str, int]":
    """("raise" | "skip" | "refetch", most samples to skip)."""
    name, _, most = text.partition(":")
    if name == "skip" and most.isdecimal() and len(most) < 19:
        return name, int(most)
    if text in ("raise", "refetch"):
        return text, 0
    raise ValueError('on_bad is "raise", "refetch" or "skip:N" with a limit N, not %r' % (text,))
