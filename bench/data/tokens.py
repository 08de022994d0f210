#!/usr/bin/env python3
"""Token samples from disk to batches: bedplate.data and its peers, in the same minute.

    bench/data/setup.sh                                  # the peers, in an environment of their own
    .venv/bin/python bench/data/tokens.py [--repeats 5] [--samples 65536] [--json FILE]

65,536 samples of 2,048 × uint16, shuffled, warm, batches of 64 in one process. Every peer runs in a fresh process of
its own, in turns, `--repeats` times: one epoch to warm up, one that is measured. CPU time is that of the process and
its children, so threads and workers count. Each epoch is checked: every sample once (by its first token pair), and no
epoch in storage order. Rows that read without a check of bytes, an order or a resume are marked by what they lack.

  gather     a C loop's limit: numpy.take of the mapped array by rows into one buffer (memory to memory)
  memmap     numpy.memmap, rows by fancy indexing
"""
import sys
import time

from turns import Bench, Column, Row, cpu, streaming_base

LENGTH, BATCH = 2048, 64


def tokens(samples, length=LENGTH):
    """[samples, length] of uint16; the first two of a row are its number."""
    import numpy

    array = numpy.random.default_rng(0).integers(0, 1 << 15, (samples, length), dtype="uint16")
    array[:, 0], array[:, 1] = numpy.arange(samples) & 0x7FFF, numpy.arange(samples) >> 15
    return array


def heads_of(batch):
    import numpy

    return numpy.asarray(batch[:, :2]).astype(numpy.int64)


def numbers_of(heads):
    return heads[:, 0] + (heads[:, 1] << 15)


# --- each peer: write(turn) once, epochs(turn) -> an iterator of two epochs of batches of arrays ---------------------


def write_raw(turn):
    tokens(turn.args.samples).tofile(turn.folder / "tokens.bin")


def memmap(turn):
    import numpy

    samples = turn.args.samples
    array = numpy.memmap(turn.folder / "tokens.bin", dtype="uint16", mode="r").reshape(samples, LENGTH)
    for epoch in (0, 1):
        order = numpy.random.default_rng(epoch).permutation(samples)
        yield (array[order[at:at + BATCH]] for at in range(0, samples, BATCH))


def gather(turn):
    import numpy

    samples = turn.args.samples
    array = numpy.fromfile(turn.folder / "tokens.bin", dtype="uint16").reshape(samples, LENGTH)
    out = numpy.empty((BATCH, LENGTH), "uint16")

    def batches(order):
        for at in range(0, samples, BATCH):
            numpy.take(array, order[at:at + BATCH], axis=0, out=out[:len(order[at:at + BATCH])], mode="clip")
            yield out

    for epoch in (0, 1):
        yield batches(numpy.random.default_rng(epoch).permutation(samples))


def write_bedplate(turn):
    from bedplate.data import ShardWriter

    folder, array = turn.folder, tokens(turn.args.samples)
    for shard in range(8):
        rows = array[shard * len(array) // 8:(shard + 1) * len(array) // 8]
        with ShardWriter(folder / f"{shard:06}.shard", {"tokens": ("uint16", [LENGTH])}) as out:
            for row in rows:
                out.write(tokens=row)


def bedplate(turn, **options):
    from bedplate.data import Dataset, Loader

    loader = Loader(Dataset(f"{turn.folder}/"), BATCH, seed=1, threads=1, **options)
    for _ in (0, 1):
        yield (batch["tokens"] for batch in loader)


def bedplate_full(turn):
    return bedplate(turn, shuffle="full")


def bedplate_verified(turn):
    return bedplate(turn, shuffle="full", verify="always")


def write_webdataset(turn):
    import webdataset

    folder, array = turn.folder, tokens(turn.args.samples)
    for shard in range(8):
        first = shard * len(array) // 8
        with webdataset.TarWriter(str(folder / f"{shard:06}.tar")) as out:
            for i, row in enumerate(array[first:(shard + 1) * len(array) // 8], first):
                out.write({"__key__": f"{i:08}", "bin": row.tobytes()})


def webdataset_(turn):
    import numpy
    import webdataset

    for epoch in (0, 1):
        names = sorted(str(p) for p in turn.folder.glob("*.tar"))
        pipe = webdataset.WebDataset(names, shardshuffle=8, seed=epoch + 1).shuffle(2000)
        pipe = pipe.to_tuple("bin").map_tuple(lambda b: numpy.frombuffer(b, "uint16")).batched(BATCH)
        yield (numpy.asarray(batch[0]) for batch in pipe)


def write_mds(turn):
    MDSWriter = streaming_base().MDSWriter
    folder, array = turn.folder, tokens(turn.args.samples)
    with MDSWriter(out=str(folder / "mds"), columns={"tokens": f"ndarray:uint16:{LENGTH}"}, size_limit=1 << 25) as out:
        for row in array:
            out.write({"tokens": row})


def mds(turn):
    import torch

    StreamingDataset = streaming_base().StreamingDataset
    dataset = StreamingDataset(local=str(turn.folder / "mds"), shuffle=True, batch_size=BATCH, shuffle_seed=1)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH)
    for _ in (0, 1):
        yield (batch["tokens"] for batch in loader)


def litdata_part(part, path):
    """An eighth of the saved array, row by row; at the module's top, since litdata pickles it."""
    import numpy
    import torch

    array = numpy.load(path, mmap_mode="r")
    for row in array[part * len(array) // 8:(part + 1) * len(array) // 8]:
        yield torch.from_numpy(row.astype(numpy.int32))


def write_litdata(turn):
    import functools

    import numpy
    from litdata import optimize
    from litdata.streaming.item_loader import TokensLoader

    folder, array = turn.folder, tokens(turn.args.samples)
    numpy.save(folder / "tokens.npy", array)
    optimize(fn=functools.partial(litdata_part, path=str(folder / "tokens.npy")), inputs=list(range(8)),
             output_dir=str(folder / "lit"), num_workers=1, chunk_bytes="64MB", item_loader=TokensLoader(block_size=LENGTH))


def litdata(turn):
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming.item_loader import TokensLoader

    dataset = StreamingDataset(str(turn.folder / "lit"), shuffle=True, seed=1, item_loader=TokensLoader(block_size=LENGTH))
    loader = StreamingDataLoader(dataset, batch_size=BATCH)
    for _ in (0, 1):
        yield iter(loader)


def write_array_record(turn):
    from array_record.python import array_record_module

    folder, array = turn.folder, tokens(turn.args.samples)
    writer = array_record_module.ArrayRecordWriter(str(folder / "a.array_record"), "group_size:1")
    for row in array:
        writer.write(row.tobytes())
    writer.close()


def grain(turn):
    import grain.python as pygrain
    import numpy

    source = pygrain.ArrayRecordDataSource([str(turn.folder / "a.array_record")])
    for epoch in (0, 1):
        data = pygrain.MapDataset.source(source).shuffle(seed=epoch).map(lambda b: numpy.frombuffer(b, "uint16")).batch(BATCH)
        yield iter(data.to_iter_dataset(pygrain.ReadOptions(num_threads=1, prefetch_buffer_size=64)))


def timed(epochs_of):
    def measure(turn):
        """The second epoch, as samples a CPU-second and a second."""
        import numpy

        samples = turn.args.samples
        for at, epoch in enumerate(epochs_of(turn)):
            began, began_cpu = time.perf_counter(), cpu()
            heads = [heads_of(batch) for batch in epoch]
            seconds, cpu_seconds = time.perf_counter() - began, cpu() - began_cpu
            numbers = numbers_of(numpy.concatenate(heads))
            if at == 0:
                continue
            if len(numbers) != samples or len(numpy.unique(numbers)) != samples:
                sys.exit(f"an epoch of {len(numbers)} samples, {len(numpy.unique(numbers))} different ones")
            if (numpy.diff(numbers) == 1).mean() > 0.5:
                sys.exit("the epoch came in storage order")
        return {"wall": samples / seconds, "cpu": samples / cpu_seconds}

    return measure


def peer(epochs_of, write, note=""):
    return Row(timed(epochs_of), write, "peers", note)


BENCH = Bench(
    __doc__, __file__,
    {
        "gather": Row(timed(gather), write_raw, note="the limit: memory to memory"),
        "memmap": Row(timed(memmap), write_raw, note="no checksum, format, resume"),
        "bedplate": Row(timed(bedplate), write_bedplate),
        "bedplate, full shuffle": Row(timed(bedplate_full), write_bedplate),
        "bedplate, verify always": Row(timed(bedplate_verified), write_bedplate),
        "webdataset": peer(webdataset_, write_webdataset, "no checksum, index, exact resume"),
        "mosaicml-streaming": peer(mds, write_mds, "no checksum (off by default)"),
        "litdata": peer(litdata, write_litdata, "no checksum; int32 tokens: its reader takes no uint16"),
        "grain + array_record": peer(grain, write_array_record),
    },
    [Column("cpu", "k samples/CPU-s", 1e-3, spread=True), Column("wall", "k samples/s", 1e-3)],
    lambda args: f"{args.samples} samples of {LENGTH} × uint16, batches of {BATCH}, shuffled, warm",
    sizes={"samples": 65536},
)

if __name__ == "__main__":
    BENCH.main()
