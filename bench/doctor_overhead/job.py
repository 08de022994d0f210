"""A DDP job of two ranks, each with DataLoader workers, that prints its own step times as its last line.

    torchrun --nproc-per-node 2 job.py --steps 300 --workers 4
    bedplate run -- torchrun --nproc-per-node 2 job.py --steps 4000 --block 20   # watched and bare in blocks

With --block the watching is switched off and on again within the one run (watch_switch.py).
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import watch_switch


class Vectors(Dataset):
    """Samples that cost little to make, so that the step is dominated by the model: float32 [width]."""

    def __init__(self, count, width, switch):
        self.count, self.width, self.switch = count, width, switch

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.switch:
            self.switch.follow()
        generator = torch.Generator().manual_seed(index)
        return torch.randn(self.width, generator=generator)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--block", type=int, default=0, help="steps in a block; 0: watched or not as a whole")
    parser.add_argument("--parts", default="hook,collector", help="what a block without watching is without")
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    width = args.width
    model = torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.GELU(), torch.nn.Linear(2 * width, width))
    model = DistributedDataParallel(model)
    switch = watch_switch.Switch(model, args.parts.split(",")) if args.block else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Vectors((args.steps + 1) * args.batch, width, switch), batch_size=args.batch, num_workers=args.workers,
                        persistent_workers=args.workers > 0)
    times, cpu, last, last_cpu, loss = [], [], None, None, None
    began = time.perf_counter()
    for step, batch in enumerate(loader):
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        now, now_cpu = time.perf_counter(), time.process_time()
        if last is not None:
            times.append(now - last)
            cpu.append(now_cpu - last_cpu)
        last, last_cpu = now, now_cpu
        if switch and (step + 1) % args.block == 0:
            switch.turn(on=watch_switch.watched((step + 1) // args.block))
            last = None
    if switch:
        switch.turn(on=True)
    if dist.get_rank() == 0:
        steady = times[len(times) // 10:]
        result = {"step_ms": statistics.median(steady) * 1e3, "loss": loss.item()}
        if switch:
            result.update(times=times, cpu=cpu, bpf_ns=switch.bpf_ns(), seconds=time.perf_counter() - began)
        print(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
