"""The training script with the peers' own lines in its loop.

Bedplate wants no line. TraceML counts steps only where the loop calls it, and datapath-doctor is a library, so measured on the
unchanged script alone they would be straw men: each gets a copy of tests/provoke/job.py with the lines that its README asks for.
The copies are made from the script as it is today; an edit that no longer fits is an error, never skipped.
"""

import pathlib

JOB = pathlib.Path(__file__).resolve().parents[2] / "tests/provoke/job.py"

# README of traceml-ai 0.5.0, "Plain PyTorch example": init once, trace_step around the step. The wait for the batch stays outside,
# as in its `for batch in dataloader:`. All else that the loop does stays inside, so that it is at least seen as residual time.
_TRACEML = [
    ("    import torch.distributed as dist\n",
     "    import torch.distributed as dist\n    import traceml_ai as traceml\n\n    traceml.init(mode=\"auto\")\n"),
]

# README of datapath-doctor 0.2.1, "Wiring it into a training job", with every signal that this job has: workers, prefetch, queue,
# the disk below the data, IO pressure, and how long a checkpoint blocked the loop.
_DATAPATH = [
    ("    import torch.distributed as dist\n",
     "    import torch.distributed as dist\n    import datapath_lines\n"
     "    from datapath_doctor.collectors.dataloader_profiler import DataLoaderProfiler\n"),
    ("    batches = iter(loader)\n",
     "    profiler = DataLoaderProfiler(loader, num_workers=args.workers, prefetch_factor=2 if args.workers else None)\n"
     "    signals = datapath_lines.Signals(args.folder or \"/tmp\")\n"
     "    batches = iter(profiler)\n"),
    ("                save(args, torch, rank, {\"model\": model.state_dict(), \"ballast\": ballast})\n",
     "                with signals.checkpoint():\n"
     "                    save(args, torch, rank, {\"model\": model.state_dict(), \"ballast\": ballast})\n"),
    ("        times.append(time.perf_counter() - began)\n",
     "        signals.fill(profiler.record_compute_done(queue_depth=datapath_lines.queue_depth(profiler)))\n"
     "        times.append(time.perf_counter() - began)\n"),
    ("    times = times[WARM_UP:]\n",
     "    times = times[WARM_UP:]\n    datapath_lines.report(profiler, args.ranks, dist)\n"),
]


def _edited(text, edits):
    for old, new in edits:
        if text.count(old) != 1:
            raise ValueError(f"{JOB.name} has changed, this line is no longer in it once: {old.strip()!r}")
        text = text.replace(old, new)
    return text


def _traced_loop(text):
    """Puts the step's body, from the batch to the end of the step, into `with traceml.trace_step(model):`."""
    fetch = "        for _ in range(args.accumulate):\n            batch = next(batches)\n"
    end = "        times.append(time.perf_counter() - began)\n"
    if text.count(fetch) != 1 or text.count(end) != 1:
        raise ValueError(f"the loop of {JOB.name} has changed; see {__file__}")
    head, rest = text.split(fetch)
    body, tail = rest.split(end)
    # Every fault here has one backward pass a step, so the batch can be taken before the step as in TraceML's example.
    body = "        for _ in range(args.accumulate):\n" + body
    inside = "".join("    " + line if line.strip() else line for line in body.splitlines(keepends=True))
    return head + "        batch = next(batches)\n        with traceml.trace_step(model):\n" + inside + end + tail


def write(kind, folder, groups=()):
    """Puts job.py ("plain", "traceml" or "datapath") into `folder`; returns its path. `groups`: control groups that it enters."""
    text = JOB.read_text()
    if kind == "traceml":
        text = _traced_loop(_edited(text, _TRACEML))
    elif kind == "datapath":
        text = _edited(text, _DATAPATH)
        lines = pathlib.Path(__file__).with_name("datapath_lines.py")
        (folder / lines.name).write_text(lines.read_text())
    if groups:
        files = [str(group / "cgroup.procs") for group in groups]
        text = f"for _file in {files!r}:\n    with open(_file, \"w\") as _procs:\n        _procs.write(\"0\")\n\n" + text
    path = folder / "job.py"
    path.write_text(text)
    return path
