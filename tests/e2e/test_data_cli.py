"""bedplate data: what its commands print, what they say to bad input, what Ctrl-C, kill -9 and a full disk leave."""

import http.server
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tarfile
import threading
import time
import zlib

import pytest
from conftest import needs_root
from support import BEDPLATE, bedplate, eventually, finish


def data(*arguments, cwd, **more):
    return bedplate("data", *arguments, cwd=cwd, **more)


def ok(*arguments, cwd, **more) -> str:
    done = data(*arguments, cwd=cwd, **more)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout.decode()


def said(*arguments, cwd, code, **more) -> str:
    """The talk of a command that is to fail with this exit code."""
    done = data(*arguments, cwd=cwd, **more)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    assert b"internal" not in done.stderr
    return done.stderr.decode()


def pictures(folder, count=5, size=1000):
    folder.mkdir(parents=True)
    for i in range(count):
        (folder / f"{i:05}.jpg").write_bytes(i.to_bytes(4, "little") * (size // 4))
        (folder / f"{i:05}.cls").write_text(str(i % 10))


def files(folder) -> dict:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_from_pictures_to_shards_and_back(tmp_path):
    pictures(tmp_path / "in", 7)
    assert ok("pack", "in", "out", "--shard-samples", "3", cwd=tmp_path).startswith("out: 7 samples in 3 shards")
    rows = ok("ls", "out", cwd=tmp_path).splitlines()
    assert [row.split()[0] for row in rows] == ["samples", "3", "3", "1", "7"]
    listed = json.loads(ok("ls", "out", "--json", cwd=tmp_path))
    assert [one["samples"] for one in listed] == [3, 3, 1]
    assert {one["format"] for one in listed} == {"packed"}
    samples = [json.loads(line) for line in ok("ls", "out", "--samples", "--json", cwd=tmp_path).splitlines()]
    assert samples[4]["key"] == "00004"
    assert samples[4]["fields"][1] == {"name": "jpg", "dtype": "bytes", "shape": [1000], "bytes": 1000}
    assert re.search(r"^ *4  00004  cls:bytes\[1\]  jpg:bytes\[1000\]$", ok("ls", "out", "--samples", cwd=tmp_path), re.M)
    raw = data("cat", "out", "--sample", "4", "--field", "jpg", "--raw", cwd=tmp_path).stdout
    assert raw == (tmp_path / "in/00004.jpg").read_bytes()
    lines = ok("cat", "out", "--range", "2:5", "--field", "cls", cwd=tmp_path).splitlines()
    assert [json.loads(line) for line in lines] == [{"__key__": f"{i:05}", "cls": str(i)} for i in (2, 3, 4)] or [
        json.loads(line)["cls"] for line in lines
    ] == ["2", "3", "4"]
    assert "all is well" in ok("verify", "out", cwd=tmp_path)
    facts = json.loads(ok("stat", "out", "--json", cwd=tmp_path))
    assert facts["samples"] == 7 and facts["looked_at"] == 7
    assert [field["name"] for field in facts["fields"]] == ["__key__", "cls", "jpg"]
    assert "█" in ok("stat", "out", cwd=tmp_path)


def test_what_cat_writes_can_be_packed(tmp_path):
    lines = [{"t": "ä\n", "v": [1.5, -2.0], "n": 2**60, "b": True}, {"t": "", "v": [], "n": -1, "b": False}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ok("pack", "in.jsonl", "a", cwd=tmp_path)
    text = ok("cat", "a", cwd=tmp_path)
    assert [json.loads(line) for line in text.splitlines()] == lines
    (tmp_path / "again.jsonl").write_text(text)
    ok("pack", "again.jsonl", "b", cwd=tmp_path)
    assert files(tmp_path / "a")["000000.shard"] == files(tmp_path / "b")["000000.shard"]


def test_tars_are_those_that_others_read_and_write(tmp_path):
    with tarfile.open(tmp_path / "theirs.tar", "w") as tar:
        for i in range(4):
            (tmp_path / "x").write_bytes(bytes([i]) * i)
            tar.add(tmp_path / "x", f"dir/{i}.bin")
            tar.add(tmp_path / "x", f"dir/{i}.seg.bin")
    ok("pack", "theirs.tar", "packed", cwd=tmp_path)
    ok("pack", "packed", "tars", "--format", "webdataset", cwd=tmp_path)
    with tarfile.open(tmp_path / "tars/000000.tar") as tar:
        assert sorted(tar.getnames()) == sorted(f"dir/{i}.{e}" for i in range(4) for e in ("bin", "seg.bin"))
        assert tar.extractfile("dir/3.seg.bin").read() == b"\3\3\3"
    made = ok("index", "tars", cwd=tmp_path)
    assert "made" in made and "4 samples" in made
    assert "manifest written" in made
    before = files(tmp_path / "tars")
    assert "kept" in ok("index", "tars", cwd=tmp_path)
    assert files(tmp_path / "tars").keys() == before.keys()
    assert files(tmp_path / "tars")["000000.tar.bpidx"] == before["000000.tar.bpidx"]
    assert [one["made"] for one in json.loads(ok("index", "tars", "--again", "--json", cwd=tmp_path))["indexes"]] == [True]


def test_numpy_arrays_go_in_and_come_out(tmp_path):
    numpy = pytest.importorskip("numpy")
    for dtype in ("<f2", "<i8", "|b1", "|u1"):
        rows = (numpy.arange(30).reshape(5, 3, 2) % 2 if dtype == "|b1" else numpy.arange(30).reshape(5, 3, 2)).astype(dtype)
        numpy.save(tmp_path / "rows.npy", rows)
        for folder in ("out", "tars"):
            shutil.rmtree(tmp_path / folder, ignore_errors=True)
        ok("pack", "rows.npy", "out", cwd=tmp_path)
        text = ok("cat", "out", cwd=tmp_path)
        assert [json.loads(line)["array"] for line in text.splitlines()] == rows.tolist()
        ok("pack", "rows.npy", "tars", "--format", "webdataset", cwd=tmp_path)
        with tarfile.open(tmp_path / "tars/000000.tar") as tar:
            assert (numpy.load(io.BytesIO(tar.extractfile(tar.getnames()[3]).read())) == rows[3]).all()
    numpy.save(tmp_path / "f.npy", numpy.asfortranarray(numpy.ones((3, 3))))
    assert "f.npy" in said("pack", "f.npy", "no", cwd=tmp_path, code=3)
    numpy.save(tmp_path / "o.npy", numpy.array([{"a": 1}]), allow_pickle=True)
    assert "o.npy" in said("pack", "o.npy", "no", cwd=tmp_path, code=3)


@pytest.mark.parametrize(
    "arguments, code, text",
    [
        (["pack"], 2, "SRC… DST"),
        (["pack", "in"], 2, "SRC… DST"),
        (["pack", "nowhere", "out"], 3, "nowhere is not there"),
        (["pack", "empty", "out"], 3, "empty"),
        (["pack", "in", "in/out"], 2, "lies in the source"),
        (["pack", "in", "in"], 2, "lies in the source"),
        (["pack", "in", "file"], 3, "file"),
        (["pack", "in", "/proc/self/nothing"], 3, "/proc/self/nothing"),
        (["pack", "in", "s4://bucket/x"], 2, "did you mean"),
        (["pack", "in", "out", "--from", "filse"], 2, "did you mean files?"),
        (["pack", "in", "out", "--format", "zip"], 2, "zip"),
        (["pack", "in", "out", "--on-bad", "ignore"], 2, "skip:N"),
        (["pack", "in", "out", "--shard-bytes", "12"], 2, "too small"),
        (["pack", "in", "out", "--shard-bytes", "many"], 2, "--shard-bytes"),
        (["pack", "in", "out", "--tokens", "u16"], 2, "--length"),
        (["pack", "in", "out", "--tokens", "u17", "--length", "4"], 2, "u17"),
        (["pack", "in", "out", "--schema", "a:b"], 2, "no schema"),
        (["pack", "bad.jsonl", "out"], 2, "line 3 of bad.jsonl"),
        (["pack", "mixed.jsonl", "out"], 2, "line 2 of mixed.jsonl"),
        (["pack", "in", "out", "--thraeds", "2"], 2, "did you mean --threads?"),
        (["ls", "nowhere"], 3, "nowhere is not there"),
        (["ls", "in"], 3, "holds no shards"),
        (["ls", "file"], 2, "no format"),
        (["ls", "whole", "--format", "packt"], 2, "did you mean packed?"),
        (["cat", "whole", "--sample", "5"], 2, "there are 5"),
        (["cat", "whole", "--range", "3"], 2, "A:B"),
        (["cat", "whole", "--range", "4:3"], 2, "A:B"),
        (["cat", "whole", "--raw"], 2, "--field"),
        (["cat", "whole", "--field", "nope"], 2, "jpg"),
        (["index", "whole/000000.shard"], 3, "neither folders nor tars"),
        (["stat", "whole", "--looks", "0"], 2, "--looks"),
        (["bench", "whole", "--rank", "2", "--world-size", "2"], 2, "ranks count from 0"),
        (["bench", "whole", "--decode", "big"], 2, "--decode big is no size"),
        (["bench", "whole", "--decode", "224"], 2, "no picture to decode"),
        (["bench", "whole", "--field", "png"], 2, "__key__, cls, jpg"),
        (["bench", "whole", "--seconds", "0"], 2, "--seconds"),
        (["bench", "whole", "--cold", "--epochs", "2"], 2, "only the first epoch is cold"),
        (["bench", "in"], 3, "holds no shards"),
        (["vreify", "whole"], 2, "did you mean verify?"),
        ([], 2, "pack, ls, cat"),
        (["--hlep"], 2, "did you mean --help?"),
    ],
)
def test_a_mistake_is_answered_with_what_is_wrong(tmp_path, arguments, code, text):
    pictures(tmp_path / "in")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n{"a": 2}\n{"a": \n')
    (tmp_path / "mixed.jsonl").write_text('{"a": 1}\n{"a": "x"}\n')
    ok("pack", "in", "whole", cwd=tmp_path)
    assert text in said(*arguments, cwd=tmp_path, code=code)
    assert not (tmp_path / "out").exists() or set(files(tmp_path / "out")) <= {"pack.json"}
    assert len(files(tmp_path / "in")) == 10


def png(width, height) -> bytes:
    """A grey picture."""
    rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(width)) for y in range(height))
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def test_bench_reads_what_a_loader_would(tmp_path):
    (tmp_path / "in").mkdir()
    for i in range(40):
        (tmp_path / f"in/{i:02}.png").write_bytes(png(40 + i, 30))
        (tmp_path / f"in/{i:02}.cls").write_text(str(i))
    ok("pack", "in", "out", "--shard-samples", "16", cwd=tmp_path)

    def bench(*arguments):
        return json.loads(ok("bench", "out", "--seconds", "30", "--json", *arguments, cwd=tmp_path))

    whole = bench("--batch-size", "8", "--epochs", "3")
    assert (whole["samples"], whole["batches"], whole["epochs"]) == (120, 15, 3)
    assert whole["dataset"] == {"samples": 40, "shards": 3, "formats": ["packed"]}
    assert whole["samples_per_second"] == pytest.approx(120 / whole["seconds"])
    assert whole["cpu_seconds"] > 0 and whole["peak_memory_bytes"] > 0 and whole["first_batch_seconds"] <= whole["seconds"]
    assert set(whole["thread_seconds"]) == {"read", "check", "copy_and_decode", "wait_for_consumer"}
    rank = bench("--batch-size", "5", "--epochs", "1", "--rank", "1", "--world-size", "4")
    assert rank["samples"] == 10
    one = bench("--epochs", "1", "--field", "cls", "--shuffle", "none")
    assert one["options"]["fields"] == ["cls"]
    cold = bench("--cold", "--batch-size", "8")
    assert (cold["samples"], cold["epochs"], cold["options"]["files_dropped"]) == (40, 1, 3)
    assert "page cache was emptied of 3 files" in data("bench", "out", "--cold", cwd=tmp_path).stderr.decode()
    text = ok("bench", "out", "--epochs", "1", cwd=tmp_path)
    for word in ("samples/s", "samples per CPU-second", "to the first batch", "waiting for the consumer"):
        assert word in text
    if re.search(rb"decode +on", bedplate("version", "--features", cwd=tmp_path).stdout):
        decoded = bench("--epochs", "1", "--batch-size", "8", "--decode", "16x24")
        assert decoded["options"]["decoded"] == ["png"] and decoded["samples"] == 40


def test_ctrl_c_ends_a_bench(tmp_path):
    pictures(tmp_path / "in")
    ok("pack", "in", "out", cwd=tmp_path)
    started = subprocess.Popen([BEDPLATE, "data", "bench", "out", "--seconds", "600"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def handles(number):
        with open(f"/proc/{started.pid}/status") as status:
            caught = re.search(r"SigCgt:\s*(\w+)", status.read())
        return int(caught.group(1), 16) >> (number - 1) & 1

    eventually(lambda: handles(signal.SIGINT), "its handler")
    started.send_signal(signal.SIGINT)
    finish(started)
    assert started.returncode == -signal.SIGINT


def test_an_index_of_loose_files_freezes_them(tmp_path):
    pictures(tmp_path / "in", 3)
    assert "loose files are read with format=files" in said("index", "in", cwd=tmp_path, code=3)
    made = json.loads(ok("index", "in", "--format", "files", "--json", cwd=tmp_path))
    assert made["listings"][0]["files"] == 6 and made["listings"][0]["listing"] == "made"
    assert "listing kept" in ok("index", "in", cwd=tmp_path)
    (tmp_path / "in/99999.jpg").write_bytes(b"later")
    assert json.loads(ok("stat", "in", "--json", cwd=tmp_path))["samples"] == 6
    assert "listing replaced" in ok("index", "in", cwd=tmp_path)
    assert json.loads(ok("stat", "in", "--json", cwd=tmp_path))["samples"] == 7
    (tmp_path / "in/99999.jpg").write_bytes(b"changed")
    changed = data("verify", "in", cwd=tmp_path)
    assert changed.returncode == 1 and "1 bad" in changed.stdout.decode()


def test_help_of_a_family(tmp_path):
    family = ok("--help", cwd=tmp_path)
    for name in ("pack", "ls", "cat", "stat", "verify", "index", "bench"):
        assert re.search(rf"^  {name} +\S", family, re.M)
        text = ok(name, "--help", cwd=tmp_path)
        assert text.startswith(f"bedplate data {name}: ")
        assert max(map(len, text.splitlines())) <= 100
        assert bedplate("help", "data", name, cwd=tmp_path).stdout.decode() == text


def completed(tmp_path, line: str) -> set:
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _bedplate; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", tmp_path / "completion", *line.split(" ")], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
    )
    assert done.stderr == b"", done.stderr
    return set(done.stdout.decode().split())


def test_completion_knows_families(tmp_path):
    (tmp_path / "completion").write_bytes(bedplate("completion", "bash", cwd=tmp_path).stdout)
    assert completed(tmp_path, "bedplate da") == {"data"}
    assert completed(tmp_path, "bedplate data ") == {"pack", "ls", "cat", "stat", "verify", "index", "bench", "--help"}
    assert completed(tmp_path, "bedplate data v") == {"verify"}
    assert completed(tmp_path, "bedplate data pack --shu") == {"--shuffle"}
    assert completed(tmp_path, "bedplate data cat x --ra") == {"--range", "--raw"}


def test_names_of_any_bytes(tmp_path):
    (tmp_path / "in").mkdir()
    for name in (b"new\nline.bin", "日本.bin".encode(), b"\xff\x1b.bin"):
        (tmp_path / "in" / os.fsdecode(name)).write_bytes(name)
    text = said("pack", "in", "out", cwd=tmp_path, code=2)
    assert "--keys bytes" in text and "\x1b" not in text
    ok("pack", "in", "out", "--keys", "bytes", cwd=tmp_path)
    assert "\x1b" not in ok("ls", "out", "--samples", cwd=tmp_path)
    assert len(ok("ls", "out", "--samples", cwd=tmp_path).splitlines()) == 3
    last = json.loads(ok("cat", "out", "--sample", "2", cwd=tmp_path))
    assert set(last["__key__"]) == {"base64"}
    ok("pack", "in", "tars", "--format", "webdataset", cwd=tmp_path)
    listed = subprocess.run(["tar", "-tf", "tars/000000.tar", "--quoting-style=literal"], cwd=tmp_path, capture_output=True)
    assert listed.stdout.splitlines().count("日本.bin".encode()) == 1 and b"\xff\x1b.bin" in listed.stdout


def test_an_empty_file_is_a_sample(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_bytes(b"")
    (tmp_path / "in/b.txt").write_bytes(b"")
    for extra in ([], ["--format", "webdataset", "--overwrite"], ["--from", "text", "--sample", "file", "--overwrite"]):
        ok("pack", "in", "out", *extra, cwd=tmp_path)
        assert len(ok("cat", "out", cwd=tmp_path).splitlines()) == 2


def test_a_bad_sample_is_a_finding_and_the_line_names_it(tmp_path):
    pictures(tmp_path / "in", 40)
    ok("pack", "in", "out", "--shard-samples", "20", cwd=tmp_path)
    shard = tmp_path / "out/000001.shard"
    whole = shard.read_bytes()
    at = whole.index((33).to_bytes(4, "little") * 100) + 17
    shard.write_bytes(whole[:at] + bytes([whole[at] ^ 8]) + whole[at + 1 :])
    done = data("verify", "out", cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 2 and re.search(r"000001\.shard: sample 13, from byte \d+ on: .*checksum", lines[0]), lines
    report = json.loads(data("verify", "out", "--json", cwd=tmp_path).stdout)
    assert report["bad_samples"] == 1 and report["samples"] == 40 and report["bad"][0]["sample"] == 13
    assert "sample 33" in said("cat", "out", cwd=tmp_path, code=3)
    # As a source, too, it is named; or left out.
    assert "sample 33" in said("pack", "out", "again", cwd=tmp_path, code=3)
    done = data("pack", "out", "again", "--on-bad", "skip:1", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["samples"] == 39 and "000001.shard" in done.stderr.decode()


def test_what_is_there_is_not_overwritten(tmp_path):
    pictures(tmp_path / "in")
    ok("pack", "in", "out", cwd=tmp_path)
    before = files(tmp_path / "out")
    assert "nothing to do" in ok("pack", "in", "out", cwd=tmp_path)
    assert "--shuffle was not given, now it is 3" in said("pack", "in", "out", "--shuffle", "3", cwd=tmp_path, code=2)
    (tmp_path / "in/00009.jpg").write_bytes(b"new")
    (tmp_path / "in/00009.cls").write_bytes(b"9")
    assert "it had 10 files" in said("pack", "in", "out", cwd=tmp_path, code=2)
    assert files(tmp_path / "out") == before
    ok("pack", "in", "out", "--overwrite", cwd=tmp_path)
    assert len(ok("cat", "out", "--field", "cls", cwd=tmp_path).splitlines()) == 6


def slow_pack(tmp_path, count=400):
    """Arguments of a pack that makes many shards."""
    pictures(tmp_path / "in", count, 4096)
    return ["pack", "in", "out", "--shard-samples", "2"]


def shards_of(folder):
    return sorted(folder.glob("*.shard")) if folder.exists() else []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_what_can_be_gone_on_with(tmp_path, number):
    arguments = slow_pack(tmp_path)
    started = subprocess.Popen([BEDPLATE, "data", *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: len(shards_of(tmp_path / "out")) >= 2, "the first shards")
    started.send_signal(number)
    out, err = finish(started)
    if started.returncode == 0:
        pytest.skip("it was done before the signal came")
    assert started.returncode == -number, err  # a shell says 128 + number
    assert out == b"" and b"the same command goes on" in err
    assert [p.name for p in (tmp_path / "out").iterdir() if p.name.startswith(".")] == []
    left = len(shards_of(tmp_path / "out"))
    assert 2 <= left < 200
    assert f"{left} were there already" in ok(*arguments, cwd=tmp_path)
    whole = tmp_path / "whole"
    ok("pack", "in", "whole", "--shard-samples", "2", cwd=tmp_path)
    assert files(tmp_path / "out") == files(whole)


def test_after_kill_9_temporaries_are_cleaned_and_the_pack_is_the_same(tmp_path):
    arguments = slow_pack(tmp_path)
    ok("pack", "in", "whole", "--shard-samples", "2", cwd=tmp_path)
    for wanted in (1, 20, 60, 120):
        started = subprocess.Popen([BEDPLATE, "data", *arguments], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(lambda: len(shards_of(tmp_path / "out")) >= wanted or started.poll() is not None, f"{wanted} shards")
        started.kill()
        started.wait()
        for shard in shards_of(tmp_path / "out"):
            assert shard.read_bytes() == (tmp_path / "whole" / shard.name).read_bytes()
    ok(*arguments, cwd=tmp_path)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_two_at_once_make_one_pack(tmp_path):
    arguments = slow_pack(tmp_path, 60)
    both = [
        subprocess.Popen([BEDPLATE, "data", *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    ends = [(finish(each), each.returncode) for each in both]
    for (out, err), code in ends:
        assert code in (0, 2), (out, err)  # 2: the other one had made a shard first
        assert code == 0 or b"exists" in err, err
    ok(*arguments, cwd=tmp_path)
    ok("pack", "in", "whole", "--shard-samples", "2", cwd=tmp_path)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@needs_root
def test_a_full_disk_is_said_and_gone_on_after(tmp_path):
    pictures(tmp_path / "in", 200, 16384)
    (tmp_path / "small").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", tmp_path / "small"], check=True)
    try:
        arguments = ["pack", "in", "small/out", "--shard-samples", "10"]
        text = said(*arguments, cwd=tmp_path, code=3)
        assert "No space" in text or "full" in text, text
        names = set(files(tmp_path / "small/out"))
        assert not any(name.startswith(".") for name in names) and len(names) > 2
        assert "all is well" in ok("verify", "small/out", cwd=tmp_path)
        subprocess.run(["mount", "-o", "remount,size=20m", tmp_path / "small"], check=True)
        ok(*arguments, cwd=tmp_path)
        ok("pack", "in", "whole", "--shard-samples", "10", cwd=tmp_path)
        assert files(tmp_path / "small/out") == files(tmp_path / "whole")
    finally:
        subprocess.run(["umount", "-l", tmp_path / "small"], check=True)


def test_cat_ends_quietly_when_nobody_reads_on(tmp_path):
    (tmp_path / "in.txt").write_text("line\n" * 200_000)
    ok("pack", "in.txt", "out", cwd=tmp_path)
    done = subprocess.run(["bash", "-c", f"{BEDPLATE} data cat out | head -n 1"], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.stdout == b'{"text":"line"}\n' and done.stderr == b""


def test_the_progress_line_comes_after_two_seconds_and_goes(tmp_path, terminal):
    arguments = slow_pack(tmp_path)
    begin = time.monotonic()
    shown = terminal(BEDPLATE, "data", *arguments, "--threads", "1")
    eventually(lambda: len(shards_of(tmp_path / "out")) >= 2, "the first shards")
    os.kill(shown.pid, signal.SIGSTOP)
    time.sleep(max(0.0, begin + 2.2 - time.monotonic()))  # the two seconds are what is tested
    early = len(shards_of(tmp_path / "out")) < 190
    os.kill(shown.pid, signal.SIGCONT)
    assert shown.finish() == 0
    text = shown.seen.decode(errors="replace")
    lines = re.findall(r"\r\x1b\[Kbedplate: packing █*░* \d+ % · \d+ of 400 samples", text)
    assert lines or not early, text
    assert "\x1b[K" not in text[text.rindex("out: 400 samples in 200 shards") :]
    if lines:
        assert text.rindex("\r\x1b[K") > text.rindex(lines[-1])  # it was taken away


def test_stdout_that_cannot_be_written_is_no_success(tmp_path):
    pictures(tmp_path / "in")
    ok("pack", "in", "out", cwd=tmp_path)
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BEDPLATE, "data", "cat", "out"], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 3


def test_an_image_folder_becomes_labelled_samples(tmp_path):
    for name in ("ant/1.jpg", "ant/2.png", "bee/1.JPEG", "bee/Thumbs.db"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(name.encode())
    done = data("pack", "in", "out", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert report["classes"] == ["ant", "bee"] and report["samples"] == 3
    assert "ant = 0, bee = 1, in the column cls" in done.stderr.decode() and "Thumbs.db" in done.stderr.decode()
    samples = [json.loads(line) for line in ok("cat", "out", cwd=tmp_path).splitlines()]
    assert [(one["__key__"], one["jpg"], one["cls"]) for one in samples] == [("ant/1", "ant/1.jpg", 0), ("ant/2", "ant/2.png", 0), ("bee/1", "bee/1.JPEG", 1)]
    assert json.loads((tmp_path / "out/pack.json").read_text())["classes"] == ["ant", "bee"]
    ok("pack", "in", "bees", "--labels", "folder", "--exclude", "ant/", "--exclude", "*.xmp", cwd=tmp_path)
    assert json.loads(ok("cat", "bees", "--field", "cls", cwd=tmp_path))["cls"] == 0
    assert "cls" not in ok("ls", "--samples", "out", cwd=tmp_path).replace("cls:i64", "")
    ok("pack", "in", "none", "--labels", "none", cwd=tmp_path)
    assert "cls" not in ok("cat", "none", cwd=tmp_path)


def test_patterns_and_home_are_expanded_where_no_shell_did(tmp_path):
    pictures(tmp_path / "in", 4)
    ok("pack", "in", "wds", "--format", "webdataset", "--shard-samples", "2", cwd=tmp_path)
    assert len(json.loads(ok("ls", "wds/*.tar", "--json", cwd=tmp_path))) == 2
    assert len(json.loads(ok("ls", "w?s", "--json", cwd=tmp_path))) == 2
    assert "matches" in said("ls", "wds/*.shard", cwd=tmp_path, code=3)
    home = dict(os.environ, HOME=str(tmp_path))
    assert len(json.loads(ok("ls", "~/wds", "--json", cwd="/", env=home))) == 2
    ok("pack", "wds/0*.tar", "packed", cwd=tmp_path)
    assert json.loads(ok("stat", "packed", "--json", cwd=tmp_path))["samples"] == 4


def test_verify_says_what_it_could_not_check(tmp_path):
    pictures(tmp_path / "in", 3)
    done = data("verify", "in", "--format", "files", cwd=tmp_path)
    assert done.returncode == 0 and "all is well" not in done.stdout.decode()
    assert "all can be read; no checksum" in done.stdout.decode() and "6 samples have no checksum" in done.stderr.decode()
    listed = ok("ls", "in", "--format", "files", cwd=tmp_path)
    assert "bedplate.files" not in listed and str(tmp_path / "in") in listed
    report = json.loads(ok("verify", "in", "--format", "files", "--json", cwd=tmp_path))
    assert (report["checked"], report["unchecked"]) == (0, 6)
    ok("pack", "in", "out", cwd=tmp_path)
    assert "all is well, by the checksum of each" in ok("verify", "out", cwd=tmp_path)


def test_a_wrong_number_is_answered_with_whole_numbers(tmp_path):
    pictures(tmp_path / "in", 3)
    for option, value in (("--length", "0"), ("--shard-samples", "-1"), ("--length", "many"), ("--length", "9" * 30)):
        text = said("pack", "in", "out", option, value, cwd=tmp_path, code=2)
        assert option in text and "1 or more" in text and len(text) < 300
    ok("pack", "in", "out", cwd=tmp_path)
    assert "there are 3 samples, from 0 on; 1: goes to their end" in said("cat", "out", "--range", "1:9", cwd=tmp_path, code=2)
    assert "is no range" in said("cat", "out", "--range", "2:1", cwd=tmp_path, code=2)
    assert "--looks" in said("stat", "out", "--looks", "0", cwd=tmp_path, code=2)


def test_s3_without_keys_names_what_is_read(tmp_path):
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    text = said("ls", "s3://bucket/x/", cwd=tmp_path, code=3, env=bare)
    for word in ("AWS_ACCESS_KEY_ID", "aws_secret_access_key", "/.aws/credentials", "BEDPLATE_S3_ANONYMOUS=1"):
        assert word in text
    assert "it is 1 or 0" in said("ls", "s3://bucket/x/", cwd=tmp_path, code=2, env=dict(bare, BEDPLATE_S3_ANONYMOUS="yes"))


def test_a_public_bucket_is_read_unsigned_when_the_environment_says_so(tmp_path):
    signed = []

    class Bucket(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            signed.append("Authorization" in self.headers)
            page = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "BEDPLATE_S3_ANONYMOUS": "1",
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.server_address[1]}",
        }
        assert "holds no shards" in said("ls", "s3://bucket/x/", cwd=tmp_path, code=3, env=environment)
        server.shutdown()
    assert signed and not any(signed)
