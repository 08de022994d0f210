"""Train a small GPT on Python source code, in two ranks, the way most of us would write it.

    torchrun --nproc-per-node 2 naive.py --steps 150
"""

import argparse
import gzip
import itertools
import json
import keyword
import os
import random
import re
import sysconfig
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from model import GPT, PAD
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

BLOCK = 64  # tokens a sample
BATCH = 16  # samples a rank and step
THREADS = 32  # a rank: our nodes have 64 cores, and torchrun alone would give each rank one
CHECKPOINT_EVERY = 12  # steps
SEED = 1337

# Tokens: 0 pads, then indents of 1 to 8 spaces, four masks, Python's keywords, and single bytes.
INDENT, MASK, WORD = 1, 9, 13
WORDS = {word: WORD + i for i, word in enumerate(keyword.kwlist)}
BYTE = WORD + len(WORDS)
VOCABULARY = BYTE + 256
PIECES = re.compile(r"\w+|\s+|[^\w\s]+")
MASKS = [
    re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+"),  # e-mail addresses
    re.compile(r"https?://[^\s<>\"')]+"),  # links
    re.compile(r"\b[0-9a-fA-F]{16,}\b"),  # hashes and keys
    re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"),  # IP addresses
]


def find_sources():
    """The .py files of 1 to 128 KiB of this Python's standard library and site-packages."""
    files = {}
    for root in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")):
        for path in Path(root).rglob("*.py"):
            name = path.relative_to(root)
            if "site-packages" not in name.parts and 1024 <= path.stat().st_size <= 131072:
                files[name] = path
    return [files[name] for name in sorted(files)]


def tokenise(raw):
    """Tidy each line, mask addresses and keys, group the indent, look up keywords, else bytes."""
    tokens = []
    for line in raw.decode("utf-8", errors="replace").splitlines():
        line = line.expandtabs(4).rstrip()
        for kind, pattern in enumerate(MASKS):
            line = pattern.sub(chr(kind), line)
        text = line.lstrip(" ")
        for left in range(len(line) - len(text), 0, -8):
            tokens.append(INDENT + min(left, 8) - 1)
        for piece in PIECES.findall(text):
            if piece in WORDS:
                tokens.append(WORDS[piece])
            else:
                for byte in piece.encode("utf-8"):
                    tokens.append(MASK + byte if byte < len(MASKS) else BYTE + byte)
        tokens.append(BYTE + ord("\n"))
    return tokens


class SourceFiles(Dataset):
    """A sample a file: a random window of BLOCK tokens, and the same one token further on."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        tokens = tokenise(self.files[index].read_bytes())
        start = random.Random(SEED + index).randrange(max(1, len(tokens) - BLOCK))
        window = tokens[start : start + BLOCK + 1]
        window = torch.tensor(window + [PAD] * (BLOCK + 1 - len(window)))
        return window[:-1], window[1:]


def save_checkpoint(path, model, optimizer, step):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    with open(f"{path}.tmp", "wb") as file:
        with gzip.open(file, "wb") as compressed:
            torch.save(state, compressed)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.tmp", path)


def train(steps, out, rank):
    files = find_sources()
    dataset = SourceFiles(files)
    sampler = DistributedSampler(dataset, seed=SEED, drop_last=True)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, drop_last=True)
    torch.manual_seed(SEED)
    model = DistributedDataParallel(GPT(VOCABULARY, BLOCK))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    size = sum(path.stat().st_size for path in files) / 1e6
    parameters = sum(p.numel() for p in model.parameters()) / 1e6
    if rank == 0:
        print(f"{len(files):,} source files of {size:.1f} MB, {parameters:.2f} M parameters")
    out.mkdir(parents=True, exist_ok=True)
    log = open(out / f"log-{rank}.jsonl", "w", buffering=1)
    step = 0
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for tokens, targets in loader:
            loss = model(tokens, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % CHECKPOINT_EVERY == 0:
                if rank == 0:
                    save_checkpoint(out / "checkpoint.pt.gz", model.module, optimizer, step)
                dist.barrier()
            print(json.dumps({"step": step, "loss": loss.item(), "time": time.time()}), file=log)
            if rank == 0 and step % 10 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)
            if step == steps:
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--out", type=Path, help="folder to keep checkpoint and log in")
    args = parser.parse_args()
    torch.set_num_threads(THREADS)
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory(prefix="wall-") as temporary:
        train(args.steps, args.out or Path(temporary), dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
