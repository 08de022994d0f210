"""Arrow arrays as the columns of packed shards: which column a type becomes, and the bytes of its rows."""

import json
from math import prod
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .dtypes import COLUMNS
from .writer import Column, _column

# A dtype of bedplate.data, and a shape whose first dimension may be None.
Spec = Tuple[str, List[Optional[int]]]
Columns = Union[Sequence[str], Mapping[str, Column]]
# Bytes of all rows; where each begins and the last one ends, or None when all are equally large.
Rows = Tuple[Any, Any]


class ArrowColumn:
    """One column of a packed shard, made of Arrow arrays of one type.

    name    of the column
    spec    dtype and shape that it has in the shard
    fill    what stands for null: a value; in lists a number for each null in them, and a null list
            is then empty, or full of it where lists have a length. None: null is an error
    """

    def __init__(self, name: str, spec: Spec, fill: Any = None) -> None:
        self.name = name
        self.dtype, self.shape = spec
        self.fill = fill

    def schema(self) -> Dict[str, Any]:
        """As in a shard's schema (docs/formats.md)."""
        return _column(self.name, (self.dtype, self.shape))[0]

    def rows(self, array: Any, first_row: int) -> Rows:
        """The rows of an array. ValueError, naming column and row, for what the column cannot hold."""
        array = _plain(array)
        place = _Place(self.name, lambda i: first_row + i)
        if self.dtype in ("str", "bytes"):
            return self._texts(array, place)
        if self.shape and _is_list(array.type):
            return self._lists(array, place)
        block = self._block(array, self.shape, place)
        return _bytes(block), self._offsets(block)

    def _offsets(self, block: Any) -> Any:
        """Of rows that are equally large in a column where they need not be."""
        import numpy

        if not self.shape or self.shape[0] is not None:
            return None
        return numpy.arange(len(block) + 1, dtype=numpy.int64) * (block.nbytes // max(1, len(block)))

    def _texts(self, array: Any, place: "_Place") -> Rows:
        import numpy
        import pyarrow

        wanted = pyarrow.large_string() if self.dtype == "str" else pyarrow.large_binary()
        array = self._cast(self._filled(array, place), wanted, place)
        if self.dtype == "str":
            place.guard(lambda: array.validate(full=True), "text that is no UTF-8")
        _, offsets, data = array.buffers()
        at = numpy.frombuffer(offsets, dtype=numpy.int64)[array.offset : array.offset + len(array) + 1]
        size = int(at[-1] - at[0])
        return (data.slice(int(at[0]), size) if size else b""), at - at[0]

    def _lists(self, array: Any, place: "_Place") -> Rows:
        """Lists whose type gives them no length."""
        import numpy
        import pyarrow.compute as compute

        inner = [int(n) for n in self.shape[1:] if n is not None]
        lengths = compute.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        ends = numpy.zeros(len(array) + 1, dtype=numpy.int64)
        numpy.cumsum(lengths, out=ends[1:])
        nulls = self._nulls(array, place)
        within = place.within(lambda i: int(numpy.searchsorted(ends, i, "right")) - 1)
        block = self._block(array.flatten(), inner, within)  # leaves null lists out
        size = self.shape[0]
        if size is None:
            return _bytes(block), ends * (block.itemsize * prod(inner))
        wrong = numpy.flatnonzero((lengths != size) & ~nulls)
        if len(wrong):
            place.fail(int(wrong[0]), "a list of %d, where all have %d" % (lengths[wrong[0]], size))
        return _bytes(self._with_nulls(block.reshape((-1, size, *inner)), nulls)), None

    def _block(self, array: Any, shape: Sequence[Optional[int]], place: "_Place") -> Any:
        """Numbers as a NumPy array [len(array), *shape]; a first None is whatever the type says."""
        import pyarrow

        if not shape:
            return self._numbers(array, place)
        array = _plain(array)
        kind = array.type
        if not pyarrow.types.is_fixed_size_list(kind) or shape[0] not in (None, kind.list_size):
            place.fail(0, "%s, which has not the shape %s" % (kind, list(shape)))
        size = kind.list_size
        nulls = self._nulls(array, place)
        inner = self._block(array.flatten(), shape[1:], place.within(lambda i: i // size))
        return self._with_nulls(inner.reshape((-1, size, *inner.shape[1:])), nulls)

    def _numbers(self, array: Any, place: "_Place") -> Any:
        import numpy
        import pyarrow

        array = self._filled(_plain(array), place)
        array = self._cast(array, pyarrow.from_numpy_dtype(numpy.dtype(self.dtype)), place)
        return array.to_numpy(zero_copy_only=False)

    def _cast(self, array: Any, wanted: Any, place: "_Place") -> Any:
        if array.type == wanted:
            return array
        return place.guard(lambda: array.cast(wanted), "%s that is no %s" % (array.type, self.dtype))

    def _filled(self, array: Any, place: "_Place") -> Any:
        if not array.null_count:
            return array
        self._nulls(array, place)
        return place.guard(lambda: array.fill_null(self.fill), "null, for which %r cannot stand" % (self.fill,))

    def _nulls(self, array: Any, place: "_Place") -> Any:
        """Which values are null, as a NumPy array of bool."""
        import numpy

        nulls = array.is_null().to_numpy(zero_copy_only=False)
        if self.fill is None and array.null_count:
            place.fail(
                int(numpy.flatnonzero(nulls)[0]),
                "null, which shards do not have: give fill={%r: …} (--fill %s=…) for what is to stand for it"
                % (self.name, self.name),
            )
        return nulls

    def _with_nulls(self, block: Any, nulls: Any) -> Any:
        """Rows that were left out come back, full of `fill`."""
        import numpy

        if not nulls.any():
            return block
        out = numpy.full((len(nulls), *block.shape[1:]), self.fill, dtype=block.dtype)
        out[~nulls] = block
        return out


class _Place:
    """Where values are, for messages: `row` makes a row's number of a place among the values."""

    def __init__(self, name: str, row: Callable[[int], int]) -> None:
        self.name = name
        self.row = row

    def within(self, parent: Callable[[int], int]) -> "_Place":
        return _Place(self.name, lambda i: self.row(parent(i)))

    def fail(self, at: int, what: str) -> None:
        raise ValueError("column %s, row %d: %s" % (self.name, self.row(at), what))

    def guard(self, work: Callable[[], Any], what: str) -> Any:
        import pyarrow

        try:
            return work()
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, pyarrow.ArrowTypeError, TypeError) as problem:
            raise ValueError(
                "column %s, from row %d on: %s: %s" % (self.name, self.row(0), what, problem)
            ) from None


def columns_of(schema: Any, columns: Optional[Columns], fill: Mapping[str, Any]) -> List[ArrowColumn]:
    """The columns that an Arrow schema becomes, all or those that are named; a mapping says their types.

    ValueError for names that are not there and types that cannot be told; NotImplementedError for what no column holds.
    """
    wanted = list(schema.names if columns is None else columns)
    if not wanted:
        raise ValueError("there are no columns to import")
    for name in [*wanted, *fill]:
        if schema.names.count(name) != 1:
            raise ValueError(
                "there is %s column %r; there are %s"
                % ("no" if name not in schema.names else "more than one", name, ", ".join(schema.names))
            )
    for name in fill:
        if name not in wanted:
            raise ValueError("fill= is for column %r, which is not imported" % name)
    given = columns if isinstance(columns, Mapping) else {}
    return [
        ArrowColumn(name, _given(name, given[name]) if name in given else _natural(name, schema.field(name).type), fill.get(name))
        for name in wanted
    ]


def schema_json(columns: Sequence[ArrowColumn]) -> str:
    return json.dumps({"columns": [column.schema() for column in columns]})


def _given(name: str, column: Column) -> Spec:
    dtype, shape = (column, []) if isinstance(column, str) else column
    _column(name, column)  # what it refuses is refused here
    if dtype in ("str", "bytes") and shape:
        raise ValueError("column %s: %s has no shape, it is of any length" % (name, dtype))
    if dtype == "bfloat16":
        raise NotImplementedError("column %s: Arrow has no bfloat16 to import" % name)
    return dtype, list(shape)


def _natural(name: str, kind: Any) -> Spec:
    """What a column of this Arrow type is when nobody says it."""
    spec = _spec(kind)
    if spec is None:
        import pyarrow

        temporal = pyarrow.types.is_temporal(kind)
        raise NotImplementedError(
            "column %s is of the type %s, which no column of a shard holds: leave it out by columns=%s"
            % (name, kind, ", or take its number by columns={%r: 'int64', …}" % name if temporal else "")
        )
    return spec


def _spec(kind: Any) -> Optional[Spec]:
    import pyarrow

    types = pyarrow.types
    if isinstance(kind, pyarrow.BaseExtensionType):
        return _spec(kind.storage_type)
    if types.is_dictionary(kind):
        return _spec(kind.value_type)
    if types.is_boolean(kind):
        return "bool", []
    if types.is_integer(kind) or types.is_floating(kind):
        name = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(kind), str(kind))
        return (name, []) if name in COLUMNS else None
    if types.is_string(kind) or types.is_large_string(kind):
        return "str", []
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return "bytes", []
    if _is_list(kind) or types.is_fixed_size_list(kind):
        inner = _spec(kind.value_type)
        if inner is None or inner[0] in ("str", "bytes") or None in inner[1]:
            return None
        return inner[0], [None if _is_list(kind) else kind.list_size, *inner[1]]
    return None


def _is_list(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind))


def _plain(array: Any) -> Any:
    """Without what only compresses or names it."""
    import pyarrow

    if isinstance(array, pyarrow.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if pyarrow.types.is_dictionary(array.type) else array


def _bytes(block: Any) -> Any:
    import numpy

    return numpy.ascontiguousarray(block).reshape(-1).view("uint8")
