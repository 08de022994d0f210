#!/usr/bin/env python3
"""JPEGs to batches: bedplate.data's loader beside what Python programs use, in the same minute.

    bench/data/setup.sh
    .venv/bin/python bench/data/pictures.py [--repeats 5] [--count 1024] [--cases photographs noise bytes]

photographs  pieces of the photographs that scikit-learn and scikit-image carry (china, flower, astronaut, coffee,
             chelsea, rocket, motorcycle), cut and scaled at random to about 500 × 375, quality 85 to 95, 4:2:0, as
             those of ImageNet are. Decoded, cropped at random (scale 0.08 to 1, ratio 3/4 to 4/3), resized to 224 × 224
             with antialiasing and mirrored half of the time, into a batch of 64.
noise        the same with smooth fields under noise, quality 85: nearly all time goes to Huffman decoding
bytes        the photographs at 256 pixels, not decoded: batches of bytes, shuffled

One thread each. Pictures a CPU-second. bedplate's rows have everything in them: reading shards, checksums, the order,
the batch; the decoders are given files that lie in memory. Each epoch is checked: every picture once where bytes are
read, as many pictures and the right mean colour where they are decoded.
"""
import collections
import importlib.util
import json
import math
import pathlib
import random
import subprocess
import sys
import time
import zlib

from turns import Bench, Column, Row, bedplate_command, cpu, streaming_base

SIDE, BATCH = 224, 64
DECODED = ("photographs", "noise")
PHOTOGRAPHS = {"sklearn": ("datasets/images/china.jpg", "datasets/images/flower.jpg"),
               "skimage": ("data/astronaut.png", "data/coffee.png", "data/chelsea.png", "data/rocket.jpg",
                           "data/motorcycle_left.png")}


# --- the pictures -----------------------------------------------------------------------------------------------------


def photographs():
    from PIL import Image

    for package, names in PHOTOGRAPHS.items():
        spec = importlib.util.find_spec(package)  # the files alone: neither package is imported
        if spec is None:
            sys.exit(f"{package}, whose photographs are cut up here, is missing: run bench/data/setup.sh anew")
        for name in names:
            yield Image.open(pathlib.Path(spec.submodule_search_locations[0]) / name).convert("RGB")


def photograph_pieces(count, side):
    """Pieces of 3/5 of a side to all of it, 4:3 or 3:4, scaled so that the longer side is about `side`."""
    from PIL import Image

    rng, whole = random.Random(0), list(photographs())
    for i in range(count):
        image = whole[i % len(whole)]
        ratio = 4 / 3 if rng.random() < 0.75 else 3 / 4
        w = min(image.width, image.height * ratio) * rng.uniform(0.6, 1)
        h = w / ratio
        x, y = rng.uniform(0, image.width - w), rng.uniform(0, image.height - h)
        longer = side * rng.uniform(0.9, 1.1)
        size = (round(longer * min(1, ratio)), round(longer * min(1, 1 / ratio)))
        piece = image.resize(size, Image.LANCZOS, box=(x, y, x + w, y + h))
        yield (piece.transpose(Image.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else piece), rng.randint(85, 95)


def noise(count):
    import numpy
    from PIL import Image

    random_ = numpy.random.default_rng(0)
    for _ in range(count):
        height, width = random_.integers(256, 501, 2)
        y, x = numpy.mgrid[0:height, 0:width]
        picture = numpy.zeros((height, width, 3))
        for _ in range(12):
            a, b, phase = random_.normal(0, 0.08), random_.normal(0, 0.08), random_.uniform(0, 7)
            picture += numpy.sin(a * x + b * y + phase)[..., None] * random_.uniform(0, 25, 3)
        picture += 128 + random_.normal(0, 6, picture.shape)
        yield Image.fromarray(picture.clip(0, 255).astype("uint8")), 85


def make_pictures(turn):
    """The JPEGs, and what epochs are checked by: their mean colour, and marks of their bytes."""
    import numpy

    count = turn.args.count
    pictures = {"photographs": lambda: photograph_pieces(count, 500), "noise": lambda: noise(count),
                "bytes": lambda: photograph_pieces(count, 340)}[turn.case]()
    means, marks, size = [], [], 0
    for i, (picture, quality) in enumerate(pictures):
        path = turn.folder / f"{i:06}.jpg"
        picture.save(path, quality=quality, subsampling="4:2:0")
        means.append(numpy.asarray(picture).mean(axis=(0, 1)))
        marks.append(mark(path.read_bytes()))
        size += path.stat().st_size
    facts = {"mean": numpy.mean(means, axis=0).tolist(), "marks": marks, "bytes": size / count}
    (turn.folder / "facts").write_text(json.dumps(facts))


def facts(turn):
    return json.loads((turn.materials / "facts").read_text())


def jpegs(turn):
    return sorted(turn.materials.glob("*.jpg"))


def mark(content):
    """Tells one picture from another by its last bytes, at little cost."""
    return zlib.crc32(bytes(content[-100:]))


# --- decoded ----------------------------------------------------------------------------------------------------------


def crop(width, height, rng):
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    return 0, 0, width, height


def pillow(files):
    import io

    import numpy
    from PIL import Image

    slab = numpy.empty((BATCH, SIDE, SIDE, 3), "uint8")

    def one(i, rng):
        image = Image.open(io.BytesIO(files[i]))
        x, y, w, h = crop(*image.size, rng)
        array = numpy.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.BILINEAR, box=(x, y, x + w, y + h)))
        slab[i % BATCH] = array[:, ::-1] if rng.random() < 0.5 else array

    return one, slab, lambda slab: slab.mean(axis=(0, 1, 2))


def simplejpeg_torch(files):
    import simplejpeg
    import torch

    torch.set_num_threads(1)
    slab = torch.empty((BATCH, 3, SIDE, SIDE), dtype=torch.uint8)

    def one(i, rng):
        array = simplejpeg.decode_jpeg(files[i])
        x, y, w, h = crop(array.shape[1], array.shape[0], rng)
        part = torch.from_numpy(array[y:y + h, x:x + w]).permute(2, 0, 1)[None]
        part = torch.nn.functional.interpolate(part, (SIDE, SIDE), mode="bilinear", antialias=True)[0]
        slab[i % BATCH] = part.flip(-1) if rng.random() < 0.5 else part

    return one, slab, lambda slab: slab.float().mean(dim=(0, 2, 3)).numpy()


def opencv(files):
    import cv2
    import numpy

    cv2.setNumThreads(1)
    slab = numpy.empty((BATCH, SIDE, SIDE, 3), "uint8")

    def one(i, rng):
        array = cv2.imdecode(numpy.frombuffer(files[i], "uint8"), cv2.IMREAD_COLOR_RGB)
        x, y, w, h = crop(array.shape[1], array.shape[0], rng)
        array = cv2.resize(array[y:y + h, x:x + w], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
        slab[i % BATCH] = array[:, ::-1] if rng.random() < 0.5 else array

    return one, slab, lambda slab: slab.mean(axis=(0, 1, 2))


def decoders(prepare):
    def measure(turn):
        files = [path.read_bytes() for path in jpegs(turn)]
        one, slab, mean_of = prepare(files)
        means = []
        for epoch in range(2):
            rng, began = random.Random(1), cpu()
            for i in range(len(files)):
                one(i, rng)
                if epoch == 0 and i % BATCH == BATCH - 1:
                    means.append(mean_of(slab))
            seconds = cpu() - began
        check_colour(turn, means)
        return {"cpu": len(files) / seconds, "kilobytes": facts(turn)["bytes"] / 1e3}

    return measure


def check_colour(turn, means):
    import numpy

    found, right = numpy.mean(means, axis=0), numpy.array(facts(turn)["mean"])
    if numpy.abs(found - right).max() > 8:  # crops differ from whole pictures, by less than that
        sys.exit(f"the mean colour is {found.round(1)}, that of the pictures {right.round(1)}")


def write_bedplate(turn):
    subprocess.run([bedplate_command(), "data", "pack", *map(str, jpegs(turn)), str(turn.folder / "shards")],
                   check=True, stdout=subprocess.DEVNULL)


def bedplate_decoded(turn):
    from bedplate.data import Dataset, Loader, image

    spec = image(SIDE, SIDE, fit="random_resized_crop", flip=0.5)
    loader = Loader(Dataset(f"{turn.folder}/shards/"), BATCH, fields={"jpg": spec}, threads=1, as_="numpy", tail="uneven")
    means = [batch["jpg"].mean(axis=(0, 1, 2)) for batch in loader]
    check_colour(turn, means)
    began, count = cpu(), 0
    for batch in loader:
        count += len(batch["jpg"])
    seconds = cpu() - began
    if count != turn.args.count:
        sys.exit(f"an epoch of {count} pictures, there are {turn.args.count}")
    return {"cpu": count / seconds, "kilobytes": facts(turn)["bytes"] / 1e3}


# --- as bytes: write(turn), and epochs(turn) -> two epochs of batches of bytes -------------------------------------------


def read(epochs_of):
    def measure(turn):
        right = collections.Counter(facts(turn)["marks"])
        for epoch in epochs_of(turn):
            began, began_cpu = time.perf_counter(), cpu()
            marks = [mark(content) for batch in epoch for content in batch]
            seconds, cpu_seconds = time.perf_counter() - began, cpu() - began_cpu
            if collections.Counter(marks) != right:
                sys.exit(f"an epoch of {len(marks)} pictures, not each of the {right.total()} once")
            if marks == facts(turn)["marks"]:
                sys.exit("the epoch came in storage order")
        return {"cpu": len(marks) / cpu_seconds, "wall": len(marks) / seconds, "kilobytes": facts(turn)["bytes"] / 1e3}

    return measure


def bedplate_bytes(turn):
    from bedplate.data import Dataset, Loader

    loader = Loader(Dataset(f"{turn.folder}/shards/"), BATCH, seed=1, fields={"jpg": None}, threads=1, shuffle="full",
                    tail="uneven")
    for _ in range(2):
        yield (batch["jpg"] for batch in loader)


def write_webdataset(turn):
    import webdataset

    with webdataset.ShardWriter(f"{turn.folder}/%06d.tar", maxsize=1 << 25, verbose=0) as out:
        for path in jpegs(turn):
            out.write({"__key__": path.stem, "jpg": path.read_bytes()})


def webdataset_bytes(turn):
    import webdataset

    names = sorted(str(p) for p in turn.folder.glob("*.tar"))
    for epoch in range(2):
        pipe = webdataset.WebDataset(names, shardshuffle=len(names), seed=epoch + 1).shuffle(1000)
        yield (batch[0] for batch in pipe.to_tuple("jpg").batched(BATCH))


def write_mds(turn):
    with streaming_base().MDSWriter(out=str(turn.folder / "mds"), columns={"jpg": "bytes"}, size_limit=1 << 25) as out:
        for path in jpegs(turn):
            out.write({"jpg": path.read_bytes()})


def mds_bytes(turn):
    import torch

    dataset = streaming_base().StreamingDataset(local=str(turn.folder / "mds"), shuffle=True, batch_size=BATCH, shuffle_seed=1)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, collate_fn=lambda rows: [row["jpg"] for row in rows])
    for _ in range(2):
        yield iter(loader)


def content_of(path):
    """At the module's top, since litdata pickles it."""
    return pathlib.Path(path).read_bytes()


def write_litdata(turn):
    from litdata import optimize

    optimize(fn=content_of, inputs=list(map(str, jpegs(turn))), output_dir=str(turn.folder / "lit"), num_workers=1,
             chunk_bytes="32MB")


def litdata_bytes(turn):
    from litdata import StreamingDataLoader, StreamingDataset

    dataset = StreamingDataset(str(turn.folder / "lit"), shuffle=True, seed=1)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, collate_fn=list)
    for _ in range(2):
        yield iter(loader)


def write_grain(turn):
    from array_record.python import array_record_module

    writer = array_record_module.ArrayRecordWriter(str(turn.folder / "a.array_record"), "group_size:1")
    for path in jpegs(turn):
        writer.write(path.read_bytes())
    writer.close()


def grain_bytes(turn):
    import grain.python as pygrain

    source = pygrain.ArrayRecordDataSource([str(turn.folder / "a.array_record")])
    for epoch in range(2):
        data = pygrain.MapDataset.source(source).shuffle(seed=epoch).batch(BATCH, batch_fn=list)
        yield iter(data.to_iter_dataset(pygrain.ReadOptions(num_threads=1, prefetch_buffer_size=64)))


def decoder(prepare):
    return Row(decoders(prepare), environment="peers", cases=DECODED)


def reader(epochs_of, write, note=""):
    return Row(read(epochs_of), write, "peers", note, cases=("bytes",))


BENCH = Bench(
    __doc__, __file__,
    {
        "bedplate": Row(bedplate_decoded, write_bedplate, cases=DECODED),
        "Pillow": decoder(pillow),
        "simplejpeg + torch, antialiased": decoder(simplejpeg_torch),
        "OpenCV, not antialiased": decoder(opencv),
        "bedplate, as bytes": Row(read(bedplate_bytes), write_bedplate, cases=("bytes",)),
        "webdataset": reader(webdataset_bytes, write_webdataset, "no checksum, index, exact resume"),
        "mosaicml-streaming": reader(mds_bytes, write_mds, "no checksum (off by default)"),
        "litdata": reader(litdata_bytes, write_litdata, "no checksum"),
        "grain + array_record": reader(grain_bytes, write_grain),
    },
    [Column("cpu", "pictures/CPU-s", digits=0, spread=True), Column("wall", "pictures/s", digits=0),
     Column("kilobytes", "kB a picture", digits=0)],
    lambda args: f"{args.count} pictures, batches of {BATCH}, one thread",
    sizes={"count": 1024},
    cases=("photographs", "noise", "bytes"),
    made_by_case=True,
    materials=make_pictures,
)

if __name__ == "__main__":
    BENCH.main()
