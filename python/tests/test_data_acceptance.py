"""bedplate.data as a whole job meets it: several ranks, kill -9, a million samples, fifty epochs.

The other acceptance cases are tests of the engine: docs/acceptance.md says which.
"""

import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest

data = pytest.importorskip("bedplate.data", reason="the package has no extension module here", exc_type=ImportError)
numpy = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

BEDPLATE = pathlib.Path(sys.executable).parent / "bedplate"


def write(folder, counts):
    """Shards of so many samples each; sample i of all is {number: i, text: str(i)}. -> the folder's URL"""
    folder.mkdir()
    number = 0
    for shard, count in enumerate(counts):
        with data.ShardWriter(folder / ("%06d.shard" % shard), {"number": "int64", "text": "str"}) as out:
            for _ in range(count):
                out.write(number=number, text=str(number))
                number += 1
    return str(folder) + "/"


def damage(url, numbers):
    """Flips a bit of these samples, which lie in the first shard."""
    path = pathlib.Path(url) / "000000.shard"
    content = bytearray(path.read_bytes())
    for number in numbers:
        text = str(number).encode()
        record = struct.pack("<IIq", len(text), 0, number) + text  # docs/formats.md, Record
        assert content.count(record) == 1, number
        content[content.index(record) + 8] ^= 0x80
    path.write_bytes(content)


# --- several ranks ------------------------------------------------------------------------------

# Each step ends in an all-reduce: a rank with more steps than another waits for ever, until gloo's timeout.
RANKS = """
import datetime, itertools, json, os, sys
import torch, torch.distributed as dist
from bedplate.data import Dataset, Loader

out, on_bad, tails, *urls = sys.argv[1:]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank = dist.get_rank()
log = open(os.path.join(out, "rank%d" % rank), "a", buffering=1)
for url, tail in itertools.product(urls, tails.split(",")):
    loader = Loader(Dataset(url), 4, shuffle=False, tail=tail, on_bad=on_bad, threads=2)
    assert (loader.rank, loader.world_size) == (rank, dist.get_world_size())
    for step, rows in enumerate(loader):
        number = rows["number"].tolist()
        ranks = torch.ones(1)
        dist.all_reduce(ranks)
        assert int(ranks) == dist.get_world_size()
        log.write(json.dumps({"of": [url, tail], "step": step, "rows": number}) + "\\n")
    log.write(json.dumps({"of": [url, tail], "skipped": loader.stats()["skipped"], "len": len(loader)}) + "\\n")
    dist.barrier()
"""


def job(torchrun, folder, ranks, *arguments):
    """Runs it. -> (what it was as a process, the lines of each rank)"""
    out = folder / "out"
    out.mkdir()
    script = folder / "job.py"
    script.write_text(RANKS)
    done = subprocess.run(torchrun(ranks) + [str(script), str(out), *arguments], capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    lines = [[json.loads(line) for line in (out / ("rank%d" % rank)).read_text().splitlines()] for rank in range(ranks)]
    return done, lines


def test_a_rank_that_drops_samples_stops_at_the_same_step(tmp_path, torchrun):
    """Acceptance case 12, within the limit: the others do not notice."""
    ranks, a_step = 4, 16
    # Of 17 samples three ranks have an empty batch at the end of an uneven epoch.
    sets = [(write(tmp_path / "long", [103]), 103, [1, 17]), (write(tmp_path / "short", [17]), 17, [1])]
    for url, _, bad in sets:
        damage(url, bad)
    done, lines = job(torchrun, tmp_path, ranks, "skip:2", "pad,drop,uneven", *[url for url, _, _ in sets])
    assert done.returncode == 0, done.stderr[-3000:]
    for url, samples, bad in sets:
        full = samples // a_step
        for tail, steps in {"pad": full + 1, "drop": full, "uneven": full + 1}.items():
            of_this = [[line for line in of_rank if line["of"] == [url, tail]] for of_rank in lines]
            rows = [[line["rows"] for line in of_rank if "rows" in line] for of_rank in of_this]
            assert [len(of_rank) for of_rank in rows] == [steps] * ranks, tail
            # In storage order, position p of the epoch is rank p % ranks' own.
            positions = range(samples if tail == "uneven" else steps * a_step)
            skipped = [sum(p % samples in bad for p in positions if p % ranks == rank) for rank in range(ranks)]
            ends = [line for of_rank in of_this for line in of_rank if "skipped" in line]
            assert [(end["skipped"], end["len"]) for end in ends] == [(n, steps) for n in skipped]
            assert skipped[1] == len(bad)
            for rank in range(ranks):
                own = [p % samples for p in positions if p % ranks == rank]
                got = [n for batch in rows[rank] for n in batch]
                # Rows are as many, each in its place; a bad one's is another sample of its batch.
                assert len(got) == len(own)
                assert all(g == n or (n in bad and g not in bad) for g, n in zip(got, own)), (tail, rank)
                assert {len(batch) for batch in rows[rank][:-1]} <= {4}


def test_a_rank_beyond_its_limit_ends_the_job_at_that_step(tmp_path, torchrun):
    """Acceptance case 12, beyond the limit: no rank does a step that another has not done."""
    url = write(tmp_path / "set", [120])
    damage(url, [1, 31, 61])  # rank 1's, in its batches 0, 2 and 5 of 10
    began = time.monotonic()
    done, lines = job(torchrun, tmp_path, 3, "skip:2", "pad", url)
    assert done.returncode != 0
    assert time.monotonic() - began < 60  # torchrun's doing; nobody waited for gloo's timeout
    assert re.search(r"CorruptError: sample 61 \(61 of 000000.shard .*at most 2 are to be skipped", done.stderr), done.stderr[-3000:]
    assert [[line["step"] for line in of_rank] for of_rank in lines] == [[0, 1, 2, 3, 4]] * 3


# --- shards of any number and size ----------------------------------------------------------------


def test_empty_and_uneven_shards_among_others(tmp_path):
    """Acceptance case 11: eight ranks, of which most have no shard of their own."""
    url = write(tmp_path / "set", [0, 1, 57, 0, 3, 0])
    ds = data.Dataset(url)
    assert len(ds) == 61
    seen, steps = [], set()
    for rank in range(8):
        loader = data.Loader(ds, 2, rank=rank, world_size=8, threads=4, tail="uneven")
        batches = [batch["number"].tolist() for batch in loader]
        steps.add(len(batches))
        seen += [n for batch in batches for n in batch]
    assert sorted(seen) == list(range(61)) and steps == {4}
    with pytest.raises(ValueError, match="sample"):
        data.Loader(data.Dataset(write(tmp_path / "empty", [0])), 2)


# --- kill -9 ----------------------------------------------------------------------------------------

READER = """
import json, sys, time
began = time.monotonic()
from bedplate.data import Dataset, Loader
url, cache, state = sys.argv[1:]
imported = time.monotonic()
loader = Loader(Dataset(url, cache=cache), 8, seed=3, tail="uneven", threads=2, as_="numpy")
try:
    loader.load_state_dict(json.load(open(state)))
except FileNotFoundError:
    pass
for i, batch in enumerate(loader):
    took = time.monotonic() - imported
    assert batch["text"] == [str(n) for n in batch["number"].tolist()]
    print(json.dumps({"rows": batch["number"].tolist(), "state": loader.state_dict(), "took": took if i == 0 else 0}), flush=True)
print("end", flush=True)
"""


def read_and_kill(arguments, batches):
    """Kills a reader after so many batches, while it fills the cache. -> its lines"""
    child = subprocess.Popen([sys.executable, "-c", READER, *arguments], stdout=subprocess.PIPE, text=True)
    watchdog = threading.Timer(60, child.kill)
    watchdog.start()
    lines = []
    try:
        for line in child.stdout:
            if line == "end\n":
                break
            lines.append(json.loads(line))
            if len(lines) == batches:
                child.send_signal(signal.SIGKILL)
                break
    finally:
        child.kill()
        child.wait(30)
        watchdog.cancel()
        child.stdout.close()
    return lines


def test_a_job_that_is_killed_goes_on_where_it_was(tmp_path):
    """Acceptance case 5: kill -9 by turns of a job and of its neighbour on the same cache; nothing is cleaned up."""
    url = write(tmp_path / "set", [100] * 12)
    whole = [n for batch in data.Loader(data.Dataset(url), 8, seed=3, tail="uneven", as_="numpy") for n in batch["number"].tolist()]
    cache, state = str(tmp_path / "cache") + ":64MB", tmp_path / "state"
    neighbour = tmp_path / "state-of-the-neighbour"
    seen, rounds, chosen = [], 0, random.Random(5)
    while len(seen) < len(whole):
        others = read_and_kill([url, cache, str(neighbour)], chosen.randint(1, 30))
        assert others and [n for line in others for n in line["rows"]] == whole[:8 * len(others)]
        lines = read_and_kill([url, cache, str(state)], chosen.randint(10, 40))
        assert lines, "a reader without a batch"
        assert lines[0]["took"] < 1, "the first batch after a kill"
        seen += [n for line in lines for n in line["rows"]]
        state.write_text(json.dumps(lines[-1]["state"]))
        rounds += 1
    assert seen == whole and rounds > 3


# --- memory -----------------------------------------------------------------------------------------


def own_memory():
    """Bytes of this process that are no file's."""
    return 1024 * int(re.search(r"^RssAnon:\s+(\d+) kB$", pathlib.Path("/proc/self/status").read_text(), re.M).group(1))


def test_memory_is_flat_over_fifty_epochs_with_a_slow_consumer(tmp_path):
    """Acceptance case 14."""
    folder = tmp_path / "set"
    folder.mkdir()
    with data.ShardWriter(folder / "000000.shard", {"tokens": ("uint16", [2048])}) as out:
        for i in range(2000):
            out.write(tokens=numpy.full(2048, i, "uint16"))
    # 16 batches ahead of 64 KiB; an epoch has 125.
    loader = data.Loader(data.Dataset(str(folder) + "/"), 16, threads=2, prefetch=1 << 20, as_="numpy")
    memory = []
    for _ in range(50):
        for batch in loader:
            # Slower than the two threads: they are found waiting, below.
            numpy.sort(numpy.repeat(batch["tokens"], 2, axis=0), axis=None)
        memory.append(own_memory())
    stats = loader.stats()
    assert stats["idle_ns"] > stats["make_ns"], "the consumer was not slow enough to test anything"
    assert max(memory[10:]) - memory[9] < 2 << 20, memory


# --- a million samples --------------------------------------------------------------------------------

FIRST_BATCH = """
import json, re, sys, time
import numpy
from bedplate.data import Dataset, Loader

def own_memory():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read()).group(1))

before, began = own_memory(), time.perf_counter()
ds = Dataset(sys.argv[1])
loader = Loader(ds, 256, seed=1, threads=2, tail="uneven", as_="numpy")
batches = iter(loader)
counts = numpy.bincount(next(batches)["number"], minlength=100)
first = time.perf_counter() - began
assert ds._native.memory_bytes < 24 * len(ds)
for batch in batches:
    counts += numpy.bincount(batch["number"], minlength=100)
print(json.dumps({"first": first, "index": ds._native.memory_bytes / len(ds), "samples": len(ds),
                  "own": (own_memory() - before) / len(ds), "counts": sorted(set(counts.tolist()))}))
"""


def test_a_million_samples_in_ten_thousand_shards(tmp_path):
    """Acceptance case 15: the first batch within a second, at most 24 bytes of index a sample when all are open."""
    folder = tmp_path / "set"
    write(folder, [100])
    content = (folder / "000000.shard").read_bytes()
    for shard in range(1, 10_000):
        (folder / ("%06d.shard" % shard)).write_bytes(content)
    indexed = subprocess.run([str(BEDPLATE), "data", "index", str(folder)], capture_output=True, text=True, timeout=120)
    assert indexed.returncode == 0, indexed.stderr
    runs = []
    for _ in range(3):  # another process takes the processor now and then
        done = subprocess.run([sys.executable, "-c", FIRST_BATCH, str(folder) + "/"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        runs.append(json.loads(done.stdout))
        if runs[-1]["first"] < 1:
            break
    assert runs[-1]["first"] < 1, runs
    assert runs[-1]["samples"] == 1_000_000 and runs[-1]["counts"] == [10_000]
    assert runs[-1]["index"] <= 24, runs
