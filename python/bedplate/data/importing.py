"""Parquet becomes packed shards."""

import glob
import json
import os
from os import PathLike, fspath
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .. import _native
from .arrow_columns import ArrowColumn, Columns, columns_of, schema_json

Paths = Union[str, "PathLike[str]", Sequence[Union[str, "PathLike[str]"]]]

# Of rows that are in memory at once, as Arrow has them.
_BATCH_BYTES = 16 << 20
# Of the first row group at most: encoded sizes tell little of text that repeats itself.
_FIRST_ROWS = 2048
# Of each column that is read ahead.
_READ_BYTES = 1 << 20


class _File(NamedTuple):
    path: bytes
    name: str
    groups: List[int]  # rows of each
    row_bytes: int  # in the mean, as they are encoded


def import_parquet(
    src: Paths,
    dst: "Union[str, PathLike[str]]",
    *,
    columns: Optional[Columns] = None,
    fill: Optional[Mapping[str, Any]] = None,
    shard_bytes: int = 256 << 20,
    shard_samples: Optional[int] = None,
    overwrite: bool = False,
    dry_run: bool = False,
    progress: Optional[Callable[[int, int], None]] = None,
) -> Dict[str, Any]:
    """Writes the rows of Parquet files as packed shards, `dst`/000000.shard and so on; a row is a sample.

        import_parquet("corpus/*.parquet", "s3://bucket/train")
        import_parquet("corpus/", "train", columns={"tokens": ("uint16", [2048]), "source": "str"})

    src            files, folders (their *.parquet, in the order of their names) or patterns with *,
                   on this machine's file systems
    columns        names of the columns, in this order; None: all. A mapping says what each becomes,
                   as for ShardWriter: {"label": "int8", "tokens": ("uint16", [2048])}. Values are
                   converted only where nothing is lost but the digits of floating point numbers
    fill           {column: value} for null. In lists it stands for each null number, and a null
                   list is empty, or full of it where lists have a length
    shard_bytes    size of a shard, at most, unless one row is larger
    shard_samples  rows of a shard, exactly, instead of its size
    overwrite      remove the shards of an earlier pack in dst first
    dry_run        say what would be read, write nothing
    progress       called with (rows done, rows of all) now and then

    Numbers, bool, text and bytes become columns of these; lists of numbers arrays of any length
    ("None" as their first dimension), lists of a fixed length arrays of that shape. Dictionaries
    and extension types are what they stand for. Files must have the same columns.

    pack.json in dst keeps what was begun: killed, the same call goes on with the shards that are
    missing, and it refuses to go on with another source, or other options. A shard appears whole,
    or not at all. Rows are read and held a few MiB at a time.

    Returns a dict: end ("done", "nothing to do", "planned"), samples, shards, shards_made, bytes,
    source_files, source_bytes, schema, notes.

    Raises ImportError without pyarrow; ValueError for a null or another value that a column cannot
    hold, naming column and row, for columns that are not there and for files that differ;
    NotImplementedError for types that no column holds (structs, maps, lists of text);
    FileExistsError for a dst with shards of somebody else or of another import; CorruptError for
    damaged files; and those of stores (FileNotFoundError, PermissionError, OSError).
    """
    parquet = pyarrow_parquet()
    fill = dict(fill or {})
    native = _native.RowImport(
        _urls(src),
        fspath(dst),
        _options(columns, fill),
        int(shard_bytes),
        0 if shard_samples is None else _positive("shard_samples", shard_samples),
        "overwrite" if overwrite else "refuse",
    )
    try:
        if native.nothing_to_do():
            return dict(native.report())
        files, made = _look(parquet, native, columns, fill)
        total = sum(sum(file.groups) for file in files)
        if dry_run:
            return {**native.report(), "samples": total, "schema": schema_json(made)}
        if total == 0:
            raise FileNotFoundError("there are no rows in the %d files of the source" % len(files))
        native.begin(schema_json(made))
        row = 0
        for file, first_row in _with_rows(files):
            for row in _import_file(parquet, native, file, first_row, made):
                if progress is not None:
                    progress(row, total)
        return dict(native.finish())
    finally:
        native.close()


def pyarrow_parquet() -> Any:
    """The module pyarrow.parquet, or an error that says how to get it."""
    try:
        import pyarrow.parquet

        return pyarrow.parquet
    except ImportError as problem:
        raise ImportError("Parquet is read by pyarrow, which is not here (%s): pip install pyarrow" % problem) from None


def _urls(src: Paths) -> List[str]:
    """Patterns with * as the files that they name."""
    out: List[str] = []
    for one in [src] if isinstance(src, (str, PathLike)) else src:
        path = fspath(one)
        if glob.has_magic(path) and "://" not in path and not os.path.exists(path):
            # What is left may have braces in its name, which mean something to pack.
            found = sorted(glob.glob(path, recursive=True))
            out += [name.replace("{", r"\{").replace("}", r"\}") for name in found]
            if not found:
                raise FileNotFoundError("no file has a name such as %s" % path)
        else:
            out.append(path)
    return out


def _positive(name: str, value: int) -> int:
    if int(value) < 1:
        raise ValueError("%s is at least 1, not %r" % (name, value))
    return int(value)


def _options(columns: Optional[Columns], fill: Mapping[str, Any]) -> List[Tuple[str, str]]:
    """What decides which bytes are made, for pack.json."""
    names = "" if columns is None else json.dumps(list(columns))
    types = json.dumps(dict(columns)) if isinstance(columns, Mapping) else ""
    filled = json.dumps(fill, sort_keys=True, default=repr) if fill else ""
    return [("--columns", names), ("--schema", types), ("--fill", filled)]


def _look(
    parquet: Any, native: Any, columns: Optional[Columns], fill: Mapping[str, Any]
) -> "Tuple[List[_File], List[ArrowColumn]]":
    """The files and the columns that they all have, by their footers."""
    files: List[_File] = []
    made: List[ArrowColumn] = []
    for path, name, size in native.files():
        shown = os.fsdecode(path)
        if not path.startswith(b"/"):
            raise ValueError("%s: Parquet is read from this machine's file systems; copy it here first" % shown)
        metadata = _guarded(shown, lambda: parquet.read_metadata(os.fsdecode(path)))
        try:
            here = columns_of(metadata.schema.to_arrow_schema(), columns, fill)
        except (ValueError, NotImplementedError) as problem:
            raise type(problem)("%s: %s" % (shown, problem)) from None
        if not made:
            made = here
        elif schema_json(here) != schema_json(made):
            raise ValueError(
                "%s has other columns than %s: %s, not %s; columns= can say what they become"
                % (shown, files[0].name, schema_json(here), schema_json(made))
            )
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        row_bytes = sum(group.total_byte_size for group in groups) // max(1, metadata.num_rows)
        files.append(_File(path, shown, [group.num_rows for group in groups], row_bytes))
    return files, made


def _with_rows(files: Sequence[_File]) -> "Iterator[Tuple[_File, int]]":
    first = 0
    for file in files:
        yield file, first
        first += sum(file.groups)


def _import_file(parquet: Any, native: Any, file: _File, row: int, columns: Sequence[ArrowColumn]) -> Iterator[int]:
    """Adds the rows of a file, or leaves those out that are in shards; yields how many rows are behind it."""
    opened: Any = None
    rows = max(1, min(_FIRST_ROWS, _BATCH_BYTES // max(1, file.row_bytes)))
    names = [column.name for column in columns]
    first_of_file = row
    for group, count in enumerate(file.groups):
        if native.rows_to_skip() >= count:
            native.skip(count)
            row += count
            yield row
            continue
        if opened is None:
            opened = _guarded(file.name, lambda: parquet.ParquetFile(os.fsdecode(file.path), buffer_size=_READ_BYTES))
        batches = opened.iter_batches(batch_size=rows, row_groups=[group], columns=names)
        while True:
            batch = _guarded(file.name, lambda: next(batches, None))
            if batch is None:
                break
            skipped = min(native.rows_to_skip(), batch.num_rows)
            native.skip(skipped)
            batch = batch.slice(skipped)
            row += skipped
            if batch.num_rows == 0:
                continue
            try:
                native.add(batch.num_rows, [c.rows(batch.column(c.name), row - first_of_file) for c in columns])
            except ValueError as problem:
                raise type(problem)("%s: %s" % (file.name, problem)) from None
            row += batch.num_rows
            rows = max(1, min(1 << 16, _BATCH_BYTES // max(1, batch.nbytes // batch.num_rows)))
            yield row
    if opened is not None:
        opened.close()


def _guarded(name: str, work: Callable[[], Any]) -> Any:
    """What pyarrow says of a file that it cannot read, as an error of ours with the file's name."""
    import pyarrow

    try:
        return work()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError, EOFError) as problem:
        raise _native.CorruptError("%s is no Parquet, or damaged: %s" % (name, problem)) from None
    except OSError as problem:
        if type(problem) is not OSError or problem.errno is not None:
            raise
        # Damaged pages are an OSError without a number.
        raise _native.CorruptError("%s is damaged: %s" % (name, problem)) from None
