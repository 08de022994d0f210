#!/usr/bin/env python3
"""Samples from an object store that is far away: bedplate.data and its peers.

    bench/data/setup.sh
    .venv/bin/python bench/data/s3.py [--repeats 5] [--samples 4096]

A real S3 server (SeaweedFS from PyPI, as in tests/stores) on loopback, behind a proxy (slow_s3.py) that adds 20 ms to
each request and answers 1 % of them 503 SlowDown. 4,096 samples of 64 KiB that do not compress, in shards of 8 MiB, in
batches of 64, shuffled as the reader shuffles remote shards; two threads or worker processes each. Goodput is bytes of
samples a second over a whole epoch, opening and listing included; "second" is the same reader's next epoch. Each epoch
is checked: every sample once, by the number that it begins with.

Caches begin empty, in a folder of the measurement's own. litdata and MosaicML keep whole shards there by themselves,
bedplate where cache= says so.
"""
import contextlib
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from turns import ROOT, Bench, Column, Row, cpu, streaming_base

SIZE, BATCH, SHARD, BUCKET, WORKERS = 64 << 10, 64, 8 << 20, "bench", 2
LATENCY, REFUSED = 0.02, 0.01


@contextlib.contextmanager
def servers(args):
    """A server and its proxy; what is measured knows the proxy as its S3."""
    sys.path[:0] = [str(ROOT / "tests/stores")]
    import seaweedfs
    from slow_s3 import slow

    with tempfile.TemporaryDirectory(prefix="bedplate-bench-s3-") as folder:
        with seaweedfs.serve(seaweedfs.weed(), pathlib.Path(folder)) as server:
            with slow(server.url, LATENCY, REFUSED) as url:
                given = {name: value for name, value in server.environment.items() if name.startswith("AWS_")}
                yield dict(given, AWS_ENDPOINT_URL_S3=url, AWS_ENDPOINT_URL=url, S3_ENDPOINT_URL=url, AWS_REGION="us-east-1",
                           AWS_DEFAULT_REGION="us-east-1", BENCH_S3_DIRECT=server.url, no_proxy="127.0.0.1")


# Beside the proxy, in the peers' environment, which has boto3. A name that is there already is not sent again.
UPLOAD = """
import os, pathlib, sys
import boto3
folder, bucket, prefix = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=os.environ["BENCH_S3_DIRECT"])
if bucket not in [found["Name"] for found in s3.list_buckets()["Buckets"]]:
    s3.create_bucket(Bucket=bucket)
listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix + "/").get("Contents", [])
there = {found["Key"] for found in listed}
for path in sorted(pathlib.Path(folder).rglob("*")):
    key = prefix + "/" + str(path.relative_to(folder))
    if path.is_file() and path.name != ".written" and key not in there:
        s3.upload_file(str(path), bucket, key)
"""


def upload(turn):
    prefix = turn.folder.name
    subprocess.run([str(turn.args.peers / "bin/python"), "-c", UPLOAD, str(turn.folder), BUCKET, prefix], check=True, timeout=300)
    return f"s3://{BUCKET}/{prefix}"


def samples(count):
    import numpy

    random = numpy.random.default_rng(0)
    for i in range(count):
        yield i.to_bytes(8, "little") + random.bytes(SIZE - 8)


def goodput(epochs_of, *modules):
    """epochs_of(turn, url, folder for a cache) -> two epochs of batches of bytes. The modules are imported before."""

    def measure(turn):
        for module in modules:
            streaming_base() if module == "streaming" else importlib.import_module(module)
        url, count = upload(turn), turn.args.samples
        out = {}
        with tempfile.TemporaryDirectory(prefix="cache-", dir=turn.args.folder) as cache:
            began, began_cpu = time.perf_counter(), cpu()
            for name, epoch in zip(("first", "second"), epochs_of(turn, url, pathlib.Path(cache))):
                numbers = [int.from_bytes(bytes(content[:8]), "little") for batch in epoch for content in batch]
                seconds = time.perf_counter() - began
                if sorted(numbers) != list(range(count)):
                    sys.exit(f"the {name} epoch had {len(numbers)} samples, {len(set(numbers))} different ones")
                out[name] = count * SIZE / seconds
                out[name + "_cpu"] = (cpu() - began_cpu) / (count * SIZE) * 1e9
                began, began_cpu = time.perf_counter(), cpu()
        return out

    return measure


# --- each peer ----------------------------------------------------------------------------------------------------------


def write_packed(turn):
    from bedplate.data import ShardWriter

    import numpy

    a_shard, all_samples = SHARD // SIZE, samples(turn.args.samples)
    for shard in range(-(-turn.args.samples // a_shard)):
        with ShardWriter(turn.folder / f"{shard:06}.shard", {"bytes": ("uint8", [SIZE])}) as out:
            for _, content in zip(range(min(a_shard, turn.args.samples - shard * a_shard)), all_samples):
                out.write(bytes=numpy.frombuffer(content, "uint8"))


def bedplate(cached):
    def epochs(turn, url, cache):
        from bedplate.data import Dataset, Loader

        dataset = Dataset(url + "/", cache=f"{cache}:4GB" if cached else None)
        loader = Loader(dataset, BATCH, seed=1, tail="uneven", threads=WORKERS, as_="numpy")
        for _ in range(2):
            yield (batch["bytes"] for batch in loader)

    return epochs


def write_tars(turn):
    import webdataset

    with webdataset.ShardWriter(f"{turn.folder}/%06d.tar", maxcount=SHARD // SIZE, verbose=0) as out:
        for i, content in enumerate(samples(turn.args.samples)):
            out.write({"__key__": f"{i:08}", "bin": content})


def keys_of(turn, url):
    return [f"{url}/{path.name}" for path in sorted(turn.folder.glob("*.tar"))]


def first_of(row):
    return row[0]


def webdataset_pipe(turn, url, cache):
    import boto3
    import torch
    import webdataset

    s3 = boto3.client("s3")
    signed = [s3.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": key.partition(f"{BUCKET}/")[2]})
              for key in keys_of(turn, url)]
    pipes = [f"pipe:curl -sSf --retry 8 '{one}'" for one in signed]
    for epoch in range(2):
        pipe = webdataset.WebDataset(pipes, shardshuffle=len(pipes), seed=epoch + 1).shuffle(1000).to_tuple("bin")
        pipe = pipe.map(first_of).batched(BATCH, collation_fn=None)
        yield torch.utils.data.DataLoader(pipe, batch_size=None, num_workers=WORKERS)


class Tars:
    """What a user of S3IterableDataset writes to read tars: members, one after the other."""

    def __call__(self, reader):
        import tarfile

        with tarfile.open(fileobj=reader, mode="r|") as tar:
            return [tar.extractfile(member).read() for member in tar]


def s3torchconnector(turn, url, cache):
    import random

    import torch
    from s3torchconnector import S3ClientConfig, S3IterableDataset

    for epoch in range(2):
        keys = keys_of(turn, url)
        random.Random(epoch).shuffle(keys)
        dataset = S3IterableDataset.from_objects(
            keys, region="us-east-1", endpoint=os.environ["AWS_ENDPOINT_URL_S3"], transform=Tars(), enable_sharding=True,
            s3client_config=S3ClientConfig(force_path_style=True))
        yield torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=WORKERS)


def content_of(i, count):
    """A shard's part; at the module's top, since litdata pickles it."""
    a_shard = SHARD // SIZE
    for at, content in enumerate(samples(count)):
        if i * a_shard <= at < (i + 1) * a_shard:
            yield content


def write_litdata(turn):
    import functools

    from litdata import optimize

    count = turn.args.samples
    optimize(fn=functools.partial(content_of, count=count), inputs=list(range(-(-count // (SHARD // SIZE)))),
             output_dir=str(turn.folder), num_workers=1, chunk_size=SHARD // SIZE)


def as_bytes(rows):
    """Its views of memory cannot go from a worker to the loop."""
    return [bytes(row) for row in rows]


def litdata(turn, url, cache):
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # it has no option for an endpoint without TLS
    dataset = StreamingDataset(url, cache_dir=str(cache), shuffle=True, seed=1, max_cache_size="4GB",
                               storage_options={"endpoint_url": os.environ["AWS_ENDPOINT_URL_S3"]})
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, collate_fn=as_bytes)
    for _ in range(2):
        yield iter(loader)


def write_mds(turn):
    with streaming_base().MDSWriter(out=str(turn.folder / "set"), columns={"bytes": "bytes"}, size_limit=SHARD) as out:
        for content in samples(turn.args.samples):
            out.write({"bytes": content})


def bytes_of(rows):
    return [row["bytes"] for row in rows]


def mds(turn, url, cache):
    import torch

    dataset = streaming_base().StreamingDataset(remote=url + "/set", local=str(cache / "mds"), shuffle=True, batch_size=BATCH,
                                                shuffle_seed=1, num_canonical_nodes=1, download_retry=8)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, collate_fn=bytes_of)
    for _ in range(2):
        yield iter(loader)


def peer(epochs_of, write, note, *modules):
    return Row(goodput(epochs_of, *modules), write, "peers", note)


PEERS = ("webdataset, pipe:curl", "s3torchconnector, tars", "litdata", "mosaicml-streaming")
BENCH = Bench(
    __doc__, __file__,
    {
        "bedplate, a window in memory": Row(goodput(bedplate(False), "bedplate.data", "numpy"), write_packed, note="as it is without options", against=PEERS),
        "bedplate, cache on disk": Row(goodput(bedplate(True), "bedplate.data", "numpy"), write_packed, against=PEERS),
        PEERS[0]: peer(webdataset_pipe, write_tars, "no cache", "boto3", "torch", "webdataset"),
        PEERS[1]: peer(s3torchconnector, write_tars, "no cache; shuffles shards only", "torch", "s3torchconnector"),
        PEERS[2]: peer(litdata, write_litdata, "", "torch", "litdata"),
        PEERS[3]: peer(mds, write_mds, "", "torch", "streaming"),
    },
    [Column("first", "MB/s", 1e-6, spread=True), Column("first_cpu", "CPU-s/GB", digits=2),
     Column("second", "second epoch", 1e-6, spread=True), Column("second_cpu", "then CPU-s/GB", digits=2)],
    lambda args: f"{args.samples} samples of {SIZE >> 10} KiB, {LATENCY * 1e3:.0f} ms a request, {REFUSED:.0%} of them 503",
    sizes={"samples": 4096},
    around=servers,
)

if __name__ == "__main__":
    BENCH.main()
