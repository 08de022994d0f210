#!/usr/bin/env python3
"""JPEG to a random crop of 224 × 224: bedplate.data's loader beside what Python programs use, in the same minute.

    bench/data/setup.sh
    .venv/bin/python bench/data/pictures.py [--repeats 5] [--count 1024]

JPEGs of 256 to 500 pixels a side (smooth fields with some noise, quality 85, made by --folder's first run with
Pillow), each decoded, cropped at random (scale 0.08 to 1, ratio 3/4 to 4/3), resized with antialiasing and mirrored
half of the time, into a batch of 64. One thread each. Pictures a CPU-second, in turns, medians. The loader's row has
everything in it: reading shards, checksums, the order, the batch.
"""
import argparse
import json
import math
import os
import pathlib
import platform
import random
import resource
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SIDE, BATCH = 224, 64


def cpu():
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def make(folder, count):
    import numpy
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    random_ = numpy.random.default_rng(0)
    for i in range(count):
        height, width = random_.integers(256, 501, 2)
        y, x = numpy.mgrid[0:height, 0:width]
        picture = numpy.zeros((height, width, 3))
        for _ in range(12):
            a, b, phase = random_.normal(0, 0.08), random_.normal(0, 0.08), random_.uniform(0, 7)
            picture += numpy.sin(a * x + b * y + phase)[..., None] * random_.uniform(0, 25, 3)
        picture += 128 + random_.normal(0, 6, picture.shape)
        Image.fromarray(picture.clip(0, 255).astype("uint8")).save(folder / f"{i:06}.jpg", quality=85)


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

    return one


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

    return one


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

    return one


PEERS = {"Pillow": pillow, "simplejpeg + torch, antialiased": simplejpeg_torch, "OpenCV, not antialiased": opencv}


def bedplate(folder):
    from bedplate.data import Dataset, Loader, image

    spec = image(SIDE, SIDE, fit="random_resized_crop", flip=0.5)
    loader = Loader(Dataset(f"{folder}/shards/"), BATCH, fields={"jpg": spec}, threads=1, as_="numpy")
    for _ in range(2):
        began, count = cpu(), 0
        for batch in loader:
            count += len(batch["jpg"])
        result = count / (cpu() - began)
    return result


def peer(name, folder):
    files = [path.read_bytes() for path in sorted(folder.glob("*.jpg"))]
    one = PEERS[name](files)
    for _ in range(2):
        rng, began = random.Random(1), cpu()
        for i in range(len(files)):
            one(i, rng)
        result = len(files) / (cpu() - began)
    return result


def run(name, args):
    python = ROOT / ".venv/bin/python" if name == "bedplate" else args.peers / "bin/python"
    command = [str(python), str(HERE / "pictures.py"), "--measure", name, "--folder", str(args.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=dict(os.environ, OMP_NUM_THREADS="1"))
    return (float(done.stdout.split()[-1]), None) if done.returncode == 0 else (None, done.stderr.strip().splitlines()[-1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--count", type=int, default=1024)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/bench-pictures")
    parser.add_argument("--peers", type=pathlib.Path, default=pathlib.Path(os.environ.get("BEDPLATE_PEERS", ROOT / "build/peers-data")))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--make", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.make:
        return make(args.folder, args.count)
    if args.measure:
        return print(bedplate(args.folder) if args.measure == "bedplate" else peer(args.measure, args.folder))
    if not (args.folder / "shards/pack.json").exists():
        subprocess.run([str(args.peers / "bin/python"), str(HERE / "pictures.py"), "--make", "--count", str(args.count),
                        "--folder", str(args.folder)], check=True)
        subprocess.run([str(ROOT / ".venv/bin/bedplate"), "data", "pack", *sorted(map(str, args.folder.glob("*.jpg"))),
                        str(args.folder / "shards")], check=True, stdout=subprocess.DEVNULL)
    results, problems = {}, {}
    names = ["bedplate", *PEERS]
    for repeat in range(args.repeats):
        for name in names if repeat % 2 == 0 else reversed(names):
            value, problem = run(name, args)
            if problem:
                problems[name] = problem
            else:
                results.setdefault(name, []).append(value)
        print(f"repeat {repeat + 1}/{args.repeats}", file=sys.stderr)
    print(f"JPEG to a random crop of {SIDE} × {SIDE}, pictures a CPU-second, medians of {args.repeats}; "
          f"{os.cpu_count()} processors, kernel {platform.release()}")
    for name in names:
        if name in problems:
            print(f"{name:34} not run: {' '.join(problems[name])[:100]}")
        else:
            values = results[name]
            print(f"{name:34} {statistics.median(values):8.0f}  ({min(values):.0f}–{max(values):.0f})")
    if args.json:
        args.json.write_text(json.dumps({"results": results, "problems": problems}, indent=1) + "\n")


if __name__ == "__main__":
    main()
