#!/usr/bin/env python3
"""How well the two-level shuffle mixes, and what it costs to read: the table and plots of docs/shuffle.md.

    .venv/bin/python tools/shuffle_plots.py [--samples 1281167] [--images docs/images]

A set is taken that lies sorted by class, as folders of pictures do: 1,000 classes in storage order. For windows of
growing size it prints

  classes a batch  different classes among 256 samples that follow each other: near 1 when nothing is mixed
  halves           how far the share of the set's first half wanders from 1/2 while an epoch passes (Kolmogorov's
                   distance between where samples lie and when they come): 0 is the best
  reads a block    how often a block of storage is read in an epoch by a reader that has memory for one window,
                   least recently used out first: 1 is the best
  run              samples of a block that are read together, at least
"""
import argparse
import pathlib

import numpy

from bedplate import _native

CLASSES, BATCH, BLOCK = 1000, 256, 256


def epoch(samples, block, window, number=1):
    return numpy.array(_native.order(samples, 7, block, window, number, 0, samples))


def classes_a_batch(order):
    label = order * CLASSES // len(order)
    whole = len(order) // BATCH * BATCH
    batches = numpy.sort(label[:whole].reshape(-1, BATCH), axis=1)
    return (1 + (numpy.diff(batches, axis=1) != 0).sum(axis=1)).mean()


def halves(order):
    """The largest distance, over the epoch, between the share of first-half samples so far and 1/2, weighted by time."""
    first = numpy.cumsum(order < len(order) / 2)
    time = numpy.arange(1, len(order) + 1)
    return float(numpy.abs(first / first[-1] - time / len(order)).max())


def reads_a_block(order, window):
    """Blocks are kept, the least recently used goes first, in memory for `window` samples and one block more."""
    room = window // BLOCK + 1
    kept, reads = {}, 0
    for block in order // BLOCK:
        block = int(block)
        if block in kept:
            del kept[block]
        else:
            reads += 1
            if len(kept) >= room:
                kept.pop(next(iter(kept)))
        kept[block] = None
    return reads / -(-len(order) // BLOCK)


def plot(path, samples, windows):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(windows), figsize=(3 * len(windows), 3), sharey=True)
    for axis, (name, block, window) in zip(axes, windows):
        order = epoch(samples, block, window)
        step = max(1, samples // 4000)
        axis.plot(numpy.arange(0, samples, step) / samples, order[::step] / samples, ",k", alpha=0.6)
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("when it comes", fontsize=8)
    axes[0].set_ylabel("where it lies", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_281_167)
    parser.add_argument("--images", type=pathlib.Path)
    args = parser.parse_args()
    samples = args.samples
    rows = [("storage order", samples, 1)]
    rows += [(f"window {window:,}", BLOCK, window) for window in (256, 1024, 4096, 16384, 65536, 262144)]
    rows += [("full shuffle", 1, 1)]
    print(f"{'':20} {'classes a batch':>16} {'halves':>8} {'reads a block':>14} {'memory':>8}")
    for name, block, window in rows:
        order = epoch(samples, block, window)
        assert len(numpy.unique(order)) == samples
        memory = 65536 if block == 1 else max(window, BLOCK)
        print(f"{name:20} {classes_a_batch(order):16.1f} {halves(order):8.4f} {reads_a_block(order, memory):14.2f} {memory / samples:8.1%}")
    random = numpy.random.default_rng(1).permutation(samples)
    print(f"{'numpy permutation':20} {classes_a_batch(random):16.1f} {halves(random):8.4f} {reads_a_block(random, 65536):14.2f} {65536 / samples:8.1%}")
    if args.images:
        plot(args.images / "shuffle.png", samples, [("storage order", samples, 1), ("window 16,384", BLOCK, 16384),
                                                    ("window 262,144", BLOCK, 262144), ("full shuffle", 1, 1)])


if __name__ == "__main__":
    main()
