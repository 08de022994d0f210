#!/usr/bin/env python3
"""Small files into shards: `bedplate data pack` beside tar, cp, webdataset's and MosaicML's writers, in turns.

    bench/data/setup.sh
    .venv/bin/python bench/data/pack.py [--repeats 5] [--files 20000]

--files files of 2 to 200 KB (log-uniform, 43 KB in the mean) in folders of 1,000, in the page cache, onto the same disk.
The clock stops when what was made is on the disk (syncfs), for every row: bedplate's shards are so by themselves. CPU
time is that of the process and its children. What was made is counted afterwards: as many samples, no byte less.
"""
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time

from turns import Bench, Column, Row, bedplate_command, cpu, streaming_base

A_FOLDER, SHARD = 1000, 64 << 20


def make_files(turn):
    import numpy

    random = numpy.random.default_rng(0)
    for i in range(turn.args.files):
        folder = turn.folder / "files" / f"{i // A_FOLDER:04}"
        folder.mkdir(parents=True, exist_ok=True)
        size = int(2e3 * 100 ** random.random())
        (folder / f"{i:07}.jpg").write_bytes(random.bytes(size))


def sources(turn):
    return sorted(turn.materials.glob("files/*/*.jpg"))


def on_the_disk(path):
    subprocess.run(["sync", "-f", str(path)], check=True)


def packing(pack, count):
    """pack(turn, out) fills a new folder; count(out) -> (samples, bytes) in it."""

    def measure(turn):
        paths = sources(turn)
        sizes = [len(path.read_bytes()) for path in paths]  # and they are in the page cache
        out = turn.args.folder / f"out-{os.getpid()}"
        out.mkdir()
        try:
            on_the_disk(out)
            began, began_cpu = time.perf_counter(), cpu()
            pack(turn, out)
            on_the_disk(out)
            seconds, used = time.perf_counter() - began, cpu() - began_cpu
            found = count(out)
        finally:
            shutil.rmtree(out)
        if found[0] != len(paths) or found[1] < sum(sizes):
            sys.exit(f"{found[0]} samples and {found[1]} bytes were made of {len(paths)} and {sum(sizes)}")
        return {"bytes": sum(sizes) / seconds, "files": len(paths) / seconds, "cpu": used / sum(sizes) * 1e9}

    return measure


def files_in(out):
    return [path for path in out.rglob("*") if path.is_file()]


def bytes_in(out):
    return sum(path.stat().st_size for path in files_in(out))


def in_tars(out):
    members = 0
    for path in files_in(out):
        if path.suffix == ".tar":
            with tarfile.open(path) as tar:
                members += sum(member.isfile() for member in tar)
    return members, bytes_in(out)


def in_data_set(out):
    from bedplate.data import Dataset

    return len(Dataset(f"{out}/")), bytes_in(out)


def bedplate(*options):
    def pack(turn, out):
        command = [bedplate_command(), "data", "pack", str(turn.materials / "files"), str(out), "--shard-bytes", str(SHARD)]
        subprocess.run(command + list(options), check=True, stdout=subprocess.DEVNULL)

    return pack


def tar(turn, out):
    subprocess.run(["tar", "-C", str(turn.materials / "files"), "-cf", str(out / "all.tar"), "."], check=True)


def cp(turn, out):
    subprocess.run(["cp", "-r", str(turn.materials / "files"), str(out)], check=True)


def in_copies(out):
    paths = [path for path in files_in(out) if path.suffix == ".jpg"]
    return len(paths), sum(path.stat().st_size for path in paths)


def webdataset_writer(turn, out):
    import webdataset

    with webdataset.ShardWriter(f"{out}/%06d.tar", maxsize=SHARD, maxcount=1 << 30, verbose=0) as writer:
        for path in sources(turn):
            writer.write({"__key__": path.stem, "jpg": path.read_bytes()})


def mds_writer(turn, out):
    writer = streaming_base().MDSWriter(out=str(out / "mds"), columns={"key": "str", "jpg": "bytes"}, size_limit=SHARD)
    with writer:
        for path in sources(turn):
            writer.write({"key": path.stem, "jpg": path.read_bytes()})


def in_mds(out):
    index = json.loads((out / "mds/index.json").read_text())
    return sum(shard["samples"] for shard in index["shards"]), bytes_in(out)


PACKED, TARS = in_data_set, in_tars
BENCH = Bench(
    __doc__, __file__,
    {
        "cp -r": Row(packing(cp, in_copies), note="no shards"),
        "tar": Row(packing(tar, in_tars), note="one archive, in no order of samples, not resumable"),
        "bedplate, packed, 1 thread": Row(packing(bedplate("--threads", "1"), PACKED), note="a checksum a sample"),
        "bedplate, packed, all threads": Row(packing(bedplate(), PACKED), note="a checksum a sample"),
        "bedplate, tars, 1 thread": Row(packing(bedplate("--format", "webdataset", "--threads", "1"), TARS)),
        "bedplate, tars, all threads": Row(packing(bedplate("--format", "webdataset"), TARS)),
        "webdataset ShardWriter": Row(packing(webdataset_writer, in_tars), environment="peers", note="not resumable"),
        "mosaicml-streaming MDSWriter": Row(packing(mds_writer, in_mds), environment="peers", note="not resumable"),
    },
    [Column("bytes", "MB/s", 1e-6, digits=0, spread=True), Column("files", "k files/s", 1e-3),
     Column("cpu", "CPU-s/GB", digits=2)],
    lambda args: f"{args.files} files of 2 to 200 KB",
    sizes={"files": 20_000},
    materials=make_files,
)

if __name__ == "__main__":
    BENCH.main()
