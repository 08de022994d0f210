"""bedplate.data: what a user's script sees. The engine's own cases are src/data/loader_test.cc."""

import gc
import io
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import threading
import time

import pytest

data = pytest.importorskip("bedplate.data", reason="the package has no extension module here", exc_type=ImportError)
numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")


@pytest.fixture
def numbers(tmp_path):
    """numbers(n) -> URL of a folder with n samples {number: i, text: str(i)} in shards of 100."""

    def make(count, a_shard=100):
        folder = tmp_path / ("numbers-%d" % count)
        if folder.exists():
            return str(folder) + "/"
        for shard in range(max(1, -(-count // a_shard))):
            columns = {"number": "int64", "text": "str"}
            with data.ShardWriter(folder / ("%06d.shard" % shard), columns) as out:
                for i in range(shard * a_shard, min(count, (shard + 1) * a_shard)):
                    out.write(number=i, text=str(i))
        return str(folder) + "/"

    return make


def drawn(loader):
    out = []
    for batch in loader:
        assert batch["text"] == [str(n) for n in batch["number"].tolist()]
        out += batch["number"].tolist()
    return out


# --- data sets ----------------------------------------------------------------------------------


def resident_bytes(path):
    listed = subprocess.run(["fincore", "--bytes", "--noheadings", "-o", "RES", path], capture_output=True, text=True, check=True)
    return int(listed.stdout)


def test_direct_reads_leave_the_page_cache_alone(tmp_path):
    path = tmp_path / "large.shard"
    rows = [os.urandom(1000 + i % 7) for i in range(4000)]
    with data.ShardWriter(path, {"row": "bytes"}) as out:
        for row in rows:
            out.write(row=row)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = resident_bytes(path)
    if before > os.path.getsize(path) / 2:
        pytest.skip("this file system keeps files in memory")
    ds = data.Dataset(path, storage={"direct": True})
    loader = data.Loader(ds, 64, shuffle="full", tail="uneven", as_="numpy")
    assert sorted(bytes(row) for batch in loader for row in batch["row"]) == sorted(rows)
    assert resident_bytes(path) <= before + (1 << 20)
    assert pickle.loads(pickle.dumps(ds)).storage == {"direct": True}


def test_a_data_set_is_a_sequence_of_dicts(numbers):
    ds = data.Dataset(numbers(250))
    assert len(ds) == 250
    assert ds[7]["text"] == "7" and ds[7]["number"] == 7
    assert ds[-1]["number"] == 249
    with pytest.raises(IndexError):
        ds[250]
    assert sum(int(s["number"]) for s in ds) == sum(range(250))
    assert len(ds.shards()) == 3
    assert ds.stored_bytes == sum(shard["bytes"] for shard in ds.shards()) > 0
    assert "250 samples in 3 shards" in repr(ds)


def test_a_plain_dataloader_takes_it(numbers):
    ds = data.Dataset(numbers(40))
    for context in (None, "fork", "spawn", "forkserver"):
        loader = torch.utils.data.DataLoader(
            ds, batch_size=8, num_workers=2 if context else 0, multiprocessing_context=context
        )
        seen = [int(n) for batch in loader for n in batch["number"]]
        assert seen == list(range(40)), context


def test_errors_are_pythons_own(tmp_path, numbers):
    with pytest.raises(FileNotFoundError, match="is not there"):
        data.Dataset(tmp_path / "nothing.shard")
    with pytest.raises(ValueError, match="did you mean packed"):
        data.Dataset(numbers(1), format="packd")
    with pytest.raises(ValueError, match="at least one"):
        data.Dataset([])
    (tmp_path / "broken.shard").write_bytes(b"no shard at all" * 1000)
    with pytest.raises(data.CorruptError, match="broken.shard"):
        data.Dataset(tmp_path / "broken.shard")
    with pytest.raises(ValueError, match="skip:N"):
        data.Dataset(numbers(2), on_bad="skip")
    with pytest.raises(TypeError):
        data.Dataset(3)


# --- writing ------------------------------------------------------------------------------------


def test_what_is_written_comes_back(tmp_path):
    columns = {"a": ("float32", [2, 3]), "b": ("uint16", [None]), "c": "bytes", "d": "str", "e": "bool", "f": ("bfloat16", [1])}
    values = {
        "a": numpy.arange(6, dtype="float32").reshape(2, 3),
        "b": numpy.array([1, 65535], dtype="uint16"),
        "c": b"\x00\xff",
        "d": "größer \U0001f600",
        "e": True,
        "f": numpy.array([0x3F80], dtype="uint16"),
    }
    with data.ShardWriter(tmp_path / "x.shard", columns) as out:
        out.write(**values)
        assert len(out) == 1
    got = data.Dataset(tmp_path / "x.shard")[0]
    assert (got["a"] == values["a"]).all() and got["a"].shape == (2, 3)
    assert got["b"].tolist() == [1, 65535]
    assert got["c"] == values["c"] and got["d"] == values["d"]
    assert bool(got["e"]) is True
    batch = next(iter(data.Loader(data.Dataset(tmp_path / "x.shard"), 1)))
    assert batch["f"].dtype == torch.bfloat16 and batch["f"].item() == 1.0


def test_nothing_that_does_not_fit_is_written(tmp_path):
    path = tmp_path / "x.shard"
    writer = data.ShardWriter(path, {"a": ("int32", [2]), "n": "uint8"})
    for wrong in (
        {"a": numpy.zeros(2, "int64"), "n": 1},
        {"a": numpy.zeros(3, "int32"), "n": 1},
        {"a": numpy.zeros(2, "int32"), "n": 300},
        {"a": numpy.zeros(2, "int32"), "n": 1.5},
        {"a": numpy.zeros(2, "int32")},
        {"a": numpy.zeros(2, "int32"), "n": 1, "more": 2},
    ):
        with pytest.raises(ValueError):
            writer.write(**wrong)
    writer.write(a=numpy.zeros(2, "int32"), n=255)
    writer.close()
    assert len(data.Dataset(path)) == 1
    with pytest.raises(FileExistsError):
        with data.ShardWriter(path, {"n": "uint8"}) as again:
            again.write(n=1)
    with pytest.raises(RuntimeError, match="given up"):
        with data.ShardWriter(tmp_path / "y.shard", {"n": "uint8"}) as out:
            out.write(n=1)
            raise RuntimeError("given up")
    assert not (tmp_path / "y.shard").exists()
    assert os.listdir(tmp_path) == ["x.shard"]


@pytest.mark.parametrize(
    ("dtype", "wrong", "kind"),
    [
        ("float16", 1e6, ValueError),
        ("float16", -65520.0, ValueError),
        ("float32", 1e39, ValueError),
        ("float32", 10**400, ValueError),
        ("float64", 10**400, ValueError),
        ("uint8", 256, ValueError),
        ("uint8", -1, ValueError),
        ("int64", 2**63, ValueError),
        ("uint64", 2**64, ValueError),
        ("bool", 2, ValueError),
        ("float32", None, TypeError),
        ("float32", "3.5", TypeError),
        ("int32", "3", TypeError),
        ("int32", None, TypeError),
        ("str", None, TypeError),
        ("str", b"x", TypeError),
        ("str", 3, TypeError),
        ("bytes", "x", TypeError),
        ("bytes", None, TypeError),
        ("bytes", 3, TypeError),
    ],
)
def test_what_a_column_cannot_hold_is_refused_by_its_name(tmp_path, dtype, wrong, kind):
    with pytest.raises(kind, match="column col") as refusal:
        with data.ShardWriter(tmp_path / "x.shard", {"col": dtype}) as out:
            out.write(col=wrong)
    assert dtype in str(refusal.value) and repr(wrong)[:20] in str(refusal.value)
    assert os.listdir(tmp_path) == []


def test_numbers_at_the_ends_of_their_types_are_held(tmp_path):
    ends = [("float16", 65504.0), ("float16", math.inf), ("float32", 3.4e38), ("float64", -math.inf)]
    ends += [("uint64", 2**64 - 1), ("int64", -(2**63)), ("uint8", 255), ("float16", 0.1)]
    for i, (dtype, value) in enumerate(ends):
        with data.ShardWriter(tmp_path / ("%d.shard" % i), {"x": dtype}) as out:
            out.write(x=value)
        assert data.Dataset(tmp_path / ("%d.shard" % i))[0]["x"] == numpy.asarray(value, dtype=dtype)


@pytest.mark.parametrize("child", ["forgets", "closes", "writes", "leaves"])
def test_after_fork_the_shard_stays_the_parents(tmp_path, child):
    path = tmp_path / "x.shard"
    refusals, says = os.pipe()
    out = data.ShardWriter(path, {"i": "int64"})
    for i in range(1000):
        out.write(i=i)
    pid = os.fork()
    if pid == 0:
        try:
            if child == "closes":
                out.close()
            elif child == "writes":
                out.write(i=7)
            elif child == "leaves":
                with out:
                    raise ValueError("the child's own")
            del out
            gc.collect()
        except ValueError as refusal:
            os.write(says, str(refusal).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(says)
    with os.fdopen(refusals) as pipe:
        said = pipe.read()
    if child in ("closes", "writes"):
        assert "x.shard" in said and "process %d" % os.getpid() in said
    for i in range(1000, 2000):
        out.write(i=i)
    out.close()
    assert [int(sample["i"]) for sample in data.Dataset(path)] == list(range(2000))
    assert os.listdir(tmp_path) == ["x.shard"]


# --- batches ------------------------------------------------------------------------------------


def test_every_sample_once_an_epoch_and_another_order_in_the_next(numbers):
    loader = data.Loader(data.Dataset(numbers(250)), 16, seed=3, tail="uneven")
    first, second = drawn(loader), drawn(loader)
    assert sorted(first) == sorted(second) == list(range(250))
    assert first != second != list(range(250))
    assert len(loader) == 16
    assert drawn(data.Loader(data.Dataset(numbers(250)), 16, shuffle=False, tail="uneven")) == list(range(250))


def test_batches_are_views_that_stay_whole(numbers):
    loader = data.Loader(data.Dataset(numbers(250)), 10, shuffle=False, prefetch=1, as_="numpy")
    kept = [batch["number"] for batch in loader]
    del loader
    gc.collect()
    assert [int(n) for array in kept for n in array] == list(range(250))
    assert not kept[0].flags.owndata


@pytest.mark.parametrize("as_,kind", [("torch", "Tensor"), ("numpy", "ndarray")])
def test_arrays_are_of_the_framework_that_is_asked_for(numbers, as_, kind):
    batch = next(iter(data.Loader(data.Dataset(numbers(8)), 4, as_=as_)))
    assert type(batch["number"]).__name__ == kind


def test_resuming_is_exact_for_any_world_size(numbers):
    ds = data.Dataset(numbers(250))
    whole = drawn(data.Loader(ds, 5, seed=1, tail="uneven"))
    first = data.Loader(ds, 5, seed=1)
    taken, batches = [], iter(first)
    for _ in range(7):
        taken += next(batches)["number"].tolist()
    state = pickle.loads(pickle.dumps(first.state_dict()))
    assert len(str(state)) < 200
    left = []
    for rank in range(3):
        other = data.Loader(ds, 4, seed=1, rank=rank, world_size=3, tail="uneven", threads=2)
        other.load_state_dict(state)
        left += drawn(other)
    assert taken == whole[:35]
    assert sorted(taken + left) == list(range(250))
    with pytest.raises(ValueError, match="other data"):
        data.Loader(ds, 5, seed=2).load_state_dict(state)
    with pytest.raises(ValueError):
        first.load_state_dict({"epoch": 0})


def test_an_order_of_the_callers_own(numbers):
    ds = data.Dataset(numbers(100))
    sampler = torch.utils.data.DistributedSampler(range(100), num_replicas=2, rank=1, seed=5)
    loader = data.Loader(ds, 8, sampler=sampler, tail="uneven")
    plain = torch.utils.data.DataLoader(ds, 8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert drawn(loader) == [int(n) for batch in plain for n in batch["number"]] == list(sampler)
    assert len(loader) == len(plain) == 7
    other = data.Loader(ds, 8, sampler=sampler, tail="uneven")
    batches = iter(other)
    taken = next(batches)["number"].tolist()
    last = data.Loader(ds, 8, sampler=sampler, tail="uneven")
    last.load_state_dict(other.state_dict())
    assert taken + drawn(last) == list(sampler)
    with pytest.raises(ValueError, match="no sample 100"):
        list(data.Loader(ds, 8, sampler=[1, 100]))
    with pytest.raises(ValueError, match="sampler"):
        data.Loader(ds, 8, sampler=[1], rank=0, world_size=1)


def test_an_epoch_left_early_is_followed_by_the_next(numbers):
    ds = data.Dataset(numbers(100))
    loader, other = data.Loader(ds, 10, seed=1), data.Loader(ds, 10, seed=1)
    for _ in loader:
        break
    drawn(other)
    assert drawn(loader) == drawn(other)
    loader.set_epoch(0)
    other.set_epoch(0)
    assert drawn(loader) == drawn(other)


def test_fields(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(6):
            array = io.BytesIO()
            numpy.save(array, numpy.full((2,), i, "float32"))
            for name, content in (("cls", b"%d\n" % i), ("npy", array.getvalue()), ("txt", b"t%d" % i)):
                info = tarfile.TarInfo("%03d.%s" % (i, name))
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    ds = data.Dataset(tmp_path / "a.tar")
    assert ds[2]["__key__"] == "002" and ds[2]["cls"] == b"2\n"
    fields = {"cls": data.int64(), "npy": data.npy(), "text|txt": None}
    batch = next(iter(data.Loader(ds, 6, shuffle=False, fields=fields)))
    assert batch["cls"].tolist() == [0, 1, 2, 3, 4, 5]
    assert batch["npy"].shape == (6, 2) and batch["npy"][5, 1] == 5
    assert batch["text"] == [b"t%d" % i for i in range(6)]
    with pytest.raises(ValueError, match="no field png; the sample has"):
        data.Loader(ds, 2, fields={"png": None})


def test_rows_of_different_length(tmp_path):
    with data.ShardWriter(tmp_path / "x.shard", {"t": ("int32", [None])}) as out:
        for i in range(4):
            out.write(t=numpy.arange(i, dtype="int32"))
    ds = data.Dataset(tmp_path / "x.shard")
    padded = next(iter(data.Loader(ds, 4, shuffle=False, fields={"t": data.pad(2, -1)})))["t"]
    assert padded.tolist() == [[-1, -1], [0, -1], [0, 1], [0, 1]]
    ragged = next(iter(data.Loader(ds, 4, shuffle=False, fields={"t": data.ragged()})))["t"]
    assert [row.tolist() for row in ragged] == [[], [0], [0, 1], [0, 1, 2]]
    with pytest.raises(ValueError, match=r"pad\(\) or ragged\(\)"):
        list(data.Loader(ds, 4))


def test_a_decode_function_runs_in_the_loaders_threads(numbers):
    names = set()

    def decode(sample):
        names.add(threading.current_thread().name)
        return {"twice": 2 * int(sample["number"])}

    loader = data.Loader(data.Dataset(numbers(100)), 10, decode=decode, threads=2, shuffle=False)
    assert [int(n) for batch in loader for n in batch["twice"]] == [2 * i for i in range(100)]
    assert threading.main_thread().name not in names

    def fails(sample):
        raise KeyError("a mistake of the user")

    with pytest.raises(KeyError, match="a mistake of the user"):
        list(data.Loader(data.Dataset(numbers(10)), 5, decode=fails))


def test_batches_that_nobody_took_die_while_others_ask(numbers):
    """What decode() made dies with the epoch that is left, and takes Python's lock to do so."""
    ds = data.Dataset(numbers(400))
    loader = data.Loader(ds, 4, decode=lambda sample: {"n": int(sample["number"])}, threads=4)
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            loader.stats()
            loader.state_dict()

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        for epoch in range(60):
            loader.set_epoch(epoch)
            for _ in loader:
                break
    finally:
        stop.set()
        asker.join(30)
    assert not asker.is_alive()


def test_a_mix_says_where_each_row_is_from(numbers):
    mix = data.Mix([(data.Dataset(numbers(300)), 0.75), (data.Dataset(numbers(100)), 0.25)], epoch=200)
    loader = data.Loader(mix, 10, seed=1)
    rows = sum(len(batch["number"]) for batch in loader)
    assert rows == 200 == len(mix)


def test_a_cache_serves_the_second_epoch(numbers, tmp_path):
    ds = data.Dataset(numbers(1000), cache=str(tmp_path / "cache") + ":100MB")
    first = drawn(data.Loader(ds, 10, seed=1))
    fetched = ds.cache_counters()["origin_bytes"]
    assert fetched > 0 and drawn(data.Loader(ds, 10, seed=1)) == first
    assert ds.cache_counters()["origin_bytes"] == fetched
    assert pickle.loads(pickle.dumps(ds)).cache == ds.cache
    assert data.Dataset(numbers(1000)).cache_counters() is None
    with pytest.raises(ValueError):
        data.Dataset(numbers(1000), cache="/tmp/x:much")


# --- bad samples --------------------------------------------------------------------------------


def test_a_damaged_sample_is_raised_skipped_or_refetched(numbers):
    url = numbers(50)
    path = url + "000000.shard"
    place = open(path, "rb").read().index(b"\x11\x00\x00\x00\x00\x00\x00\x0017"[:8])
    with open(path, "r+b") as shard:
        shard.seek(place)
        shard.write(b"\x12")
    ds = data.Dataset(url)
    with pytest.raises(data.CorruptError, match=r"sample 17 \(17 of 000000.shard in"):
        list(data.Loader(ds, 10, shuffle=False))
    with pytest.raises(data.CorruptError):
        list(data.Loader(ds, 10, shuffle=False, on_bad="refetch"))
    loader = data.Loader(ds, 10, shuffle=False, on_bad="skip:1")
    assert sum(len(batch["number"]) for batch in loader) == 50
    assert loader.stats()["skipped"] == 1 and loader.stats()["bad"][0][0] == 17
    with pytest.raises(data.CorruptError, match="at most 1"):
        list(loader)  # its second epoch meets the sample again


# --- processes ----------------------------------------------------------------------------------


def _count(loader, queue):
    queue.put(sum(len(batch["number"]) for batch in loader))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_loader_goes_on_in_another_process(numbers, method):
    loader = data.Loader(data.Dataset(numbers(100)), 10, threads=2)
    next(iter(loader))  # its threads are at work
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_count, args=(loader, queue))
    child.start()
    assert queue.get(timeout=60) == 100  # iterating anew is the next epoch
    child.join(60)
    assert child.exitcode == 0
    assert sum(len(batch["number"]) for batch in loader) == 100


def test_an_interrupt_reaches_a_consumer_that_waits(numbers):
    script = """
import sys, threading, os, signal, time
from bedplate.data import Dataset, Loader
stop = threading.Event()
def decode(sample):
    print("waiting", flush=True)
    stop.wait(60)
    return 0
try:
    list(Loader(Dataset(sys.argv[1]), 5, decode=decode, threads=1))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(7)
"""
    child = subprocess.Popen([sys.executable, "-c", script, numbers(10)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    assert "interrupted" in child.communicate(timeout=30)[0]
    assert child.returncode == 7


def test_the_interpreter_ends_while_threads_decode(numbers):
    script = """
import sys
from bedplate.data import Dataset, Loader
loader = Loader(Dataset(sys.argv[1]), 5, decode=lambda sample: sum(range(10000)), threads=4)
next(iter(loader))
"""
    done = subprocess.run([sys.executable, "-c", script, numbers(500)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""


def test_memory_stays_flat(numbers):
    loader = data.Loader(data.Dataset(numbers(1000)), 10, threads=2, prefetch=1 << 16)

    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    for _ in range(3):
        drawn(loader)
    before = resident()
    for _ in range(30):
        drawn(loader)
    assert resident() - before < 8 << 20


def test_ranks_come_from_the_environment(numbers, monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    loader = data.Loader(data.Dataset(numbers(100)), 5)
    assert (loader.rank, loader.world_size, len(loader)) == (2, 4, 5)


def test_bad_options_say_what_is_wrong(numbers):
    ds = data.Dataset(numbers(10))
    for wrong in (
        {"batch_size": 0},
        {"shuffle": "yes"},
        {"tail": "cut"},
        {"verify": "perhaps"},
        {"as_": "jax"},
        {"threads": 0},
        {"rank": 3, "world_size": 2},
        {"on_bad": "skip:-1"},
        {"window": -1},
        {"shuffle": False, "window": 5},
        {"decode": len, "fields": {"number": None}},
    ):
        with pytest.raises(ValueError):
            data.Loader(ds, **{"batch_size": 2, **wrong})
    with pytest.raises(TypeError, match="image"):
        data.Loader(ds, 2, fields={"number": "int64"})
    for wrong_spec in (lambda: data.image(2, 2, fit="any"), lambda: data.number("complex64"), lambda: data.image(2, 2, layout="whc")):
        with pytest.raises(ValueError):
            wrong_spec()
