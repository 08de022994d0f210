#!/usr/bin/env python3
"""A set of many shards: the first batch, its memory, and what an order costs: bedplate.data and its peers.

    bench/data/setup.sh
    .venv/bin/python bench/data/scale.py [--repeats 5] [--shards 10000] [--order 1000000000]

opening  1,000,000 small samples in --shards shards of 100, warm: from nothing but imported modules to the first batch
         of 256, shuffled, in one process, and the memory that it took (RssAnon and RssShmem), as bytes a sample.
         bedplate's shards are known by a manifest (`bedplate data index`), except in the row that says so.
order    a shuffled epoch of --order samples: ns for an index, and the most memory that it took. Orders that are
         computed are asked for a million positions, spread over the epoch, and the answers must be different ones;
         those that are a list are made whole. Each process has 16 GiB of address space at most.
"""
import json
import pathlib
import re
import resource
import subprocess
import sys
import time

from turns import Bench, Column, Row, bedplate_command, streaming_base

BATCH, A_SHARD, LENGTH = 256, 100, 64  # bytes of a sample
MOST_ADDRESSES = 16 << 30
ASKED, PIECE = 1_000_000, 10_000


def own_memory():
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * sum(int(kilobytes) for kilobytes in re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+)", status, re.M))


# --- opening: write(turn) copies one shard; first(turn) -> a function that gives the first batch ----------------------


def rows():
    import numpy

    return numpy.arange(A_SHARD * LENGTH, dtype="uint32").astype("uint8").reshape(A_SHARD, LENGTH)


def copies(turn, first, name):
    """As many of the first shard as there are to be; name(i) is a file's."""
    content = first.read_bytes()
    for i in range(turn.args.shards):
        (first.parent / name(i)).write_bytes(content)
    if first.name != name(0):
        first.unlink()


def write_bedplate_unindexed(turn):
    from bedplate.data import ShardWriter

    with ShardWriter(turn.folder / "000000.shard", {"bytes": ("uint8", [LENGTH])}) as out:
        for row in rows():
            out.write(bytes=row)
    copies(turn, turn.folder / "000000.shard", "{:06}.shard".format)


def write_bedplate(turn):
    write_bedplate_unindexed(turn)
    subprocess.run([bedplate_command(), "data", "index", str(turn.folder)], check=True, stdout=subprocess.DEVNULL)


def bedplate(turn):
    import torch  # noqa: F401  (a training job has it)
    from bedplate.data import Dataset, Loader

    def first():
        loader = Loader(Dataset(f"{turn.folder}/"), BATCH, seed=1, threads=1)
        return loader, next(iter(loader))["bytes"]

    return first


def write_webdataset(turn):
    import webdataset

    with webdataset.TarWriter(str(turn.folder / "000000.tar")) as out:
        for i, row in enumerate(rows()):
            out.write({"__key__": f"{i:08}", "bin": row.tobytes()})
    copies(turn, turn.folder / "000000.tar", "{:06}.tar".format)


def webdataset_(turn):
    import numpy
    import webdataset

    def first():
        names = sorted(str(p) for p in turn.folder.glob("*.tar"))
        pipe = webdataset.WebDataset(names, shardshuffle=len(names), seed=1).shuffle(2000).to_tuple("bin")
        pipe = pipe.map_tuple(lambda b: numpy.frombuffer(b, "uint8")).batched(BATCH)
        return pipe, next(iter(pipe))[0]

    return first


def write_mds(turn):
    folder = turn.folder / "mds"
    with streaming_base().MDSWriter(out=str(folder), columns={"bytes": f"ndarray:uint8:{LENGTH}"}) as out:
        for row in rows():
            out.write({"bytes": row})
    index = json.loads((folder / "index.json").read_text())
    [shard] = index["shards"]
    first = folder / shard["raw_data"]["basename"]
    names = [f"shard.{i:05}.mds" for i in range(turn.args.shards)]
    copies(turn, first, lambda i: names[i])
    index["shards"] = [dict(shard, raw_data=dict(shard["raw_data"], basename=name)) for name in names]
    (folder / "index.json").write_text(json.dumps(index))


def mds(turn):
    import torch

    base = streaming_base()

    def first():
        dataset = base.StreamingDataset(local=str(turn.folder / "mds"), shuffle=True, batch_size=BATCH, shuffle_seed=1)
        loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH)
        return dataset, next(iter(loader))["bytes"]

    return first


def row_of(i):
    """At the module's top, since litdata pickles it."""
    return {"bytes": rows()[i]}


def write_litdata(turn):
    from litdata import optimize

    folder = turn.folder / "lit"
    optimize(fn=row_of, inputs=list(range(A_SHARD)), output_dir=str(folder), num_workers=1, chunk_size=A_SHARD)
    index = json.loads((folder / "index.json").read_text())
    [chunk] = index["chunks"]
    names = [f"chunk-0-{i}.bin" for i in range(turn.args.shards)]
    copies(turn, folder / chunk["filename"], lambda i: names[i])
    index["chunks"] = [dict(chunk, filename=name) for name in names]
    (folder / "index.json").write_text(json.dumps(index))


def litdata(turn):
    from litdata import StreamingDataLoader, StreamingDataset

    def first():
        dataset = StreamingDataset(str(turn.folder / "lit"), shuffle=True, seed=1)
        loader = StreamingDataLoader(dataset, batch_size=BATCH)
        return dataset, next(iter(loader))["bytes"]

    return first


def write_array_record(turn):
    from array_record.python import array_record_module

    first = turn.folder / "000000.array_record"
    writer = array_record_module.ArrayRecordWriter(str(first), "group_size:1")
    for row in rows():
        writer.write(row.tobytes())
    writer.close()
    copies(turn, first, "{:06}.array_record".format)


def grain(turn):
    import grain.python as pygrain
    import numpy

    def first():
        names = sorted(str(p) for p in turn.folder.glob("*.array_record"))
        source = pygrain.ArrayRecordDataSource(names)
        data = pygrain.MapDataset.source(source).shuffle(seed=1).map(lambda b: numpy.frombuffer(b, "uint8")).batch(BATCH)
        return source, next(iter(data.to_iter_dataset(pygrain.ReadOptions(num_threads=1, prefetch_buffer_size=1))))

    return first


def opening(prepare):
    def measure(turn):
        import numpy

        # A process of many shards has many files open.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        first = prepare(turn)
        before, began = own_memory(), time.perf_counter()
        kept, batch = first()
        seconds, after = time.perf_counter() - began, own_memory()
        array = numpy.asarray(batch)
        known = {row.tobytes() for row in rows()}
        if array.shape != (BATCH, LENGTH) or any(row.tobytes() not in known for row in array):
            sys.exit(f"a batch of the shape {array.shape}, or of other samples")
        return {"ms": seconds * 1e3, "bytes": (after - before) / (turn.args.shards * A_SHARD)}

    return measure


# --- order ------------------------------------------------------------------------------------------------------------


def most_memory():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def ordering(prepare):
    """prepare(samples) -> make() -> (a function first, count -> indices, how many were made by then)"""

    def measure(turn):
        import numpy

        samples = turn.args.order
        resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
        pieces = min(ASKED, samples) // PIECE
        firsts = [piece * (samples - PIECE) // max(1, pieces - 1) for piece in range(pieces)]
        make, answers = prepare(samples), numpy.zeros((pieces, PIECE), "int64")
        before, began = most_memory(), time.perf_counter()
        take, made = make()
        seconds = time.perf_counter() - began
        for row, first in zip(answers, firsts):
            began = time.perf_counter()
            taken = take(first, PIECE)
            seconds += 0 if made else time.perf_counter() - began
            row[:] = taken
        memory = most_memory() - before
        seen = numpy.unique(answers)
        if len(seen) != answers.size or seen[0] < 0 or seen[-1] >= samples:
            sys.exit(f"{answers.size} positions gave {len(seen)} different samples")
        return {"ns": seconds / (made or answers.size) * 1e9, "megabytes": memory / 1e6}

    return measure


def bedplate_order(window):
    def prepare(samples):
        from bedplate import _native

        block = 1024 if window else 1
        return lambda: (lambda first, count: _native.order(samples, 7, block, window or 1, 0, first, count), 0)

    return prepare


def torch_randperm(samples):
    import torch

    torch.set_num_threads(1)

    def make():
        order = torch.randperm(samples)
        return lambda first, count: order[first:first + count].tolist(), samples

    return make


def grain_order(samples):
    import grain.python as pygrain

    data = pygrain.MapDataset.range(samples).shuffle(seed=1)
    return lambda: (lambda first, count: [data[i] for i in range(first, first + count)], 0)


def mds_order(samples):
    import numpy

    streaming_base()
    from streaming.base.shuffle import get_shuffle

    sizes = numpy.full(-(-samples // 10_000), 10_000, "int64")
    sizes[-1] -= sizes.sum() - samples

    def make():
        order = get_shuffle("py1e", sizes, 1, 1, 0)
        return lambda first, count: order[first:first + count], samples

    return make


def peer(prepare, write):
    return Row(opening(prepare), write, "peers", cases=("opening",))


def order(prepare, environment="peers", note=""):
    return Row(ordering(prepare), None, environment, note, cases=("order",))


BENCH = Bench(
    __doc__, __file__,
    {
        "bedplate": Row(opening(bedplate), write_bedplate, cases=("opening",)),
        "bedplate, no manifest": Row(opening(bedplate), write_bedplate_unindexed, cases=("opening",)),
        "webdataset": peer(webdataset_, write_webdataset),
        "mosaicml-streaming": peer(mds, write_mds),
        "litdata": peer(litdata, write_litdata),
        "grain + array_record": peer(grain, write_array_record),
        "bedplate, full": order(bedplate_order(0), "own", "computed; the list of Python integers included"),
        "bedplate, blocks of 1024, windows of 65536": order(bedplate_order(65536), "own", "the same"),
        "torch.randperm": order(torch_randperm, "own", "a list"),
        "grain, MapDataset.shuffle": order(grain_order, note="computed"),
        "mosaicml-streaming, py1e": order(mds_order, note="a list"),
    },
    [Column("ms", "first batch, ms", spread=True), Column("bytes", "bytes/sample"), Column("ns", "ns/index", spread=True),
     Column("megabytes", "MB at most", digits=0)],
    lambda args: f"{args.shards} shards of {A_SHARD} samples of {LENGTH} bytes; orders of {args.order} samples",
    sizes={"shards": 10_000, "order": 1_000_000_000},
    cases=("opening", "order"),
)

if __name__ == "__main__":
    BENCH.main()
