#!/usr/bin/env python3
"""Samples that are not in the page cache: bedplate.data beside fio, over the same files, in turns.

    .venv/bin/python bench/data/cold.py [--repeats 5] [--megabytes 512] [--cases 4KiB 64KiB]

Packed shards of samples of 4 KiB to 1 MiB, each sample on a page of its own. Before each measurement the files leave
the page cache (posix_fadvise), and mincore must agree that they have. fio reads the same files through io_uring in
blocks of a sample, as deep as the loader does: 32 reads in each of its two threads.

  fio …, O_DIRECT       the device: past the page cache
  fio …, page cache     as the loader reads: through the page cache, which is empty at the begin
  bedplate              Loader: through the page cache, with every checksum, into batches of 64 (of 32 at 1 MiB);
                        opening included. full shuffle: a read a sample, from anywhere; block shuffle: its default;
                        storage order: shards one after the other
  bedplate, O_DIRECT    with storage={"direct": True}

The last column is the row's rate as a share of the faster fio of the same order. Each epoch is checked: every sample
once, by the number that it begins with.
"""
import ctypes
import json
import mmap
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from turns import Bench, Column, Row, cpu

THREADS, DEPTH, SHARDS = 2, 32, 4
SIZES = {"4KiB": 4 << 10, "16KiB": 16 << 10, "64KiB": 64 << 10, "256KiB": 256 << 10, "1MiB": 1 << 20}


def batch_of(turn):
    """Two rounds of reads as deep as they go, or one of large ones."""
    return 2 * DEPTH if SIZES[turn.case] < 1 << 20 else DEPTH


def samples_of(turn):
    return (turn.args.megabytes << 20) // SIZES[turn.case]


def write_shards(turn):
    import numpy
    from bedplate.data import ShardWriter

    length, count = SIZES[turn.case], samples_of(turn)
    row = numpy.random.default_rng(0).integers(0, 256, length, dtype="uint8")
    for shard in range(SHARDS):
        with ShardWriter(turn.folder / f"{shard:06}.shard", {"bytes": ("uint8", [length])}) as out:
            for i in range(shard * count // SHARDS, (shard + 1) * count // SHARDS):
                row[:8] = numpy.frombuffer(i.to_bytes(8, "little"), "uint8")
                out.write(bytes=row)


def shards(turn):
    return sorted(turn.folder.glob("*.shard"))


def cached_share(path):
    """Of the file's pages, by mincore(2)."""
    size = path.stat().st_size
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        there = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(mapped)
        if ctypes.CDLL(None, use_errno=True).mincore(ctypes.byref(first), ctypes.c_size_t(size), there):
            raise OSError(ctypes.get_errno(), "mincore", str(path))
        del first
        return sum(page & 1 for page in there) / len(there)


def leave_the_page_cache(paths):
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())  # what is to be written stays
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if cached_share(path) > 0.01:
            sys.exit(f"{path.name} does not leave the page cache: somebody else has it mapped?")


def fio(order, direct):
    def measure(turn):
        leave_the_page_cache(shards(turn))
        if shutil.which("fio") is None:
            sys.exit("fio is not installed: apt-get install fio")
        service = {"randread": "random", "read": "sequential"}[order]
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            subprocess.run(
                ["fio", "--name=cold", "--readonly", "--ioengine=io_uring", f"--rw={order}", f"--bs={SIZES[turn.case]}",
                 f"--iodepth={DEPTH * THREADS}", f"--direct={int(direct)}", "--filename=" + ":".join(map(str, shards(turn))),
                 f"--file_service_type={service}", "--output-format=json", f"--output={out.name}"],
                check=True, timeout=600, stdout=subprocess.DEVNULL)
            job = json.loads(pathlib.Path(out.name).read_text())["jobs"][0]
        done = job["read"]
        if done["io_bytes"] < 0.99 * (turn.args.megabytes << 20):
            sys.exit(f"fio read {done['io_bytes']} bytes only")
        seconds = done["runtime"] / 1e3
        used = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3
        return {"bytes": done["io_bytes"] / seconds, "reads": done["total_ios"] / seconds, "cpu": used / done["io_bytes"] * 1e9}

    return measure


def bedplate(shuffle, direct=False):
    def measure(turn):
        import numpy
        from bedplate.data import Dataset, Loader

        leave_the_page_cache(shards(turn))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
        began, began_cpu = time.perf_counter(), cpu()
        data = Dataset(f"{turn.folder}/", storage={"direct": direct})
        loader = Loader(data, batch_of(turn), shuffle=shuffle, threads=THREADS, tail="uneven", as_="numpy")
        heads = [batch["bytes"][:, :8].copy() for batch in loader]
        seconds, used = time.perf_counter() - began, cpu() - began_cpu
        from_disk = 512 * (resource.getrusage(resource.RUSAGE_SELF).ru_inblock - before)
        count = samples_of(turn)
        numbers = numpy.concatenate(heads).view("<u8").reshape(-1)
        if len(numbers) != count or (numpy.sort(numbers) != numpy.arange(count)).any():
            sys.exit(f"an epoch of {len(numbers)} samples, not each of the {count} once")
        if (shuffle is False) != bool((numpy.diff(numbers.astype("int64")) == 1).all()):
            sys.exit(f"with shuffle={shuffle!r} the order was not that")
        size = count * SIZES[turn.case]
        return {"bytes": size / seconds, "reads": count / seconds, "cpu": used / size * 1e9, "disk": from_disk / size}

    return measure


RANDOM = ("fio, random, O_DIRECT", "fio, random, page cache")
ORDERED = ("fio, in order, O_DIRECT", "fio, in order, page cache")
BENCH = Bench(
    __doc__, __file__,
    {
        RANDOM[0]: Row(fio("randread", True), write_shards),
        RANDOM[1]: Row(fio("randread", False), write_shards),
        "bedplate, full shuffle": Row(bedplate("full"), write_shards, against=RANDOM),
        "bedplate, full shuffle, O_DIRECT": Row(bedplate("full", True), write_shards, against=RANDOM),
        "bedplate, block shuffle": Row(bedplate("block"), write_shards, against=RANDOM),
        ORDERED[0]: Row(fio("read", True), write_shards),
        ORDERED[1]: Row(fio("read", False), write_shards),
        "bedplate, storage order": Row(bedplate(False), write_shards, against=ORDERED),
        "bedplate, storage order, O_DIRECT": Row(bedplate(False, True), write_shards, against=ORDERED),
    },
    [Column("bytes", "MB/s", 1e-6, digits=0, spread=True), Column("reads", "k samples/s", 1e-3),
     Column("cpu", "CPU-s/GB", digits=2), Column("disk", "read/needed", digits=2)],
    lambda args: f"{args.megabytes} MiB in {SHARDS} shards, cold, {THREADS} × {DEPTH} reads deep",
    sizes={"megabytes": 512},
    cases=tuple(SIZES),
    made_by_case=True,
)

if __name__ == "__main__":
    BENCH.main()
