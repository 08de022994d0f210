"""Run in the peers' environment: write_samples.py FOLDER writes sets with their formats' own writers, each to FOLDER/KIND.

Beside each goes FOLDER/KIND.jsonl: a line with the set's shard, then the samples as data_cat prints them, made from the values, not
from the files.
"""

import base64
import importlib.util
import json
import pathlib
import sys
import types

import numpy as np

DTYPES = {"uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32", "uint64": "u64",
          "int64": "i64", "float16": "f16", "float32": "f32", "float64": "f64"}
RANDOM = np.random.default_rng(7)
COUNT = 300


def number(name, value):
    array = np.asarray(value)
    return [name, DTYPES[array.dtype.name], list(array.shape), "", base64.b64encode(array.tobytes()).decode()]


def blob(name, value, dtype="bytes", encoding=""):
    return [name, dtype, [len(value)], encoding, base64.b64encode(value).decode()]


def text(name, value, encoding=""):
    return blob(name, value.encode(), "utf8", encoding)


def some_text(i):
    return ["", "plain", "ünïcode ✓", "x" * 3000][i % 4] + ("" if i % 4 == 0 else str(i))


def some_array(i, dtype=None):
    dtype = dtype or list(DTYPES)[i % len(DTYPES)]
    shape = [(3,), (2, 300), (1, 2, 3)][i % 3]
    return (RANDOM.random(shape) * 100).astype(dtype)


def write_webdataset(folder):
    import webdataset

    expected = []
    with webdataset.TarWriter(str(folder / "0.tar")) as out:
        for i in range(COUNT):
            key = f"{'deep/' * (i % 3)}{'k' * (1 + i % 150)}{i:06d}"
            sample = {"__key__": key, "cls": i % 10, "json": {"i": i, "t": some_text(i)}, "bin": RANDOM.bytes(i * 7)}
            out.write(sample)
            fields = {"cls": str(i % 10).encode(), "json": json.dumps(sample["json"]).encode(), "bin": sample["bin"]}
            # The writer puts the fields in an order of its own.
            expected.append((key, [blob(name, fields[name]) for name in sorted(fields)]))
    return ["0.tar"], expected


def write_tfrecord(folder):
    from tfrecord.writer import TFRecordWriter

    expected = []
    writer = TFRecordWriter(str(folder / "0.tfrecord"))
    for i in range(COUNT):
        floats = RANDOM.random(i % 5).astype(np.float32)
        integers = RANDOM.integers(-(2**63), 2**63 - 1, i % 4)
        value = RANDOM.bytes(i * 11)
        writer.write({"bytes": (value, "byte"), "floats": (floats.tolist(), "float"), "ints": (integers.tolist(), "int"),
                      "many": ([b"a", b"", some_text(i).encode()], "byte")})
        many = [blob(f"many[{n}]", one) for n, one in enumerate([b"a", b"", some_text(i).encode()])]
        expected.append(("", [blob("bytes", value), number("floats", floats), number("ints", integers), *many]))
    writer.close()
    return ["0.tfrecord"], expected


def import_streaming():
    """Its packages' __init__ import ready-made sets and loaders that want torchvision and transformers; the writer does not."""
    if "streaming" in sys.modules:
        return
    [folder] = importlib.util.find_spec("streaming").submodule_search_locations
    for name in ("streaming", "streaming.base"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [folder + name.removeprefix("streaming").replace(".", "/")]


def write_mds(folder, **options):
    import_streaming()
    from PIL import Image
    from streaming.base.format.mds.encodings import mds_encode
    from streaming.base.format.mds.writer import MDSWriter

    scalars = {name: name for name in DTYPES}
    columns = {"any": "ndarray", "blob": "bytes", "fixed": "ndarray:int16:2,3", "json": "json", "number": "int",
               "picture": "png", "raw": "pil", "shaped": "ndarray:float32", "str": "str", "word": "str_int", **scalars}
    expected = []
    with MDSWriter(columns=columns, out=str(folder), size_limit=1 << 16, **options) as out:
        for i in range(COUNT):
            picture = Image.fromarray(RANDOM.integers(0, 256, (4, 5, 3), dtype=np.uint8))
            sample = {"any": some_array(i), "blob": RANDOM.bytes(i), "fixed": some_array(0, "int16")[:1].repeat(6).reshape(2, 3),
                      "json": {"i": i}, "number": i - 5, "picture": picture, "raw": picture, "shaped": some_array(i, "float32"),
                      "str": some_text(i), "word": 10**30 + i}
            sample |= {name: np.dtype(name).type(i % 100) for name in scalars}
            out.write(sample)
            fields = {name: number(name, sample[name]) for name in scalars}
            for name in ("any", "fixed", "shaped"):
                fields[name] = number(name, sample[name])
            fields |= {"blob": blob("blob", sample["blob"]), "json": text("json", json.dumps({"i": i}), "json"),
                       "number": number("number", np.int64(i - 5)), "str": text("str", sample["str"]),
                       "picture": blob("picture", mds_encode("png", picture), encoding="png"),
                       "raw": blob("raw", mds_encode("pil", picture), encoding="pil"),
                       "word": text("word", str(10**30 + i), "str_int")}
            expected.append(("", [fields[name] for name in sorted(columns)]))
    return ["index.json"], expected


def write_megatron(folder, dtype=np.uint16, multimodal=False):
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    expected = []
    builder = IndexedDatasetBuilder(str(folder / "a.bin"), dtype=dtype, multimodal=multimodal)
    for i in range(COUNT):
        tokens = RANDOM.integers(0, 100, i % 50)
        builder.add_item(torch.from_numpy(tokens), mode=i % 3)
        if i % 7 == 6:
            builder.end_document()
        mode = [number("mode", np.int8(i % 3))] if multimodal else []
        expected.append(("", [number("tokens", tokens.astype(dtype)), *mode]))
    builder.finalize(str(folder / "a.idx"))
    return ["a.idx"], expected


KINDS = {
    "webdataset": write_webdataset,
    "tfrecord": write_tfrecord,
    "mds": write_mds,
    "mds-hashed": lambda folder: write_mds(folder, hashes=["sha1", "xxh64"]),
    "mds-zstd": lambda folder: write_mds(folder, compression="zstd:3"),
    "megatron": write_megatron,
    "megatron-int32": lambda folder: write_megatron(folder, np.int32),
    "megatron-multimodal": lambda folder: write_megatron(folder, np.int32, True),
}

if __name__ == "__main__":
    for kind, write in KINDS.items():
        to = pathlib.Path(sys.argv[1]) / kind
        to.mkdir()
        [shard], samples = write(to)
        with open(to.with_suffix(".jsonl"), "w") as out:
            out.write(json.dumps(shard) + "\n")
            for key, fields in samples:
                out.write(json.dumps({"key": key, "fields": fields}) + "\n")
