"""bedplate.data on odd input: wrong options, damaged and hostile shards, functions that raise or hang."""

import io
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tarfile
import textwrap
import time
import warnings

import pytest

data = pytest.importorskip("bedplate.data", reason="the package has no extension module here", exc_type=ImportError)
numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")


def write(folder, values, name="number", dtype="int64", shard="000000.shard"):
    with data.ShardWriter(folder / shard, {name: dtype}) as out:
        for value in values:
            out.write(**{name: value})
    return str(folder)


def rows(loader, name="number"):
    return [n for batch in loader for n in batch[name].tolist()]


def script(tmp_path, text, timeout=60):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=timeout, cwd=str(tmp_path))


# --- names --------------------------------------------------------------------------------------


def test_a_folder_needs_no_slash_and_may_be_a_path(tmp_path):
    folder = pathlib.Path(write(tmp_path / "set", range(10)))
    for name in (folder, str(folder), str(folder) + "/", [folder]):
        assert len(data.Dataset(name)) == 10


def test_names_need_not_be_utf8(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    write(tmp_path / "plain", range(3))
    folder.mkdir()
    (tmp_path / "plain/000000.shard").rename(folder / os.fsdecode(b"\xff.shard"))
    ds = data.Dataset(folder)
    assert len(ds) == 3
    assert os.fsencode(ds.shards()[0]["key"]) == b"\xff.shard"
    assert len(data.Dataset(folder / os.fsdecode(b"\xff.shard"))) == 3


def bedplate(*words):
    command = os.environ.get("BEDPLATE", os.path.join(os.path.dirname(sys.executable), "bedplate"))
    return subprocess.run([command, *map(str, words)], capture_output=True, text=True, timeout=60)


def test_a_shard_that_the_manifest_has_and_the_folder_has_not_is_an_error(tmp_path):
    folder = tmp_path / "set"
    for i in range(3):
        write(folder, range(10), shard="%06d.shard" % i)
    assert bedplate("data", "index", str(folder) + "/").returncode == 0
    gone = folder / "000002.shard"
    kept = gone.read_bytes()
    gone.unlink()
    with pytest.raises(FileNotFoundError, match="1 of the 3 shards .* 10 samples .*000002.shard.* data index"):
        data.Dataset(folder)
    assert len(data.Dataset(folder / "{000000..000001}.shard")) == 20  # these were named
    gone.write_bytes(kept)
    with pytest.warns(UserWarning, match="1 of 3 shards are not as"):
        assert len(data.Dataset(folder)) == 30
    gone.unlink()
    assert bedplate("data", "index", str(folder) + "/").returncode == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(data.Dataset(folder)) == 20


# --- options ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": math.inf}, {"timeout": math.nan}, {"timeout": 0}, {"timeout": -1}, {"timeout": 1e300},
        {"seed": -1}, {"seed": 1 << 64}, {"prefetch": 1 << 70}, {"prefetch": -1}, {"batch_size": 0},
        {"batch_size": 1 << 61}, {"threads": 0}, {"threads": 1000}, {"rank": 2, "world_size": 2}, {"rank": -1},
        {"world_size": 0}, {"window": 0}, {"window": 1 << 70}, {"on_bad": "skip:99999999999999999999"},
        {"on_bad": "skip:-1"}, {"tail": "drop", "batch_size": 11},
        {"fields": {"number": data.number("int64"), "n": data.image(0, 1)}},
    ],
    ids=str,
)
def test_impossible_options_are_value_errors(tmp_path, options):
    ds = data.Dataset(write(tmp_path / "set", range(10)))
    with pytest.raises(ValueError):
        data.Loader(ds, **{"batch_size": 2, **options})


def test_what_is_no_data_set_is_named(tmp_path):
    ds = data.Dataset(write(tmp_path / "set", range(10)))
    for wrong in (str(tmp_path / "set"), torch.utils.data.Subset(ds, [1, 2])):
        with pytest.raises(TypeError, match="takes a Dataset or a Mix"):
            data.Loader(wrong, 2)
    with pytest.raises(TypeError, match="batch_size is a whole number"):
        data.Loader(ds, 2.5)


@pytest.mark.parametrize("mixed", [False, True])
def test_epochs_that_do_not_exist_are_refused(tmp_path, mixed):
    ds = data.Dataset(write(tmp_path / "set", range(10)))
    loader = data.Loader(data.Mix({ds: 1.0}, epoch=30) if mixed else ds, 2)
    for epoch in (-1, 1 << 63, -(1 << 70)):
        with pytest.raises(ValueError):
            loader.set_epoch(epoch)
    assert len(rows(loader)) == (30 if mixed else 10)


@pytest.mark.parametrize("state", [{}, {"version": 1}, {"version": 7, "epoch": 0}, {"version": 1, "epoch": -1, "consumed": 0, "data": "0"}])
def test_what_is_no_state_is_refused(tmp_path, state):
    loader = data.Loader(data.Dataset(write(tmp_path / "set", range(10))), 2)
    with pytest.raises((data.CorruptError, ValueError), match="state"):
        loader.load_state_dict(state)


def test_a_state_of_the_same_samples_in_another_order_is_refused(tmp_path):
    one = data.Loader(data.Dataset(write(tmp_path / "one", range(100))), 2)
    other = data.Loader(data.Dataset(write(tmp_path / "other", reversed(range(100)))), 2)
    with pytest.raises(ValueError, match="other data"):
        other.load_state_dict(one.state_dict())


def test_one_iteration_at_a_time(tmp_path):
    loader = data.Loader(data.Dataset(write(tmp_path / "set", range(10))), 2)
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    with pytest.raises(RuntimeError, match="another iteration"):
        next(first)


# --- mixes --------------------------------------------------------------------------------------


def test_a_mix_tells_where_rows_come_from(tmp_path):
    few = data.Dataset(write(tmp_path / "few", range(10)))
    many = data.Dataset(write(tmp_path / "many", range(100, 200)))
    sources = {0: 0, 1: 0}
    for batch in data.Loader(data.Mix([(few, 0.5), (many, 0.5)], epoch=200), 10):
        assert batch["__source__"].dtype == torch.int64
        for number, source in zip(batch["number"].tolist(), batch["__source__"].tolist()):
            assert (number >= 100) == (source == 1)
            sources[source] += 1
    assert abs(sources[0] - sources[1]) <= 20
    seen = [s["__source__"] for s in next(iter(data.Loader(data.Mix([(few, 1), (many, 1)]), 8, decode=dict, collate=list)))]
    assert set(seen) <= {0, 1}


def test_a_mix_of_one_has_the_epoch_that_was_asked_for(tmp_path):
    ds = data.Dataset(write(tmp_path / "set", range(10)))
    got = rows(data.Loader(data.Mix([(ds, 1)], epoch=1000), 10))
    assert len(got) == 1000 and sorted(got) == sorted(list(range(10)) * 100)


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf])
def test_impossible_weights_and_epochs_are_refused(tmp_path, weight):
    ds = data.Dataset(write(tmp_path / "set", range(10)))
    with pytest.raises(ValueError, match="weight"):
        data.Mix([(ds, weight)])
    for epoch in (0, -1, 2**63 - 1):
        with pytest.raises(ValueError, match="epoch"):
            data.Mix([(ds, 1)], epoch=epoch)


def test_parts_of_a_mix_must_have_the_same_fields(tmp_path):
    one = data.Dataset(write(tmp_path / "one", range(10)))
    other = data.Dataset(write(tmp_path / "other", range(10), name="label"))
    narrow = data.Dataset(write(tmp_path / "narrow", range(10), dtype="int32"))
    with pytest.raises(ValueError, match="data set 1 of the mix .* label.* number"):
        data.Loader(data.Mix([(one, 1), (other, 1)]), 2)
    with pytest.raises(ValueError, match="data set 1 of the mix .* types or shapes"):
        data.Loader(data.Mix([(one, 1), (narrow, 1)]), 2)
    both = data.Loader(data.Mix([(one, 1), (narrow, 1)]), 2, fields={"number": data.int64()})
    assert len(rows(both)) == 20


# --- fields -------------------------------------------------------------------------------------


def tar(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as out:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))


def test_keys_of_samples_come_with_the_batch(tmp_path):
    tar(tmp_path / "set/a.tar", [("%02d.cls" % i, b"%d" % i) for i in range(6)])
    loader = data.Loader(data.Dataset(tmp_path / "set"), 3, fields={"__key__": None, "cls": data.int64()})
    for batch in loader:
        assert batch["__key__"] == ["%02d" % n for n in batch["cls"].tolist()]


def test_numbers_are_cast_or_refused(tmp_path):
    with data.ShardWriter(tmp_path / "set/a.shard", {"t": ("uint16", [3]), "x": "float64", "n": "int64"}) as out:
        out.write(t=numpy.array([1, 2, 65535], "uint16"), x=0.1, n=16777217)
        out.write(t=numpy.array([1, 2, 3], "uint16"), x=1e300, n=1)
    ds = data.Dataset(tmp_path / "set")

    def batch(**fields):
        return next(iter(data.Loader(ds, 2, shuffle=False, fields=fields)))

    wide = batch(t=data.cast("int64"))["t"]
    assert wide.dtype == torch.int64 and wide[0].tolist() == [1, 2, 65535]
    assert torch.nn.Embedding(70000, 2)(wide).shape == (2, 3, 2)
    with pytest.raises(data.CorruptError, match="65535 does not fit"):
        batch(t=data.cast("int16"))
    with pytest.raises(data.CorruptError, match="does not fit f32"):
        batch(x=data.float32())
    with pytest.raises(ValueError, match="2\\^46 bytes"):
        data.Loader(ds, 2, fields={"t": data.pad(1 << 61)})


def test_pictures_take_what_the_decoder_offers(tmp_path):
    from zlib import compress, crc32

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc32(kind + content))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 6, 0, 0, 0)  # one transparent red pixel
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", compress(b"\0\xff\0\0\0")) + chunk(b"IEND", b"")
    tar(tmp_path / "set/a.tar", [("a.png", png)])
    ds = data.Dataset(tmp_path / "set")

    def pixels(**options):
        return next(iter(data.Loader(ds, 1, fields={"png": data.image(1, 2, **options)})))["png"][0, 0].tolist()

    assert pixels() == [[255, 0, 0], [255, 0, 0]]
    assert pixels(alpha="compose", background=(1, 2, 3)) == [[1, 2, 3], [1, 2, 3]]
    with pytest.raises((data.CorruptError, NotImplementedError), match="pixels"):
        pixels(max_pixels=0)
    for wrong in ({"alpha": "x"}, {"damage": "x"}, {"background": (1, 2)}, {"background": (1, 2, 256)}):
        with pytest.raises(ValueError):
            data.image(1, 1, **wrong)


# --- bad samples --------------------------------------------------------------------------------


def test_what_is_no_picture_is_a_bad_sample(tmp_path):
    gif = b"GIF89a" + bytes(20)
    tar(tmp_path / "set/a.tar", [("%d.jpg" % i, content) for i, content in enumerate([gif, b"", b"RIFF0000WEBP"])])
    with pytest.raises(NotImplementedError, match="neither JPEG nor PNG"):
        next(iter(data.Loader(data.Dataset(tmp_path / "set"), 3, fields={"jpg": data.image(2, 2)})))
    with pytest.raises((NotImplementedError, data.CorruptError), match="no other sample of its batch is whole"):
        next(iter(data.Loader(data.Dataset(tmp_path / "set"), 3, fields={"jpg": data.image(2, 2)}, on_bad="skip:3")))


def test_an_exception_of_decode_names_its_sample_or_is_skipped(tmp_path):
    ds = data.Dataset(write(tmp_path / "set", range(12)))

    def decode(sample):
        if int(sample["number"]) % 5 == 3:
            raise KeyError("no good")
        return int(sample["number"])

    with pytest.raises(KeyError, match="no good") as raised:
        list(data.Loader(ds, 4, shuffle=False, decode=decode, collate=list))
    if sys.version_info >= (3, 11):
        assert "sample 3 (3 of 000000.shard" in raised.value.__notes__[0]
    loader = data.Loader(ds, 4, shuffle=False, decode=decode, collate=list, on_bad="skip:2")
    batches = list(loader)
    assert [len(b) for b in batches] == [4, 4, 4]
    assert {n for b in batches for n in b} == set(range(12)) - {3, 8}
    stats = loader.stats()
    assert stats["skipped"] == 2
    assert sorted(sample for sample, _ in stats["bad"]) == [3, 8] and "KeyError" in stats["bad"][0][1]
    with pytest.raises(data.CorruptError, match="at most 1 are to be skipped"):
        list(data.Loader(ds, 4, decode=decode, collate=list, on_bad="skip:1"))


def test_seeds_of_samples_are_the_same_for_any_number_of_threads_and_ranks(tmp_path):
    ds = data.Dataset(write(tmp_path / "set", range(40)))

    def seeds(**options):
        loader = data.Loader(ds, 4, seed=3, decode=lambda s: (int(s["number"]), s["__seed__"]), collate=list, **options)
        return {pair for batch in loader for pair in batch}

    one = seeds(threads=1)
    assert len({seed for _, seed in one}) == 40
    assert seeds(threads=4) == one
    assert seeds(rank=0, world_size=2) | seeds(rank=1, world_size=2) == one


def test_a_hostile_record_stays_in_its_row(tmp_path):
    """Checksums are right, a record is longer or shorter than the schema says."""
    from packed_by_hand import packed

    for size in (0, 4, 16, 4096):
        folder = tmp_path / str(size)
        folder.mkdir()
        for bad in (0, 7, 63):
            records = [struct.pack("<q", i) for i in range(64)]
            records[bad] = b"\x41" * size
            (folder / "a.shard").write_bytes(packed(records, {"columns": [{"name": "number", "dtype": "i64"}]}))
            with pytest.raises(data.CorruptError, match="sample %d " % bad):
                rows(data.Loader(data.Dataset(folder), 16, shuffle=False))
            left = rows(data.Loader(data.Dataset(folder), 16, shuffle=False, on_bad="skip:1"))
            assert len(left) == 64 and set(left) == set(range(64)) - {bad}


def test_a_shard_of_very_many_dimensions_is_refused(tmp_path):
    from packed_by_hand import packed

    schema = {"columns": [{"name": "x", "dtype": "u8", "shape": [1] * 200}]}
    (tmp_path / "a.shard").write_bytes(packed([b"x"], schema))
    with pytest.raises((data.CorruptError, ValueError), match="dimensions"):
        data.Dataset(tmp_path / "a.shard")


# --- samplers -----------------------------------------------------------------------------------


def test_a_sampler_longer_than_the_data_set_resumes(tmp_path):
    ds = data.Dataset(write(tmp_path / "set", range(100)))
    order = [i % 100 for i in range(300)]
    loader = data.Loader(ds, 10, sampler=order)
    taken = []
    for batch in loader:
        taken += batch["number"].tolist()
        if len(taken) == 150:
            break
    state = loader.state_dict()
    other = data.Loader(ds, 10, sampler=order)
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert taken + rows(other) == order
    again = data.Loader(ds, 10, sampler=order)
    again.load_state_dict(other.state_dict())  # an epoch's end: the next one follows
    assert rows(again) == order
    with pytest.raises(ValueError):
        rows(data.Loader(ds, 10, sampler=[1 << 63]))


# --- the end of a loader ------------------------------------------------------------------------


def test_a_loader_in_a_cycle_may_be_collected_by_its_own_thread(tmp_path):
    write(tmp_path / "set", range(400))
    done = script(
        tmp_path,
        """
        import gc
        from bedplate.data import Dataset, Loader
        gc.set_threshold(20, 2, 2)
        ds = Dataset("set")
        class Trainer:
            def __init__(self):
                self.loader = Loader(ds, 4, decode=self.decode, collate=list, threads=2)
            def decode(self, sample):
                junk = [[] for _ in range(50)]
                return [dict(a=junk)]
        for _ in range(60):
            trainer = Trainer()
            next(iter(trainer.loader))
            del trainer
        print("done")
        """,
    )
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr)


def test_closing_inside_of_decode_ends_the_loader(tmp_path):
    write(tmp_path / "set", range(40))
    done = [script(
        tmp_path,
        """
        from bedplate.data import Dataset, Loader
        def decode(sample):
            loader.close()
            return 1
        loader = Loader(Dataset("set"), 4, decode=decode, collate=list)
        try:
            list(loader)
        except ValueError as problem:
            print(problem)
        """,
    ) for _ in range(5)]  # its threads may outlive the interpreter
    for one in done:
        assert (one.returncode, one.stdout, one.stderr) == (0, "the loader is closed\n", "")


def test_a_decode_function_that_hangs_does_not_keep_the_process(tmp_path):
    write(tmp_path / "set", range(40))
    began = time.monotonic()
    done = script(
        tmp_path,
        """
        import threading
        from bedplate.data import Dataset, Loader
        inside = threading.Event()
        def decode(sample):
            inside.set()
            threading.Event().wait()
        loader = Loader(Dataset("set"), 4, decode=decode, timeout=1)
        waiter = threading.Thread(target=lambda: list(loader), daemon=True)
        waiter.start()
        inside.wait(20)
        """,
    )
    assert done.returncode == 0 and time.monotonic() - began < 40
    assert "decode() has not returned" in done.stderr


def test_a_signal_handler_may_close_the_loader_that_it_interrupts(tmp_path):
    write(tmp_path / "set", range(40))
    done = script(
        tmp_path,
        """
        import signal, threading, time
        from bedplate.data import Dataset, Loader
        def decode(sample):
            time.sleep(0.5)
            return 1
        loader = Loader(Dataset("set"), 4, decode=decode, collate=list)
        signal.signal(signal.SIGALRM, lambda *_: loader.close())
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            list(loader)
        except ValueError as problem:
            print(problem)
        """,
    )
    assert done.returncode == 0 and "closed" in done.stdout, (done.returncode, done.stdout, done.stderr)


def test_daemon_threads_may_iterate_while_the_interpreter_ends(tmp_path):
    write(tmp_path / "set", range(100))
    for _ in range(5):
        done = script(
            tmp_path,
            """
            import threading, time
            from bedplate.data import Dataset, Loader
            loader = Loader(Dataset("set"), 4, threads=2)
            def loop():
                while True:
                    for batch in loader:
                        pass
            threading.Thread(target=loop, daemon=True).start()
            time.sleep(0.3)
            """,
        )
        assert done.returncode == 0, done.stderr


class RemoteSet:
    """As much of a Dataset as the warning looks at."""

    def __init__(self, url, sample_bytes, cache=None):
        self.urls, self.cache, self.stored_bytes = [url], cache, 100 * sample_bytes

    def __len__(self):
        return 100


@pytest.mark.parametrize(
    ("dataset", "told"),
    [
        (RemoteSet("s3://bucket/train/", 4096), True),
        (RemoteSet("https://host/train-{00..99}.tar", 100_000), True),
        (RemoteSet("s3://bucket/train/", 4096, "memory:4GB"), False),
        (RemoteSet("s3://bucket/train/", 8 << 20), False),
        (RemoteSet("/data/train", 4096), False),
    ],
)
def test_small_remote_samples_without_a_cache_are_worth_a_warning(dataset, told):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        data.loader._warn_of_requests([dataset])
    assert [dataset.urls[0] in str(w.message) and "cache=" in str(w.message) for w in heard] == [True] * told
