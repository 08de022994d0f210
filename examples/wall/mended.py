"""naive.py after its report was read: the same samples and model, with three walls taken down.

    torchrun --nproc-per-node 2 mended.py --steps 150
    torchrun --nproc-per-node 2 mended.py --steps 150 --fix input,checkpoint  # only these

threads     a rank computes with its share of the CPUs that it is allowed to use
input       all files are tokenised once, into shards; bedplate.data reads them
checkpoint  the state is copied in memory, a thread writes the copy, and no rank waits for it

What is not mended is naive.py's own code, so that each fix can be measured alone.
"""

import argparse
import hashlib
import inspect
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import naive
import numpy as np
import torch
import torch.distributed as dist
from model import GPT
from naive import BATCH, BLOCK, CHECKPOINT_EVERY, SEED, VOCABULARY
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from bedplate.data import Dataset, Loader

FIXES = ("threads", "input", "checkpoint")


def threads_of_rank():
    """This rank's share of the CPUs that the process may use, at least one."""
    return max(1, len(os.sched_getaffinity(0)) // int(os.environ["LOCAL_WORLD_SIZE"]))


def pack(files, folder):
    """Make shards of all samples, each rank tokenising its share; returns the URL of their folder.

    A sample is the window of a file that naive.SourceFiles cuts, BLOCK + 1 tokens of uint16. The
    folder's name carries a digest of the files' names, sizes and times and of the code that makes
    a sample, so shards in `folder` are used again as long as they would come out the same.
    Collective: all ranks call it.
    """
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    code = inspect.getsource(naive.tokenise) + inspect.getsource(naive.SourceFiles)
    recipe = repr((stats, naive.PIECES, naive.MASKS, naive.WORDS, code))
    shards = folder / f"corpus-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    ready = [shards.is_dir()]
    dist.broadcast_object_list(ready)  # the first rank's answer, for all
    if not ready[0]:
        rank, world = dist.get_rank(), dist.get_world_size()
        parts = [f"{shards}.part-{i}.tokens" for i in range(world)]
        samples = naive.SourceFiles(files)
        with open(parts[rank], "wb") as part:
            for i in range(rank * len(files) // world, (rank + 1) * len(files) // world):
                tokens, targets = samples[i]
                part.write(torch.cat([tokens, targets[-1:]]).numpy().astype(np.uint16))
        dist.barrier()
        if rank == 0:
            making = f"{shards}.making"
            bedplate = Path(sys.executable).parent / "bedplate"
            length = str(BLOCK + 1)
            kind = ["--from", "tokens", "--tokens", "u16", "--length", length]
            command = [bedplate, "data", "pack", *parts, making, *kind]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            os.replace(making, shards)
            for part in parts:
                os.unlink(part)
        dist.barrier()
    return f"{shards}/"


class Batches:
    """naive.py's batches out of shards: tokens, and the same ones a token further on."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for batch in self.loader:
            window = batch["tokens"].long()
            yield window[:, :-1], window[:, 1:]


def snapshot(state, kept=None):
    """A copy of a nested state with its tensors; into the memory of `kept`, an earlier copy."""
    if isinstance(state, torch.Tensor):
        return state.detach().clone() if kept is None else kept.copy_(state)
    if isinstance(state, dict):
        return {key: snapshot(value, kept and kept[key]) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [snapshot(value, kept and kept[i]) for i, value in enumerate(state)]
    return state


class BackgroundCheckpoint:
    """Writes checkpoints beside the training, one at a time.

    save() returns when the state is copied; it waits only if the write before is still going on.
    wait() returns when the last one is on the disk. What a write raises, they raise.
    """

    def __init__(self, path):
        self.path = path
        self.kept = None
        self.thread = None
        self.error = None

    def save(self, model, optimizer, step):
        self.wait()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        self.kept = snapshot(state, self.kept)
        self.thread = threading.Thread(target=self._write, name="checkpoint")
        self.thread.start()

    def wait(self):
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        if self.error is not None:
            raise self.error

    def _write(self):
        try:
            with open(f"{self.path}.tmp", "wb") as file:
                torch.save(self.kept, file)  # gzip took 95 % of the time and saved 8 % of the bytes
                file.flush()
                os.fsync(file.fileno())
            os.replace(f"{self.path}.tmp", self.path)
        except BaseException as error:  # noqa: BLE001: raised again by wait()
            self.error = error


def train(steps, out, packs, fixes, rank):
    files = naive.find_sources()
    if rank == 0:
        size = sum(path.stat().st_size for path in files) / 1e6
        print(f"{len(files):,} source files of {size:.1f} MB; mended: {', '.join(fixes) or '-'}")
    sampler = DistributedSampler(files, seed=SEED, drop_last=True)
    if "input" in fixes:
        begin = time.perf_counter()
        url = pack(files, packs)
        if rank == 0:
            print(f"shards ready after {time.perf_counter() - begin:.1f} s", flush=True)
        loader = Batches(Loader(Dataset(url), BATCH, sampler=sampler, tail="drop"))
    else:
        dataset = naive.SourceFiles(files)
        loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, drop_last=True)
    torch.manual_seed(SEED)
    model = DistributedDataParallel(GPT(VOCABULARY, BLOCK))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    background = BackgroundCheckpoint(out / "checkpoint.pt")

    step = 0
    log = open(out / f"log-{rank}.jsonl", "w", buffering=1)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for tokens, targets in loader:
            loss = model(tokens, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % CHECKPOINT_EVERY == 0:
                if "checkpoint" in fixes:
                    if rank == 0:
                        background.save(model.module, optimizer, step)
                else:
                    if rank == 0:
                        path = out / "checkpoint.pt.gz"
                        naive.save_checkpoint(path, model.module, optimizer, step)
                    dist.barrier()
            if step == steps:
                background.wait()  # before the last line, so that its time counts as well
            print(json.dumps({"step": step, "loss": loss.item(), "time": time.time()}), file=log)
            if rank == 0 and step % 10 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)
            if step == steps:
                return


def list_of_fixes(text):
    fixes = [fix for fix in text.split(",") if fix]
    for fix in fixes:
        if fix not in FIXES:
            raise argparse.ArgumentTypeError(f"no fix {fix!r}; there are {', '.join(FIXES)}")
    return fixes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--out", type=Path, help="folder to keep checkpoint and log in")
    parser.add_argument("--packs", type=Path, help="folder to keep the packed corpus in (--out)")
    parser.add_argument("--fix", type=list_of_fixes, default=FIXES, help="what to mend (all)")
    args = parser.parse_args()
    torch.set_num_threads(threads_of_rank() if "threads" in args.fix else naive.THREADS)
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    temporary = [None]
    if rank == 0 and args.out is None:
        temporary = [tempfile.mkdtemp(prefix="wall-")]
    dist.broadcast_object_list(temporary)
    out = args.out or Path(temporary[0])
    packs = args.packs or out
    out.mkdir(parents=True, exist_ok=True)
    packs.mkdir(parents=True, exist_ok=True)
    try:
        train(args.steps, out, packs, args.fix, rank)
    finally:
        if rank == 0 and temporary[0]:
            shutil.rmtree(temporary[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
