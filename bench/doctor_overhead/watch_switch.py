"""Switches Bedplate's watching off and on inside a running job, so that both are timed in the same minute of one run.

Two runs of one job differ by several per cent on a shared machine (where its memory came to lie, what the neighbours
do); two blocks of steps that follow each other differ by far less. Off means: every function that the hook replaced is
the original again, its callbacks are out, and all processes of `bedplate run` are stopped by SIGSTOP. What stays is an
audit hook that Python cannot take out (0.1 us an event) and the BPF programs in the kernel, whose run time the kernel
counts by itself (run.py reads it).
"""
import gc
import importlib
import mmap
import os
import pathlib
import signal

import torch.distributed as dist


def watched(block):
    """Blocks go on off off on, on off off on …: a drift of the machine falls on both alike."""
    return block % 4 in (0, 3)


class _Hook:
    """The hook in this process: what it replaced, and how to take it out and put it back."""

    def __init__(self):
        from _bedplate_hook import garbage, training, wrap

        optimizer = importlib.import_module("torch.optim.optimizer")  # torch.optim deletes the name
        self.replaced = wrap._replaced
        self.callback = garbage._callback
        self.step_hooks = [
            (optimizer._global_optimizer_pre_hooks, training._pre_hook),
            (optimizer._global_optimizer_post_hooks, training._post_hook),
        ]
        self.keys = [next(k for k, v in hooks.items() if v is hook) for hooks, hook in self.step_hooks]
        self.on = True

    def turn(self, on):
        if on == self.on:
            return
        self.on = on
        for owner, name, original, wrapper in self.replaced:
            setattr(owner, name, wrapper if on else original)
        for (hooks, hook), key in zip(self.step_hooks, self.keys):
            if on:
                hooks[key] = hook
            else:
                del hooks[key]
        if on:
            gc.callbacks.append(self.callback)
        else:
            gc.callbacks.remove(self.callback)


def _watchers():
    """Process ids of the `bedplate run` above this process and of its own helpers."""
    above, pid = [], os.getppid()
    while pid > 1:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        name, _, rest = stat.partition("(")[2].rpartition(")")
        if name == "bedplate":
            above.append(pid)
            for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
                name, _, others = entry.read_text().partition("(")[2].rpartition(")")
                if name == "bedplate" and int(others.split()[1]) == pid:
                    above.append(int(entry.parent.name))
            return above
        pid = int(rest.split()[1])
    raise SystemExit("--block needs a `bedplate run` above this job")


def _bpf_ns(pids):
    """Run time of the BPF programs that these processes hold; None when the kernel does not count it."""
    if pathlib.Path("/proc/sys/kernel/bpf_stats_enabled").read_text().strip() != "1":
        return None
    programs = {}
    for pid in pids:
        for info in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
            try:
                text = info.read_text()
            except FileNotFoundError:  # closed meanwhile; programs stay open
                continue
            fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
            if "run_time_ns" in fields:
                programs[fields["prog_id"].strip()] = int(fields["run_time_ns"])
    return sum(programs.values())


class Switch:
    """One for each rank; its loader workers follow through a shared byte."""

    def __init__(self, model, parts):
        self.model = model
        self.parts = parts
        self.flag = mmap.mmap(-1, 1)
        self.flag[0] = 1
        self.watchers = _watchers() if dist.get_rank() == 0 and "collector" in parts else []
        self.hooks = {}

    def follow(self):
        if "hook" not in self.parts:
            return
        hook = self.hooks.get(os.getpid())
        if hook is None:
            hook = self.hooks[os.getpid()] = _Hook()
        hook.turn(bool(self.flag[0]))

    def turn(self, on):
        """Called by every rank after the same step; the next step starts only when all have switched."""
        self.flag[0] = on
        self.follow()
        if "hook" in self.parts:
            from _bedplate_hook import ddp

            timed = on and ddp._models[0].timed_from is not None
            self.model._set_ddp_runtime_logging_sample_rate(ddp._TIMED if timed else ddp._UNTIMED)
        for pid in self.watchers:
            os.kill(pid, signal.SIGCONT if on else signal.SIGSTOP)
        dist.barrier()

    def bpf_ns(self):
        return _bpf_ns(self.watchers)
