"""Samples from shards to batches, in an order that any number of ranks resumes exactly.

    from bedplate.data import Dataset, Loader, image, int64

    ds = Dataset("s3://bucket/train-{000000..001023}.tar")
    loader = Loader(ds, batch_size=256, seed=7, fields={"jpg": image(224, 224), "cls": int64()})
    for batch in loader:               # {"jpg": uint8 [256, 224, 224, 3], "cls": int64 [256]}
        ...
    state = loader.state_dict()        # any world size and any number of threads goes on with it

A `Dataset` is also a map-style dataset for `torch.utils.data.DataLoader`. Batches are made by C++
threads: no worker processes, no pickling, no copy of what was read but the one into the batch.
"""

try:
    from .. import _native
except ImportError as _problem:
    raise ImportError(
        "bedplate.data needs the extension module bedplate._native, which this installation is "
        "without (%s); `pip install .` builds it for Python 3.10 and newer" % _problem
    ) from _problem

from .dataset import Dataset
from .fields import (
    Spec,
    cast,
    float32,
    float64,
    image,
    int32,
    int64,
    npy,
    number,
    pad,
    ragged,
)
from .importing import import_parquet
from .loader import Loader
from .mix import Mix
from .writer import ShardWriter

CorruptError = _native.CorruptError

__all__ = [
    "CorruptError",
    "Dataset",
    "Loader",
    "Mix",
    "ShardWriter",
    "Spec",
    "cast",
    "float32",
    "float64",
    "image",
    "import_parquet",
    "int32",
    "int64",
    "npy",
    "number",
    "pad",
    "ragged",
]
