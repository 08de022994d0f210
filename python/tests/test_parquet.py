"""import_parquet(): what pyarrow writes is what the shards hold. tests/formats runs this with pyarrow, pinned."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

data = pytest.importorskip("bedplate.data", reason="the package has no extension module here", exc_type=ImportError)
np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def table(tmp_path):
    """table(columns, name) -> path of a Parquet file with these columns."""

    def make(columns, name="in.parquet", **options):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
        return path

    return make


def samples(folder):
    return list(data.Dataset("%s/" % folder))


def shards(folder):
    if not pathlib.Path(folder).exists():  # nothing was begun
        return {}
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir() if path.name != "pack.json"}


def fixed(rows, size):
    return pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(rows).reshape(-1)), size)


def test_every_type_comes_back_as_it_was(table, tmp_path):
    count = 1000
    numbers = {str(np.dtype(t)): np.arange(count).astype(t) for t in "bBhHiIqQefd"}
    numbers["int64"][3], numbers["uint64"][4] = -(2**63), 2**64 - 1
    texts = ["ünïcode ✓ %d" % i * (i % 4) for i in range(count)]
    blobs = [bytes(range(i % 256)) for i in range(count)]
    lists = [np.arange(i % 9, dtype=np.int32) for i in range(count)]
    pairs = np.arange(count * 6, dtype=np.float32).reshape(count, 2, 3)
    columns = {name: pa.array(values) for name, values in numbers.items()}
    columns |= {
        "flag": pa.array([i % 3 == 0 for i in range(count)]),
        "text": pa.array(texts),
        "large": pa.array(texts, pa.large_string()),
        "blob": pa.array(blobs),
        "four": pa.array([b"%04d" % i for i in range(count)], pa.binary(4)),
        "word": pa.array([texts[i % 4] for i in range(count)]).dictionary_encode(),
        "list": pa.array(lists, pa.list_(pa.int32())),
        "grid": pa.FixedSizeListArray.from_arrays(fixed(pairs, 3), 2),
        "rows": pa.array([pairs[i, : i % 3].tolist() for i in range(count)], pa.list_(pa.list_(pa.float32(), 3))),
    }
    path = table(columns, row_group_size=77)
    report = data.import_parquet(path, tmp_path / "out", shard_samples=300)
    assert report["end"] == "done" and report["samples"] == count and report["shards"] == 4
    read = samples(tmp_path / "out")
    assert len(read) == count
    for i, sample in enumerate(read):
        for name, values in numbers.items():
            assert sample[name].dtype == values.dtype and sample[name] == values[i], (name, i)
        assert sample["flag"] == (i % 3 == 0) and sample["flag"].dtype == bool
        assert (sample["text"], sample["large"], sample["word"]) == (texts[i], texts[i], texts[i % 4])
        assert sample["blob"] == blobs[i] and sample["four"] == b"%04d" % i
        assert sample["list"].dtype == np.int32 and np.array_equal(sample["list"], lists[i])
        assert sample["grid"].shape == (2, 3) and np.array_equal(sample["grid"], pairs[i])
        assert sample["rows"].shape == (i % 3, 3) and np.array_equal(sample["rows"], pairs[i, : i % 3])


def test_columns_are_chosen_and_converted_without_loss(table, tmp_path):
    path = table({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [[1, 2], [3, 4], [5, 6]], "d": [1.5, 2.5, 1e300]})
    data.import_parquet(path, tmp_path / "names", columns=["b", "a"])
    assert [list(sample) for sample in samples(tmp_path / "names")] == [["b", "a"]] * 3
    data.import_parquet(path, tmp_path / "types", columns={"a": "uint8", "c": ("int16", [2])})
    read = samples(tmp_path / "types")
    assert [sample["a"].dtype for sample in read] == [np.uint8] * 3
    assert [sample["c"].tolist() for sample in read] == [[1, 2], [3, 4], [5, 6]]
    batch = next(iter(data.Loader(data.Dataset("%s/" % (tmp_path / "types")), 3, as_="numpy", shuffle=False)))
    assert batch["c"].shape == (3, 2)
    for columns, said in [
        ({"d": "int64"}, "column d"),
        ({"c": ("int16", [3])}, "column c, row 0: a list of 2, where all have 3"),
        ({"b": "int64"}, "column b"),
        ({"a": "int65"}, "int65"),
        ({"a": ("int64", [1])}, "column a, row 0"),
        ({"b": ("str", [1])}, "str has no shape"),
        (["nothing"], "no column 'nothing'; there are a, b, c, d"),
        ([], "no columns"),
    ]:
        with pytest.raises(ValueError, match=said.replace("(", r"\(")):
            data.import_parquet(path, tmp_path / "bad", columns=columns)
    assert not (tmp_path / "bad").exists() or not list((tmp_path / "bad").iterdir())
    negative = table({"a": [5, -1]}, "negative.parquet")
    with pytest.raises(ValueError, match="column a"):
        data.import_parquet(negative, tmp_path / "bad", columns={"a": "uint8"}, overwrite=True)


def test_a_null_is_named_or_filled(table, tmp_path):
    columns = {
        "n": pa.array([1, None, 3] * 40),
        "t": pa.array(["a", None, ""] * 40),
        "v": pa.array([[1, None], None, [4]] * 40, pa.list_(pa.int64())),
        "f": pa.array([[1, 2], None, [None, 4]] * 40, pa.list_(pa.int64(), 2)),
        "b": pa.array([True, None, False] * 40),
        "w": pa.array(["x", None, "y"] * 40).dictionary_encode(),
    }
    path = table(columns, row_group_size=50)
    for name in columns:
        with pytest.raises(ValueError, match="in.parquet: column %s, row 1: null" % name):
            data.import_parquet(path, tmp_path / "no", columns=[name])
    fill = {"n": -1, "t": "none", "v": 0, "f": 9, "b": True, "w": "z"}
    data.import_parquet(path, tmp_path / "out", fill=fill)
    read = samples(tmp_path / "out")
    assert [int(s["n"]) for s in read] == [1, -1, 3] * 40
    assert [s["t"] for s in read] == ["a", "none", ""] * 40
    assert [s["v"].tolist() for s in read] == [[1, 0], [], [4]] * 40
    assert [s["f"].tolist() for s in read] == [[1, 2], [9, 9], [9, 4]] * 40
    assert [bool(s["b"]) for s in read] == [True, True, False] * 40
    assert [s["w"] for s in read] == ["x", "z", "y"] * 40
    late = table({"n": pa.array([1] * 70 + [None])}, "late.parquet", row_group_size=20)
    with pytest.raises(ValueError, match="late.parquet: column n, row 70: null"):
        data.import_parquet(late, tmp_path / "late")
    deep = table({"v": pa.array([[1], [2, 3], [4, None]])}, "deep.parquet")
    with pytest.raises(ValueError, match="deep.parquet: column v, row 2: null"):
        data.import_parquet(deep, tmp_path / "deep")
    with pytest.raises(ValueError, match="cannot stand"):
        data.import_parquet(path, tmp_path / "bad", columns=["n"], fill={"n": "text"})
    with pytest.raises(ValueError, match="not imported"):
        data.import_parquet(path, tmp_path / "bad", columns=["n"], fill={"t": ""})


def test_what_no_column_holds_is_said(table, tmp_path):
    import datetime
    import decimal

    path = table(
        {
            "n": [1],
            "nested": [{"a": 1}],
            "words": [["a", "b"]],
            "deep": [[[1], [2, 3]]],
            "when": [datetime.datetime(2020, 1, 1)],
            "money": [decimal.Decimal("1.5")],
            "nothing": pa.nulls(1),
        }
    )
    for name in ("nested", "words", "deep", "when", "money", "nothing"):
        with pytest.raises(NotImplementedError, match="column %s is of the type" % name):
            data.import_parquet(path, tmp_path / "out", columns=["n", name])
    assert not (tmp_path / "out").exists()
    data.import_parquet(path, tmp_path / "out", columns={"when": "int64"})
    assert int(samples(tmp_path / "out")[0]["when"]) == 1577836800 * 10**6


def test_a_folder_a_pattern_and_several_files_are_one_row_of_samples(table, tmp_path):
    for i in (2, 0, 1):
        table({"n": list(range(i * 10, i * 10 + 10))}, "in/part-%d.parquet" % i, row_group_size=3)
    (tmp_path / "in/_SUCCESS").write_text("")
    table({"other": [1]}, "in/_delta_log/0.parquet")
    files = [tmp_path / "in" / ("part-%d.parquet" % i) for i in range(3)]
    for number, src in enumerate([tmp_path / "in", "%s/in/part-*.parquet" % tmp_path, files, "%s/in/part-{0..2}.parquet" % tmp_path]):
        out = tmp_path / ("out-%d" % number)
        data.import_parquet(src, out)
        assert [int(s["n"]) for s in samples(out)] == list(range(30))
    table({"m": [1]}, "in/part-9.parquet")
    with pytest.raises(ValueError, match="part-9.parquet: there is no column 'n'"):
        data.import_parquet(tmp_path / "in", tmp_path / "no", columns=["n"])
    table({"n": ["text"]}, "in/part-9.parquet")
    with pytest.raises(ValueError, match="part-9.parquet has other columns than .*part-0.parquet"):
        data.import_parquet(tmp_path / "in", tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_stopped_anywhere_it_goes_on_to_the_same_bytes(table, tmp_path):
    path = table({"n": list(range(1000)), "t": ["x" * (i % 50) for i in range(1000)]}, row_group_size=64)
    data.import_parquet(path, tmp_path / "whole", shard_samples=90)
    whole = shards(tmp_path / "whole")
    assert len(whole) == 12

    class Stop(Exception):
        pass

    for after in (0, 64, 500, 999, 1000):
        out = tmp_path / ("out-%d" % after)

        def stop(done, of):
            assert of == 1000
            if done >= after:
                raise Stop

        with pytest.raises(Stop):
            data.import_parquet(path, out, shard_samples=90, progress=stop)
        there = set(shards(out))
        assert there < set(whole)
        report = data.import_parquet(path, out, shard_samples=90)
        assert report["shards_made"] == 12 - len(there)
        assert shards(out) == whole
        assert data.import_parquet(path, out, shard_samples=90)["end"] == "nothing to do"


def test_what_would_lose_something_is_refused(table, tmp_path):
    path = table({"n": [1, 2, 3], "m": [4, 5, 6]})
    out = tmp_path / "out"
    data.import_parquet(path, out)
    before = shards(out)
    with pytest.raises(FileExistsError, match="--columns was not given"):
        data.import_parquet(path, out, columns=["n"])
    with pytest.raises(FileExistsError, match="--shard-bytes was 268435456, now it is not given"):
        data.import_parquet(path, out, shard_samples=1)
    os.utime(path, ns=(1, 1))
    with pytest.raises(FileExistsError, match="the source has changed"):
        data.import_parquet(path, out)
    assert shards(out) == before
    report = data.import_parquet(path, out, columns=["n"], dry_run=True, overwrite=True)
    assert report["end"] == "planned" and report["samples"] == 3 and shards(out) == before
    data.import_parquet(path, out, columns=["n"], overwrite=True)
    assert [list(s) for s in samples(out)] == [["n"]] * 3


def test_bad_sources_are_named(table, tmp_path):
    (tmp_path / "text.parquet").write_text("no Parquet at all")
    with pytest.raises(data.CorruptError, match="text.parquet"):
        data.import_parquet(tmp_path / "text.parquet", tmp_path / "out")
    whole = table({"n": np.random.default_rng(1).integers(0, 2**60, 50_000)}, compression="none", use_dictionary=False)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:1000])
    with pytest.raises(data.CorruptError, match="cut.parquet"):
        data.import_parquet(cut, tmp_path / "out")
    for path, kind in [(tmp_path / "none.parquet", FileNotFoundError), ("%s/*.pqt" % tmp_path, FileNotFoundError), ("s3://bucket/a.parquet", Exception)]:
        with pytest.raises(kind):
            data.import_parquet(path, tmp_path / "out")
    empty = table({"n": pa.array([], pa.int64())}, "empty.parquet")
    with pytest.raises(FileNotFoundError, match="no rows"):
        data.import_parquet(empty, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_memory_is_a_few_batches_however_large_the_file(tmp_path):
    rows, each = 400, 1 << 18
    schema = pa.schema([("blob", pa.binary())])
    with pq.ParquetWriter(tmp_path / "in.parquet", schema, use_dictionary=False, compression="none") as out:
        out.write_table(pa.table({"blob": [os.urandom(each) for _ in range(rows)]}, schema=schema))
    script = (
        "import resource, sys, numpy, pyarrow.parquet, bedplate.data as data\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "data.import_parquet(sys.argv[1], sys.argv[2], columns=['blob'])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    small = tmp_path / "small.parquet"
    pq.write_table(pa.table({"blob": [b"x"]}), small)

    def grown(src, dst):
        done = subprocess.run([sys.executable, "-c", script, src, dst], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert (rows * each) >> 10 == 102_400
    assert grown(tmp_path / "in.parquet", tmp_path / "out") - grown(small, tmp_path / "out-small") < 60_000


# --- the command --------------------------------------------------------------------------------


def run(*arguments, **options):
    command = [sys.executable, "-m", "bedplate.data.parquet", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


def test_the_command_says_what_it_made(table, tmp_path):
    path = table({"n": [1, None], "t": ["a", "b"]})
    done = run(path, tmp_path / "out", "--fill", "n=7", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["samples"] == 2 and report["end"] == "done"
    assert [c["name"] for c in report["schema"]["columns"]] == ["n", "t"]
    assert [int(s["n"]) for s in samples(tmp_path / "out")] == [1, 7]
    again = run(path, tmp_path / "out", "--fill", "n=7")
    assert again.returncode == 0 and "nothing to do" in again.stdout
    typed = run(path, tmp_path / "typed", "--schema", "n:u8,t:bytes", "--fill", "n=7")
    assert typed.returncode == 0 and "2 samples in 1 shard" in typed.stdout
    assert samples(tmp_path / "typed")[1] == {"n": 7, "t": b"b"}
    planned = run(path, tmp_path / "plan", "--columns", "t", "--dry-run")
    assert planned.returncode == 0 and "would become 2 samples" in planned.stdout and not (tmp_path / "plan").exists()


def test_the_commands_exit_codes(table, tmp_path):
    path = table({"n": [1, None]})
    text = tmp_path / "text.parquet"
    text.write_text("text")
    for arguments, code, said in [
        ([path], 2, "SRC"),
        ([path, tmp_path / "out"], 2, "column n, row 1: null"),
        ([path, tmp_path / "out", "--fill", "n"], 2, "NAME=VALUE"),
        ([path, tmp_path / "out", "--shard-bytes", "many"], 2, "no size"),
        ([path, tmp_path / "out", "--schema", "n"], 2, "no schema"),
        ([path, tmp_path / "out", "--what"], 2, "--what"),
        ([text, tmp_path / "out"], 3, "text.parquet"),
        ([tmp_path / "none.parquet", tmp_path / "out"], 3, "none.parquet"),
    ]:
        done = run(*arguments)
        assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr, (arguments, done)


def test_ctrl_c_ends_it_as_a_signal_and_leaves_whole_shards(table, tmp_path):
    path = table({"n": np.arange(200_000)}, row_group_size=1000)
    script = (
        "import os, signal, bedplate.data.importing as importing, bedplate.data.parquet as command\n"
        "import sys\n"
        "def stop(self, done, of):\n"
        "    if done >= 100_000: os.kill(os.getpid(), signal.SIGINT)\n"
        "command._Line.show = stop\n"
        "command.main(sys.argv[1:])\n"
    )
    done = subprocess.run([sys.executable, "-c", script, path, tmp_path / "out", "--shard-samples", "15000"], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGINT, done
    assert "the same command goes on" in done.stderr
    assert len(shards(tmp_path / "out")) == 6 and all(name.endswith(".shard") for name in shards(tmp_path / "out"))
    assert run(path, tmp_path / "out", "--shard-samples", "15000").returncode == 0
    assert [int(s["n"]) for s in samples(tmp_path / "out")[:3]] == [0, 1, 2] and len(data.Dataset("%s/" % (tmp_path / "out"))) == 200_000
