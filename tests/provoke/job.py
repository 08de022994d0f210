"""A small training job that can be spoilt in one way at a time; healthy without flags.

    job.py --steps 100                                    # one rank, data in memory
    job.py --ranks 2 --data decode --workers 0            # two ranks that make their batches themselves
    job.py --data files --folder /tmp/files --workers 1   # each sample is a few small files

Prints one JSON line at the end: the mean and the median step in ms as the job itself measured it, without the
first steps. The suite compares these figures of a spoilt and a mended run; nothing of Bedplate is used here.
"""

import argparse
import gc
import json
import mmap
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time

WARM_UP = 3  # steps that are not timed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="compute threads a rank")
    parser.add_argument("--width", type=int, default=512, help="of the model's layers")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=1, help="backward passes a step")
    parser.add_argument("--validate-every", type=int, default=0)
    parser.add_argument("--data", choices=["memory", "decode", "files", "chunks", "jumps"], default="memory")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--decode-ms", type=float, default=20, help="Python work a batch (decode)")
    parser.add_argument("--folder", help="of small files (files), or of data.bin (chunks, jumps); also checkpoints")
    parser.add_argument("--files-a-batch", type=int, default=256)
    parser.add_argument("--chunk-mb", type=float, default=4, help="read a batch (chunks)")
    parser.add_argument("--data-mb", type=float, default=96, help="of data.bin that is read, round and round")
    parser.add_argument("--jumps", type=int, default=8, help="pieces of 16 KiB a batch, at random places of data.bin, mapped (jumps)")
    parser.add_argument("--advise-random", action="store_true", help="tell the kernel so (jumps)")
    parser.add_argument("--prime", action="store_true", help="read the data once before the first step")
    parser.add_argument("--drop-cache", action="store_true", help="read each chunk from the device")
    parser.add_argument("--checkpoint-every", type=int, default=0)
    parser.add_argument("--checkpoint-mb", type=float, default=32)
    parser.add_argument("--fsync", action="store_true")
    parser.add_argument("--gc-objects", type=int, default=0, help="live objects that a collection has to visit")
    parser.add_argument("--collect-every", type=int, default=0, help="steps between full collections")
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument("--slow-ms", type=float, default=30, help="more Python work a step of the slow rank")
    parser.add_argument("--uneven-ms", type=float, default=0, help="work that hits another rank in each step")
    parser.add_argument("--even-ms", type=float, default=0, help="the same, spread over two ranks: half of it in each")
    parser.add_argument("--churn", type=int, default=0, help="Python objects made and dropped a step")
    parser.add_argument("--pin", type=int, default=-1, help="bind ranks and workers to this processor after the imports")
    parser.add_argument("--die", choices=["segv", "kill", "exception", "exit", "memory"])
    parser.add_argument("--die-rank", type=int, default=0)
    parser.add_argument("--die-step", type=int, default=20)
    return parser.parse_args()


def spin(milliseconds):
    """Python work that takes so long on an undisturbed processor, measured in the thread's own CPU time."""
    end = time.thread_time() + milliseconds / 1e3
    x = 0
    while time.thread_time() < end:
        for _ in range(200):
            x += 1
    return x


def launch(args):
    """Starts the ranks as torchrun would, and ends like the first one that failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(args.ranks):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(args.ranks),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=env))
    failed = 0
    while ranks and not failed:
        time.sleep(0.05)
        for rank in list(ranks):
            code = rank.poll()
            if code is not None:
                ranks.remove(rank)
                failed = failed or code
    if failed:
        time.sleep(1.5)  # let the others fail by themselves first
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        rank.wait()
    return 128 - failed if failed < 0 else failed


def make_dataset(args, torch):
    class Samples(torch.utils.data.Dataset):
        """Whole batches: the loader's own work stays small beside what is to be measured."""

        def __init__(self):
            generator = torch.Generator().manual_seed(1)
            self.batch = torch.randn(args.batch, args.width, generator=generator)
            self.file = None

        def __len__(self):
            return 1_000_000

        def __getitem__(self, index):
            if args.data == "decode":
                spin(args.decode_ms)
            elif args.data == "files":
                self.read_files(index)
            elif args.data == "chunks":
                self.read_chunk(index)
            elif args.data == "jumps":
                self.jump(index)
            return self.batch

        def read_files(self, index):
            first = index * args.files_a_batch
            for i in range(first, first + args.files_a_batch):
                number = i % 4096
                with open(f"{args.folder}/{number % 64:02d}/{number}.bin", "rb") as file:
                    file.read()

        def read_chunk(self, index):
            if self.file is None:
                self.file = os.open(os.path.join(args.folder, "data.bin"), os.O_RDONLY)
            size = int(args.chunk_mb * 2**20)
            chunks = max(1, int(args.data_mb * 2**20) // size)
            offset = index % chunks * size
            left = size
            while left > 0:
                piece = os.pread(self.file, min(left, 1 << 20), offset)
                left -= max(1, len(piece))
                offset += len(piece)
            if args.drop_cache:
                os.posix_fadvise(self.file, offset - size, size, os.POSIX_FADV_DONTNEED)

        def jump(self, index):
            """As from a data set larger than memory: what was read for one batch is gone when the next one comes."""
            if self.file is None:
                self.file = os.open(os.path.join(args.folder, "data.bin"), os.O_RDONLY)
            size = os.lseek(self.file, 0, os.SEEK_END)
            places = random.Random(index)
            with mmap.mmap(self.file, size, prot=mmap.PROT_READ) as mapping:
                if args.advise_random:
                    mapping.madvise(mmap.MADV_RANDOM)
                for _ in range(args.jumps):
                    at = places.randrange(size - 16384)
                    mapping[at:at + 16384]
            os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)

    return Samples()


def die(kind):
    if kind == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "exception":
        raise ValueError("a label is out of range: 1000")
    elif kind == "exit":
        os._exit(7)
    elif kind == "memory":
        kept = []
        while True:
            kept.append(bytearray(32 << 20))
            for i in range(0, len(kept[-1]), 4096):
                kept[-1][i] = 1


class Node:
    __slots__ = ("other", "value")

    def __init__(self, other, value):
        self.other = other
        self.value = value


def object_graph(count):
    node = None
    kept = []
    for i in range(count // 2):
        node = Node(node, None)
        kept.append(node)
        kept.append([i])
    return kept


def save(args, torch, rank, state):
    path = os.path.join(args.folder or "/tmp", f"checkpoint-{os.getppid()}-{rank}.pt")
    with open(path, "wb") as file:
        torch.save(state, file)
        if args.fsync:
            file.flush()
            os.fsync(file.fileno())
    os.unlink(path)


def bind(cpu):
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), {cpu})


def train(args):
    import torch
    import torch.distributed as dist

    rank = int(os.environ.get("RANK", "0"))
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        *[m for _ in range(args.layers) for m in (torch.nn.Linear(args.width, args.width), torch.nn.ReLU())])
    parallel = model
    if args.ranks > 1:
        dist.init_process_group("gloo")
        parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-4)
    if args.pin >= 0:
        parallel(torch.zeros(args.batch, args.width)).sum().backward()  # starts the thread pools
        optimizer.zero_grad()
        bind(args.pin)
    loader = torch.utils.data.DataLoader(make_dataset(args, torch), batch_size=None, num_workers=args.workers,
                                         persistent_workers=args.workers > 0)
    if args.prime:
        dataset = make_dataset(args, torch)
        for index in range(max(1, int(args.data_mb / args.chunk_mb))):
            dataset[index]
    graph = object_graph(args.gc_objects)
    gc.collect()
    ballast = torch.zeros(int(args.checkpoint_mb * 2**18)) if args.checkpoint_every else None
    batches = iter(loader)
    times = []
    for step in range(args.steps + WARM_UP):
        began = time.perf_counter()
        for _ in range(args.accumulate):
            batch = next(batches)
            loss = parallel(batch).square().mean()
            loss.backward()
        if rank == args.slow_rank:
            spin(args.slow_ms)
        if args.even_ms:
            spin(args.even_ms)
        if args.uneven_ms and step % args.ranks == rank:
            spin(args.uneven_ms)
        if args.churn:
            for i in range(args.churn):
                {"value": [i]}  # noqa: B018
        optimizer.step()
        optimizer.zero_grad()
        if args.die and rank == args.die_rank and step == args.die_step:
            die(args.die)
        if args.checkpoint_every and step % args.checkpoint_every == args.checkpoint_every - 1:
            if rank == 0:
                save(args, torch, rank, {"model": model.state_dict(), "ballast": ballast})
            if args.ranks > 1:
                dist.barrier()
        if args.collect_every and step % args.collect_every == args.collect_every - 1:
            gc.collect()
        if args.validate_every and step % args.validate_every == args.validate_every - 1:
            with torch.no_grad():
                for _ in range(5):
                    model(next(batches))
        times.append(time.perf_counter() - began)
    times = times[WARM_UP:]
    if rank == 0:
        print(json.dumps({"mean_ms": statistics.fmean(times) * 1e3, "median_ms": statistics.median(times) * 1e3,
                          "steps": len(times), "live": len(graph)}), flush=True)
    if args.ranks > 1:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    ARGS = arguments()
    sys.exit(launch(ARGS) if ARGS.ranks > 1 and "RANK" not in os.environ else train(ARGS))
