"""What datapath-doctor's README leaves to the user: signals of this machine, the queue's depth, and the printing.

Is copied beside the edited training script and runs in the peers' virtual environment.
"""

import contextlib
import json
import os
import pathlib
import time

from datapath_doctor.collectors.proc_stats import DiskIOCollector, PSICollector
from datapath_doctor.correlation import correlate_findings
from datapath_doctor.distributed import analyze_distributed
from datapath_doctor.engine import RuleEngine
from datapath_doctor.report import render_findings


def disk_below(folder):
    number = os.stat(folder).st_dev
    link = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not link.exists():
        return None
    device = link.resolve()
    return device.parent.name if (device / "partition").exists() else device.name


class Signals:
    def __init__(self, folder):
        disk = disk_below(folder)
        self.collectors = [PSICollector()] + ([DiskIOCollector(disk)] if disk else [])
        self.checkpoint_s = None

    @contextlib.contextmanager
    def checkpoint(self):
        began = time.perf_counter()
        yield
        self.checkpoint_s = time.perf_counter() - began

    def fill(self, sample):
        for collector in self.collectors:
            for key, value in (collector.sample() or {}).items():
                setattr(sample, key, value)
        if self.checkpoint_s is not None:
            sample.checkpoint_write_s, sample.checkpoint_blocking, self.checkpoint_s = self.checkpoint_s, True, None


def queue_depth(profiler):
    """Batches that are ready: in the workers' result queue, and those that came out of order."""
    iterator = profiler._iter
    if not hasattr(iterator, "_worker_result_queue"):
        return None
    return iterator._data_queue.qsize() + sum(len(task) == 2 for task in iterator._task_info.values())


def report(profiler, ranks, dist):
    """Prints what the README's example prints, and keeps the same in claims.json for the bench."""
    samples = profiler.samples
    if ranks == 1:
        keep(show(RuleEngine.with_default_rules().run(samples), len(samples), ""))
        return
    gathered = [None] * ranks if dist.get_rank() == 0 else None
    dist.gather_object(samples, gathered)
    if gathered is None:
        return
    analysis = analyze_distributed([sample for part in gathered for sample in part])
    claims = []
    if analysis.straggler:
        print(f"straggler: {analysis.straggler.message}", flush=True)
        claims.append({"name": "input-path straggler", "text": analysis.straggler.message, "advice": ""})
    for rank, findings in analysis.per_rank_findings.items():
        claims += show(findings, len(gathered[rank]), f"rank {rank}: ")
    keep(claims)


def show(findings, count, whose):
    print(whose + render_findings(findings, num_samples=count), flush=True)
    claims = [{"name": f"{f.rule_id} {f.title}", "text": whose + f.message, "advice": f.suggested_fix} for f in findings]
    diagnosis = correlate_findings(findings)
    if diagnosis:
        claims.insert(0, {"name": diagnosis.summary, "advice": "", "text": f"{whose}{diagnosis.diagnosis_type}, "
                          f"confidence {diagnosis.confidence}: " + "; ".join(diagnosis.chain)})
    return claims


def keep(claims):
    pathlib.Path("claims.json").write_text(json.dumps(claims))
