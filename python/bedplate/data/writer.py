"""Packed shards written from Python."""

import json
import math
import numbers
from os import PathLike, fspath
from types import TracebackType
from typing import Any, Mapping, Optional, Sequence, Tuple, Type, Union

from .. import _native
from .dtypes import COLUMNS

# "bytes" and "str" have no shape; None as the first dimension: any length.
Column = Union[str, Tuple[str, Sequence[Optional[int]]]]


class ShardWriter:
    """Writes one packed shard (docs/formats.md): it appears whole when the block ends, or not at all.

        with ShardWriter("train/000000.shard", {"tokens": ("uint16", [2048]), "text": "str"}) as out:
            out.write(tokens=array, text="…")

    columns     {name: dtype} for one number, bytes or str; {name: (dtype, shape)} for arrays, where
                the first dimension may be None: any length
    overwrite   replace a shard that is there; else FileExistsError

    Arrays must be of the dtype already and contiguous: nothing is converted, so nothing is lost.
    bfloat16 is given as uint16 bits. Python numbers are taken when the dtype holds them; floating
    point numbers are rounded. After fork() the shard stays the parent's. Use `bedplate data pack` to pack files in parallel.
    """

    def __init__(
        self,
        url: "Union[str, PathLike[str]]",
        columns: Mapping[str, Column],
        *,
        overwrite: bool = False,
    ) -> None:
        self._columns = [_column(name, column) for name, column in columns.items()]
        schema = json.dumps({"columns": [column for column, _ in self._columns]})
        policy = "replace" if overwrite else "refuse"
        self._native = _native.PackedWriter(fspath(url), schema, policy)

    def write(self, **values: Any) -> None:
        """One sample: a value for each column.

        TypeError when one is of another type than its column, ValueError when it does not fit.
        """
        names = [column["name"] for column, _ in self._columns]
        if set(values) != set(names):
            raise ValueError("a sample has %s, not %s" % (", ".join(names), ", ".join(values)))
        self._native.add([_bytes(values[column["name"]], column, dtype) for column, dtype in self._columns])

    def close(self) -> int:
        """Makes the shard appear, durably; its size in bytes."""
        return int(self._native.finish())

    def __len__(self) -> int:
        return int(self._native.records())

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._native.abandon()


def _column(name: str, column: Column) -> "Tuple[dict[str, Any], str]":
    dtype, shape = (column, []) if isinstance(column, str) else column
    if dtype not in COLUMNS:
        raise ValueError("column %s: a dtype is one of %s, not %r" % (name, ", ".join(COLUMNS), dtype))
    return {
        "name": name,
        "dtype": COLUMNS[dtype],
        "shape": [-1 if n is None else int(n) for n in shape],
    }, dtype


def _bytes(value: Any, column: "dict[str, Any]", dtype: str) -> Any:
    name = column["name"]
    if dtype == "str":
        if not isinstance(value, str):
            raise TypeError("column %s holds str, the value is %r" % (name, value))
        return value.encode("utf-8", "surrogateescape")
    if dtype == "bytes":
        if isinstance(value, str):
            raise TypeError("column %s holds bytes, the value is the str %r: encode it" % (name, value))
        try:
            return memoryview(value)
        except TypeError:
            raise TypeError("column %s holds bytes, the value is %r" % (name, value)) from None
    import numpy

    array = numpy.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    stored = "uint16" if dtype == "bfloat16" else dtype
    if array.dtype != stored:
        if array.ndim == 0 and not hasattr(value, "dtype"):
            array = _exactly(value, stored, name)
        else:
            raise ValueError("column %s holds %s, the value is %s" % (name, stored, array.dtype))
    shape = column["shape"]
    fits = len(shape) == array.ndim and all(n in (-1, m) for n, m in zip(shape, array.shape))
    if not fits:
        raise ValueError("column %s has the shape %s, the value %s" % (name, shape, list(array.shape)))
    return numpy.ascontiguousarray(array).reshape(-1).view("uint8")


def _exactly(value: Any, dtype: str, name: str) -> Any:
    """A Python number as an array; floating point numbers are rounded, but not to infinity."""
    import numpy

    if not isinstance(value, numbers.Real):
        raise TypeError("column %s holds %s, the value is %r" % (name, dtype, value))
    try:
        with numpy.errstate(over="ignore"):
            array = numpy.asarray(value, dtype=dtype)
        if dtype.startswith("float"):
            same = bool(numpy.isfinite(array)) or not math.isfinite(value)
        else:
            same = bool(array == value)
    except (OverflowError, TypeError, ValueError):
        same = False
    if not same:
        raise ValueError("column %s: %r is no %s" % (name, value, dtype))
    return array
