"""A loader keeps in memory what its order mixes, when that is far away: its ranks fetch it once."""
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from web_server import web_server

data = pytest.importorskip("bedplate.data", reason="the package has no extension module here", exc_type=ImportError)
numpy = pytest.importorskip("numpy")

SAMPLES, SHARDS, WIDTH = 2048, 4, 4096  # bytes: 2 MiB a shard
BLOCKS = SHARDS * 3  # of 1 MiB, the index's included


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    folder = tmp_path_factory.mktemp("far")
    for shard in range(SHARDS):
        with data.ShardWriter(folder / f"{shard:06}.shard", {"x": ("int32", [WIDTH // 4])}) as out:
            for i in range(SAMPLES // SHARDS):
                out.write(x=numpy.full(WIDTH // 4, shard * SAMPLES // SHARDS + i, "int32"))
    with web_server(folder) as server:
        server.set = server.url + "/{000000..%06d}.shard" % (SHARDS - 1)
        yield server


def numbers(loader):
    return [n for batch in loader for n in batch["x"][:, 0].tolist()]


def places():
    return [path.name for path in Path("/dev/shm").glob(f"bedplate-memory1-u{os.geteuid()}-*")]


def test_samples_that_are_mixed_are_fetched_together(far):
    dataset = data.Dataset(far.set)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = data.Loader(dataset, 32, seed=3, as_="numpy")
    window = loader.stats()["window"]
    asked = far.asked
    taken = numbers(loader)
    assert sorted(taken) == list(range(SAMPLES))
    assert far.asked - asked <= BLOCKS
    assert window["bytes"] >= SAMPLES * WIDTH
    assert loader.stats()["window"]["origin_reads"] == far.asked - asked
    loader.close()
    assert places() == []
    with pytest.warns(UserWarning, match="no window of it is kept"):
        plain = data.Loader(dataset, 32, seed=3, as_="numpy", keep_window=False, prefetch=1)
    assert plain.stats()["window"] is None
    asked = far.asked
    assert next(iter(plain))["x"][:, 0].tolist() == taken[:32]
    assert far.asked - asked >= 32


def test_a_sampler_has_no_window(far):
    with pytest.warns(UserWarning, match="no window of it is kept"):
        loader = data.Loader(data.Dataset(far.set), 4, sampler=[5, 2000, 7, 1000], as_="numpy")
    assert numbers(loader) == [5, 2000, 7, 1000]


RANK = """
import json, sys, time
from bedplate.data import Dataset, Loader
loader = Loader(Dataset(sys.argv[1]), 32, seed=3, as_="numpy", rank=int(sys.argv[2]), world_size=2)
print("ready", flush=True)
sys.stdin.readline()
taken = [n for batch in loader for n in batch["x"][:, 0].tolist()]
print(json.dumps(taken), flush=True)
sys.stdin.readline()
"""


def test_the_ranks_of_a_machine_share_it_and_leave_nothing(far):
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, far.set, str(rank)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        for rank in ranks:
            assert rank.stdout.readline() == "ready\n"
        asked = far.asked
        for rank in ranks:
            rank.stdin.write("go\n")
            rank.stdin.flush()
        taken = [json.loads(rank.stdout.readline()) for rank in ranks]
        assert sorted(taken[0] + taken[1]) == list(range(SAMPLES))
        assert far.asked - asked <= BLOCKS
        for rank in ranks:
            rank.communicate("end\n", timeout=60)
            assert rank.returncode == 0
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert places() == []


def test_a_window_beyond_the_set_is_the_set(far):
    loader = data.Loader(data.Dataset(far.set), 32, as_="numpy", window=1 << 40)
    assert loader.stats()["window"]["bytes"] < SAMPLES * WIDTH + (80 << 20)
