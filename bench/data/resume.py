#!/usr/bin/env python3
"""Going on in the middle of an epoch: bedplate.data and its peers.

    bench/data/setup.sh
    .venv/bin/python bench/data/resume.py [--repeats 5] [--samples 200000]

200,000 samples of 256 × uint16, shuffled, batches of 64. An uninterrupted epoch is written down once, with the loader's
state after 1, 50 and 99 % of its batches. Then, in fresh processes: from nothing but imported modules, through opening
and load_state_dict(), to the first batch (ms). "exact" is 1 when all that follows is what the uninterrupted epoch gave,
in its order; "lost" and "doubled" count samples where it is not. The state's bytes are those of JSON where it is JSON,
else of pickle.
"""
import collections
import json
import pickle
import sys
import time

from tokens import heads_of, numbers_of, tokens
from turns import Bench, Column, Row, streaming_base

LENGTH, BATCH = 256, 64
CASES = {"1 %": 0.01, "50 %": 0.5, "99 %": 0.99}


def size_of(state):
    try:
        return len(json.dumps(state))
    except TypeError:
        return len(pickle.dumps(state))


# --- each peer: write(turn) once; peer(turn) -> opened(state) -> (batches, a function that gives the state) ---------


def write_bedplate(turn):
    from bedplate.data import ShardWriter

    array = tokens(turn.args.samples, LENGTH)
    for shard in range(8):
        with ShardWriter(turn.folder / f"{shard:06}.shard", {"tokens": ("uint16", [LENGTH])}) as out:
            for row in array[shard * len(array) // 8:(shard + 1) * len(array) // 8]:
                out.write(tokens=row)
    write_down(turn, bedplate)


def bedplate(turn):
    import torch  # noqa: F401  (a training job has it)
    from bedplate.data import Dataset, Loader

    def opened(state):
        loader = Loader(Dataset(f"{turn.folder}/"), BATCH, seed=1, tail="uneven", threads=1)
        if state:
            loader.load_state_dict(state)
        return (batch["tokens"] for batch in loader), loader.state_dict

    return opened


def write_mds(turn):
    with streaming_base().MDSWriter(out=str(turn.folder / "mds"), columns={"tokens": f"ndarray:uint16:{LENGTH}"},
                                    size_limit=1 << 25) as out:
        for row in tokens(turn.args.samples, LENGTH):
            out.write({"tokens": row})
    write_down(turn, mds)


def mds(turn):
    base = streaming_base()
    from streaming.base.dataloader import StreamingDataLoader

    def opened(state):
        dataset = base.StreamingDataset(local=str(turn.folder / "mds"), shuffle=True, batch_size=BATCH, shuffle_seed=1)
        loader = StreamingDataLoader(dataset, batch_size=BATCH)
        if state:
            loader.load_state_dict(state)
        return (batch["tokens"] for batch in loader), loader.state_dict

    return opened


def litdata_part(part, samples):
    """An eighth of the tokens; at the module's top, since litdata pickles it."""
    import numpy
    import torch

    for row in tokens(samples, LENGTH)[part * samples // 8:(part + 1) * samples // 8]:
        yield torch.from_numpy(row.astype(numpy.int32))


def write_litdata(turn):
    import functools

    from litdata import optimize
    from litdata.streaming.item_loader import TokensLoader

    optimize(fn=functools.partial(litdata_part, samples=turn.args.samples), inputs=list(range(8)),
             output_dir=str(turn.folder / "lit"), num_workers=1, chunk_bytes="32MB", item_loader=TokensLoader(block_size=LENGTH))
    write_down(turn, litdata)


def litdata(turn):
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming.item_loader import TokensLoader

    def opened(state):
        dataset = StreamingDataset(str(turn.folder / "lit"), shuffle=True, seed=1, item_loader=TokensLoader(block_size=LENGTH))
        loader = StreamingDataLoader(dataset, batch_size=BATCH)
        if state:
            loader.load_state_dict(state)
        return iter(loader), loader.state_dict

    return opened


class Mapped:
    """What a user of StatefulDataLoader writes: rows of a mapped file."""

    def __init__(self, path, samples):
        import numpy

        self.array = numpy.memmap(path, "uint16", "r").reshape(samples, LENGTH)

    def __len__(self):
        return len(self.array)

    def __getitem__(self, i):
        return self.array[i].astype("int32")


def write_stateful(turn):
    tokens(turn.args.samples, LENGTH).tofile(turn.folder / "tokens.bin")
    write_down(turn, stateful(0))


def write_stateful_workers(turn):
    tokens(turn.args.samples, LENGTH).tofile(turn.folder / "tokens.bin")
    write_down(turn, stateful(2))


def stateful(workers):
    def prepare(turn):
        import torch
        from torchdata.stateful_dataloader import StatefulDataLoader

        def opened(state):
            loader = StatefulDataLoader(Mapped(turn.folder / "tokens.bin", turn.args.samples), batch_size=BATCH, shuffle=True,
                                        num_workers=workers, generator=torch.Generator().manual_seed(1))
            if state:
                loader.load_state_dict(state)
            return iter(loader), loader.state_dict

        return opened

    return prepare


def write_grain(turn):
    from array_record.python import array_record_module

    writer = array_record_module.ArrayRecordWriter(str(turn.folder / "a.array_record"), "group_size:1")
    for row in tokens(turn.args.samples, LENGTH):
        writer.write(row.tobytes())
    writer.close()
    write_down(turn, grain)


def grain(turn):
    import grain.python as pygrain
    import numpy

    def opened(state):
        source = pygrain.ArrayRecordDataSource([str(turn.folder / "a.array_record")])
        data = pygrain.MapDataset.source(source).shuffle(seed=1).map(lambda b: numpy.frombuffer(b, "uint16")).batch(BATCH)
        batches = iter(data.to_iter_dataset(pygrain.ReadOptions(num_threads=1, prefetch_buffer_size=64)))
        if state:
            batches.set_state(state)
        return batches, batches.get_state

    return opened


# --- what is the same for all -----------------------------------------------------------------------------------------


def write_down(turn, prepare):
    """An epoch's order, and the states after each case's share of its batches."""
    batches, state = prepare(turn)(None)
    steps = -(-turn.args.samples // BATCH)
    wanted = {max(1, int(steps * share)): case for case, share in CASES.items()}
    order, states = [], {}
    for step, batch in enumerate(batches, 1):
        order += numbers_of(heads_of(batch)).tolist()
        if step in wanted:
            states[wanted[step]] = (pickle.dumps(state()), len(order))
    if len(states) != len(CASES) or len(set(order)) < turn.args.samples - BATCH:
        sys.exit(f"an uninterrupted epoch had {len(set(order))} different samples")
    (turn.folder / "epoch.pickle").write_bytes(pickle.dumps({"order": order, "states": states}))


def resumed(prepare):
    def measure(turn):
        import numpy  # noqa: F401

        written = pickle.loads((turn.folder / "epoch.pickle").read_bytes())
        state, consumed = written["states"][turn.case]
        state = pickle.loads(state)
        opened = prepare(turn)
        began = time.perf_counter()
        batches, _ = opened(state)
        batches = iter(batches)
        got = numbers_of(heads_of(next(batches))).tolist()
        seconds = time.perf_counter() - began
        for batch in batches:
            got += numbers_of(heads_of(batch)).tolist()
        right = written["order"][consumed:]
        had, wanted = collections.Counter(got), collections.Counter(right)
        return {"ms": seconds * 1e3, "state": size_of(state), "exact": int(got == right),
                "lost": (wanted - had).total(), "doubled": (had - wanted).total()}

    return measure


def peer(prepare, write, note=""):
    return Row(resumed(prepare), write, "peers", note)


BENCH = Bench(
    __doc__, __file__,
    {
        "bedplate": Row(resumed(bedplate), write_bedplate),
        "mosaicml-streaming": peer(mds, write_mds),
        "litdata": peer(litdata, write_litdata),
        "StatefulDataLoader": peer(stateful(0), write_stateful, "rows of a mapped file"),
        "StatefulDataLoader, 2 workers": peer(stateful(2), write_stateful_workers, "rows of a mapped file"),
        "grain + array_record": peer(grain, write_grain),
    },
    [Column("ms", "first batch, ms", spread=True), Column("state", "state, bytes", digits=0), Column("exact", "exact", digits=0),
     Column("lost", "lost", digits=0), Column("doubled", "doubled", digits=0)],
    lambda args: f"of an epoch of {args.samples} samples of {LENGTH} × uint16, batches of {BATCH}",
    sizes={"samples": 200_000},
    cases=tuple(CASES),
)

if __name__ == "__main__":
    BENCH.main()
