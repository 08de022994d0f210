"""Packed shards written from Python."""

import json
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
    bfloat16 is given as uint16 bits. Use `bedplate data pack` to pack files in parallel.
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
        """One sample: a value for each column. ValueError when one does not fit its column."""
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
    if dtype == "str":
        return str(value).encode("utf-8", "surrogateescape")
    if dtype == "bytes":
        return value
    import numpy

    array = numpy.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    stored = "uint16" if dtype == "bfloat16" else dtype
    if array.dtype != stored:
        if array.ndim == 0 and not hasattr(value, "dtype"):  # a Python number
            array = _exactly(value, stored, column["name"])
        else:
            raise ValueError("column %s holds %s, the value is %s" % (column["name"], stored, array.dtype))
    shape = column["shape"]
    fits = len(shape) == array.ndim and all(n in (-1, m) for n, m in zip(shape, array.shape))
    if not fits:
        raise ValueError("column %s has the shape %s, the value %s" % (column["name"], shape, list(array.shape)))
    return numpy.ascontiguousarray(array).reshape(-1).view("uint8")


def _exactly(value: Any, dtype: str, name: str) -> Any:
    import numpy

    try:
        array = numpy.asarray(value, dtype=dtype)
        same = bool(array == value) or dtype.startswith("float")
    except (OverflowError, TypeError, ValueError):
        same = False
    if not same:
        raise ValueError("column %s: %r is no %s" % (name, value, dtype))
    return array
