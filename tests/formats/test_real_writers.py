"""Sets that the formats' own writers wrote are read as what was given to the writers.

Needs packages from PyPI (bench/peers/formats.txt), which go into build/peers once; without them these tests skip.

    BEDPLATE_DATA_CAT=build/dev/src/data/data_cat .venv/bin/python -m pytest tests/formats
"""

import json
import pathlib
import shutil
import subprocess

import pytest

WRITE = pathlib.Path(__file__).with_name("write_samples.py")


@pytest.fixture(scope="session")
def all_sets(peers, tmp_path_factory):
    """A folder with a set of each kind: written once, since importing the writers takes seconds."""
    folder = tmp_path_factory.mktemp("sets")
    done = subprocess.run([peers, WRITE, folder], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture
def written(all_sets, tmp_path):
    """written(kind) → the shard of a copy of the set, and its samples."""

    def copy(kind):
        shutil.copytree(all_sets / kind, tmp_path / kind)
        shard, *samples = map(json.loads, (all_sets / f"{kind}.jsonl").read_text().splitlines())
        return tmp_path / kind / shard, samples

    return copy


def cat(data_cat, *arguments):
    return subprocess.run([data_cat, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def samples_in(data_cat, shard):
    done = cat(data_cat, shard)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(read, expected):
    assert len(read) == len(expected)
    for i, (one, other) in enumerate(zip(read, expected)):
        assert one == other, f"sample {i}"


@pytest.mark.parametrize("kind", ["tfrecord", "mds", "mds-hashed", "megatron", "megatron-int32", "megatron-multimodal"])
def test_every_sample_is_what_was_written(written, data_cat, kind):
    shard, expected = written(kind)
    compare(samples_in(data_cat, shard), expected)


def test_every_sample_of_webdataset(written, data_cat):
    shard, expected = written("webdataset")
    read = samples_in(data_cat, shard)
    for sample in read:
        sample["fields"].sort()
    compare(read, expected)


def test_a_folder_of_mds_shards_is_one_set(written, data_cat):
    shard, expected = written("mds")
    assert len(list(shard.parent.glob("*.mds"))) > 1
    compare(samples_in(data_cat, f"{shard.parent}/"), expected)


def test_compressed_mds_says_how_to_unpack_and_then_is_read(written, data_cat):
    shard, expected = written("mds-zstd")
    refused = cat(data_cat, shard)
    assert refused.returncode == 1 and "zstd -d --rm" in refused.stderr
    if subprocess.run(["which", "zstd"], capture_output=True).returncode != 0:
        pytest.skip("the program zstd is not installed")
    packed = sorted(shard.parent.glob("*.zstd"))
    subprocess.run(["zstd", "-q", "-d", "--rm", *packed], check=True, timeout=60)
    compare(samples_in(data_cat, shard), expected)
