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
import argparse
import json
import os
import pathlib
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LENGTH, BATCH = 2048, 64


def cpu():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


# --- each peer: write(folder, array) once, epochs(folder) -> an iterator of epochs of batches of arrays -------------


def write_raw(folder, array):
    array.tofile(folder / "tokens.bin")


def memmap(folder, samples):
    import numpy

    array = numpy.memmap(folder / "tokens.bin", dtype="uint16", mode="r").reshape(samples, LENGTH)
    for epoch in (0, 1):
        order = numpy.random.default_rng(epoch).permutation(samples)
        yield (array[order[at:at + BATCH]] for at in range(0, samples, BATCH))


def gather(folder, samples):
    import numpy

    array = numpy.fromfile(folder / "tokens.bin", dtype="uint16").reshape(samples, LENGTH)
    out = numpy.empty((BATCH, LENGTH), "uint16")

    def batches(order):
        for at in range(0, samples, BATCH):
            numpy.take(array, order[at:at + BATCH], axis=0, out=out[:len(order[at:at + BATCH])], mode="clip")
            yield out

    for epoch in (0, 1):
        yield batches(numpy.random.default_rng(epoch).permutation(samples))


def write_bedplate(folder, array):
    from bedplate.data import ShardWriter

    for shard in range(8):
        rows = array[shard * len(array) // 8:(shard + 1) * len(array) // 8]
        with ShardWriter(folder / f"{shard:06}.shard", {"tokens": ("uint16", [LENGTH])}) as out:
            for row in rows:
                out.write(tokens=row)


def bedplate(folder, samples, **options):
    from bedplate.data import Dataset, Loader

    loader = Loader(Dataset(f"{folder}/"), BATCH, seed=1, threads=1, **options)
    for _ in (0, 1):
        yield (batch["tokens"] for batch in loader)


def bedplate_full(folder, samples):
    return bedplate(folder, samples, shuffle="full")


def bedplate_verified(folder, samples):
    return bedplate(folder, samples, shuffle="full", verify="always")


def write_webdataset(folder, array):
    import webdataset

    for shard in range(8):
        first = shard * len(array) // 8
        with webdataset.TarWriter(str(folder / f"{shard:06}.tar")) as out:
            for i, row in enumerate(array[first:(shard + 1) * len(array) // 8], first):
                out.write({"__key__": f"{i:08}", "bin": row.tobytes()})


def webdataset_(folder, samples):
    import numpy
    import webdataset

    for epoch in (0, 1):
        names = sorted(str(p) for p in folder.glob("*.tar"))
        pipe = webdataset.WebDataset(names, shardshuffle=8, seed=epoch + 1).shuffle(2000)
        pipe = pipe.to_tuple("bin").map_tuple(lambda b: numpy.frombuffer(b, "uint16")).batched(BATCH)
        yield (numpy.asarray(batch[0]) for batch in pipe)


def streaming_base():
    """streaming.base without the package's __init__, which imports torchvision for data sets of pictures."""
    import importlib.util
    import types

    spec = importlib.util.find_spec("streaming")
    package = types.ModuleType("streaming")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["streaming"] = package
    return __import__("streaming.base", fromlist=["MDSWriter", "StreamingDataset"])


def write_mds(folder, array):
    MDSWriter = streaming_base().MDSWriter
    with MDSWriter(out=str(folder / "mds"), columns={"tokens": f"ndarray:uint16:{LENGTH}"}, size_limit=1 << 25) as out:
        for row in array:
            out.write({"tokens": row})


def mds(folder, samples):
    import torch

    StreamingDataset = streaming_base().StreamingDataset
    dataset = StreamingDataset(local=str(folder / "mds"), shuffle=True, batch_size=BATCH, shuffle_seed=1)
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


def write_litdata(folder, array):
    import functools

    import numpy
    from litdata import optimize
    from litdata.streaming.item_loader import TokensLoader

    numpy.save(folder / "tokens.npy", array)
    optimize(fn=functools.partial(litdata_part, path=str(folder / "tokens.npy")), inputs=list(range(8)), output_dir=str(folder / "lit"),
             num_workers=1, chunk_bytes="64MB", item_loader=TokensLoader(block_size=LENGTH))


def litdata(folder, samples):
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming.item_loader import TokensLoader

    dataset = StreamingDataset(str(folder / "lit"), shuffle=True, seed=1, item_loader=TokensLoader(block_size=LENGTH))
    loader = StreamingDataLoader(dataset, batch_size=BATCH)
    for _ in (0, 1):
        yield iter(loader)


def write_array_record(folder, array):
    from array_record.python import array_record_module

    writer = array_record_module.ArrayRecordWriter(str(folder / "a.array_record"), "group_size:1")
    for row in array:
        writer.write(row.tobytes())
    writer.close()


def grain(folder, samples):
    import grain.python as pygrain
    import numpy

    source = pygrain.ArrayRecordDataSource([str(folder / "a.array_record")])
    for epoch in (0, 1):
        data = pygrain.MapDataset.source(source).shuffle(seed=epoch).map(lambda b: numpy.frombuffer(b, "uint16")).batch(BATCH)
        yield iter(data.to_iter_dataset(pygrain.ReadOptions(num_threads=1, prefetch_buffer_size=64)))


# name: (environment, writer, reader, what it lacks)
PEERS = {
    "gather": ("own", write_raw, gather, "the limit: memory to memory"),
    "memmap": ("own", write_raw, memmap, "no checksum, format, resume"),
    "bedplate": ("own", write_bedplate, bedplate, ""),
    "bedplate, full shuffle": ("own", write_bedplate, bedplate_full, ""),
    "bedplate, verify always": ("own", write_bedplate, bedplate_verified, ""),
    "webdataset": ("peers", write_webdataset, webdataset_, "no checksum, index, exact resume"),
    "mosaicml-streaming": ("peers", write_mds, mds, "no checksum (off by default)"),
    "litdata": ("peers", write_litdata, litdata, "no checksum; int32 tokens: its reader takes no uint16"),
    "grain + array_record": ("peers", write_array_record, grain, ""),
}


def tokens(samples):
    """[samples, LENGTH] of uint16; the first two of a row are its number."""
    import numpy

    array = numpy.random.default_rng(0).integers(0, 1 << 15, (samples, LENGTH), dtype="uint16")
    array[:, 0], array[:, 1] = numpy.arange(samples) & 0x7FFF, numpy.arange(samples) >> 15
    return array


def measure(name, folder, samples):
    """One process: the second epoch of this peer, as samples a CPU-second and a second."""
    import numpy

    epochs = PEERS[name][2](folder, samples)
    for at, epoch in enumerate(epochs):
        began, began_cpu = time.perf_counter(), cpu()
        heads = [numpy.asarray(batch[:, :2]).astype(numpy.int64) for batch in epoch]
        seconds, cpu_seconds = time.perf_counter() - began, cpu() - began_cpu
        numbers = numpy.concatenate([head[:, 0] + (head[:, 1] << 15) for head in heads])
        if at == 0:
            continue
        if len(numbers) != samples or len(numpy.unique(numbers)) != samples:
            sys.exit(f"{name}: an epoch of {len(numbers)} samples, {len(numpy.unique(numbers))} different ones")
        if (numpy.diff(numbers) == 1).mean() > 0.5:
            sys.exit(f"{name}: the epoch came in storage order")
        print(json.dumps({"wall": samples / seconds, "cpu": samples / cpu_seconds}))


def python_of(environment, args):
    return ROOT / ".venv/bin/python" if environment == "own" else args.peers / "bin/python"


def run(name, action, args):
    command = [str(python_of(PEERS[name][0], args)), str(HERE / "tokens.py"), f"--{action}", name, "--samples", str(args.samples),
               "--folder", str(args.folder)]
    env = dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=env)
    if done.returncode != 0:
        return None, done.stderr.strip().splitlines()[-1:] or [done.stdout[-200:]]
    return done.stdout, None


def folder_of(name, folder):
    return folder / PEERS[name][1].__name__.partition("_")[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--samples", type=int, default=65536)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/bench-tokens")
    parser.add_argument("--peers", type=pathlib.Path, default=pathlib.Path(os.environ.get("BEDPLATE_PEERS", ROOT / "build/peers-data")))
    parser.add_argument("--only", nargs="*", help="names of rows")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        folder = folder_of(args.write, args.folder)
        if not (folder / ".written").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            PEERS[args.write][1](folder, tokens(args.samples))
            (folder / ".written").touch()
        return
    if args.measure:
        measure(args.measure, folder_of(args.measure, args.folder), args.samples)
        return

    names = args.only or list(PEERS)
    problems, results = {}, {}
    for name in names:
        _, problem = run(name, "write", args)
        if problem:
            problems[name] = problem
    for repeat in range(args.repeats):
        for name in names if repeat % 2 == 0 else reversed(names):
            if name in problems:
                continue
            out, problem = run(name, "measure", args)
            if problem:
                problems[name] = problem
            else:
                results.setdefault(name, []).append(json.loads(out.splitlines()[-1]))
        print(f"repeat {repeat + 1}/{args.repeats}", file=sys.stderr)

    print(f"{args.samples} samples of {LENGTH} × uint16, batches of {BATCH}, shuffled, warm; medians of {args.repeats}; "
          f"{os.cpu_count()} processors, kernel {platform.release()}")
    print(f"{'':26} {'k samples/CPU-s':>16} {'(range)':>16} {'k samples/s':>12}")
    for name in names:
        if name in problems:
            print(f"{name:26} not run: {' '.join(problems[name])[:120]}")
            continue
        per_cpu = [r["cpu"] / 1e3 for r in results[name]]
        wall = statistics.median(r["wall"] for r in results[name]) / 1e3
        print(f"{name:26} {statistics.median(per_cpu):16.1f} {f'{min(per_cpu):.0f}–{max(per_cpu):.0f}':>16} {wall:12.1f}   {PEERS[name][3]}")
    if args.json:
        args.json.write_text(json.dumps({"results": results, "problems": problems}, indent=1) + "\n")


if __name__ == "__main__":
    main()
