"""The judge: which words count as naming a fault. The one place to disagree with.

Five grades, from best to worst; a tool's cell has the best that any of its claims earns:

    cause      a claim's name or evidence says what was planted
    suggested  the planted cause is one of several in the advice of a vaguer claim
    symptom    true, but an effect: the phase in which the time goes, not why
    silent     nothing is claimed, or what is claimed of a healthy job too (NEUTRAL)
    wrong      something is claimed that was not planted and is not its effect

A claim that earns nothing and is no remark is a false one and is printed even beside a better grade. Advice that is of no use
against the fault is marked where nothing better was said, and where it is a tool's first. Patterns are case-insensitive regular expressions; every tool is judged by the
same ones, Bedplate too.
"""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Accepted:
    cause: str                      # in a claim's name or evidence
    symptoms: dict                  # pattern -> what it is an effect of, in the table's words
    suggested: str = r"(?!)"        # in the advice: nothing, unless said
    useless: str = r"(?!)"          # advice that does not help against this fault
    planted: str = ""               # for the table


# What each tool also says of jobs in which nothing is wrong: no diagnosis. COMPUTE-BOUND is "informational" in TraceML's own
# documentation (diagnostics/DIAGNOSIS.md): compute takes over 90 % of the step. INSUFFICIENT is all that it can say of a loop
# that does not call it.
NEUTRAL = (r"^(healthy|no issues found|COMPUTE-BOUND|NO CLEAR PERFORMANCE BOTTLENECK|INSUFFICIENT STEP-TIME DATA|"
           r"[A-Z ]+: (NO GPU|NO DATA|NORMAL|BALANCED))")

# Remarks on the machine, true or not, that are no diagnosis of the step: never counted as wrong.
REMARK = r"^(SYSTEM|PROCESS|STEP MEMORY): "

# The loop waits for its input. INPUT-BOUND is TraceML's, DPD-001 and DPD-004 are datapath-doctor's, input_workers is Bedplate's
# when it is a consequence of the cause.
WAITS = {r"^INPUT-BOUND|^STEP TIME: INPUT-BOUND|DPD-001|starving the training loop": "the loop waits for input",
         r"DPD-004": "the prefetch queue runs dry", r"^input_workers: .*consequence of": "the loop waits for input"}
# Time in the step but in no phase that TraceML knows.
RESIDUAL = {r"RESIDUAL-HEAVY": "time outside the phases"}
# Ranks wait for each other, without a reason. A two-rank job with any fault may show it.
SKEW = {r"STRAGGLER|^straggler: .*consequence of": "one rank is late"}
# Processor time is short.
BUSY = {r"HIGH CPU|HIGH PROCESS CPU": "the processors are busy"}
IO = {r"DPD-003": "tasks wait for IO", r"DPD-002": "the disk is busy"}
# "unknown" is Bedplate's verdict for time that is lost and that no rule explains.
LOST = {r"^unknown: ": "time is lost, cause unknown"}

# Advice to start more workers. Bedplate's "mend X first; if this stays: ..." and datapath-doctor's "increase num_workers if CPU
# cores are still available" are right; where processors are used up, only advice without such a condition is counted as useless.
MORE_WORKERS = r"^(?!mend ).*(increase|raise)[^.;]*workers"
MORE_WORKERS_ANYHOW = r"^(?!mend )(?!.*\bif\b).*(increase|raise)[^.;]*workers"

FAULTS = {
    "cpu_quota": Accepted(
        planted="a cgroup's CPU quota of 0.4", cause=r"cpu.?quota|throttl.*(cpu|period)|cgroup.*cpu limit",
        # The job stands still wherever the quota happens to run out, so any phase can look long.
        symptoms={**RESIDUAL, **BUSY, **LOST}),
    "cpu_quota_two_ranks": Accepted(
        planted="a CPU quota of 0.7 over two ranks", cause=r"cpu.?quota|throttl.*(cpu|period)|cgroup.*cpu limit",
        symptoms={**RESIDUAL, **BUSY, **SKEW, **LOST, r"thread_oversubscription: .*consequence of": "threads wait for processors"}),
    "thread_oversubscription": Accepted(
        planted="2 ranks × 2 threads on 2 processors", cause=r"oversubscri|more (busy )?threads than",
        suggested=r"OMP_NUM_THREADS|set_num_threads",
        symptoms={**RESIDUAL, **BUSY, **SKEW, **LOST}),
    "affinity_collapse": Accepted(
        planted="rank and worker bound to one processor", cause=r"affinity|bound to the same|cpu mask|pinned to",
        symptoms={**WAITS, **BUSY, **RESIDUAL, **LOST, r"DPD-005|CPU-bound input": "workers are CPU-bound"},
        # Both already share one processor of two; another worker shares it too.
        useless=MORE_WORKERS_ANYHOW),
    "affinity_collapse_threads": Accepted(
        planted="2 compute threads bound to one processor", cause=r"affinity|bound to the same|cpu mask|pinned to",
        symptoms={**BUSY, **RESIDUAL, **LOST, r"thread_oversubscription: .*consequence of": "threads wait for processors"}),
    "no_workers": Accepted(
        planted="num_workers=0, batches that take 20 ms", cause=r"no (loader )?workers|num_workers ?= ?0",
        # TraceML says the same three things of every input-bound job; for this one the first of them is right.
        suggested=r"increase (num_)?workers|raise.*num_workers", symptoms={**WAITS, **LOST}),
    "pegged_workers": Accepted(
        planted="2 workers that use all there is of 2 processors",
        cause=r"workers? (are |is )?(already )?(pegged|CPU-bound)|CPU-bound input|DPD-005|more workers (will|do) not help",
        # TraceML's remark HIGH CPU advises to "inspect CPU-side preprocessing or host contention".
        suggested=r"CPU-side preprocessing",
        symptoms={**WAITS, **BUSY, **LOST},
        # Both processors are full: the suite measures no gain from more workers.
        useless=MORE_WORKERS_ANYHOW),
    "noisy_neighbour": Accepted(
        planted="4 processes outside the job that spin", cause=r"noisy.?neighbou?r|outside the job|other processes",
        # TraceML's remark HIGH CPU advises to "inspect CPU-side preprocessing or host contention".
        suggested=r"noisy neighbou?r|co-located|host contention",
        symptoms={**BUSY, **RESIDUAL, **LOST}),
    "python_gc": Accepted(
        planted="a full collection over 1.5 million objects every 8 steps", cause=r"garbage|python_gc|\bgc\b", suggested=r"garbage|\bgc\b",
        symptoms={**RESIDUAL, **LOST}),
    "debug_tracemalloc": Accepted(
        planted="PYTHONTRACEMALLOC=1", cause=r"tracemalloc|debug_switch", symptoms={**RESIDUAL, **LOST}),
    "debug_devmode": Accepted(
        planted="PYTHONDEVMODE=1", cause=r"PYTHONDEVMODE|debug_switch", symptoms={**RESIDUAL, **LOST}),
    "memcg_thrash": Accepted(
        planted="a memory limit that drops the page cache", cause=r"memcg|refault|memory limit", suggested=r"memory limit|page cache",
        symptoms={**WAITS, **IO, **LOST, r"io_throttle|small_files": "reads are slow"},
        # Another worker reads through the same limit.
        useless=MORE_WORKERS),
    "io_throttle": Accepted(
        planted="a cgroup's read limit of 40 MiB/s", cause=r"io_throttle|(cgroup|io\.max|blkio)[^.]*(throttl|limit)",
        # datapath-doctor's DPD-003 has "cgroup io.max throttling" as one of three things to check.
        suggested=r"io\.max|blkio|throttl", symptoms={**WAITS, **IO, **LOST},
        # The limit is the group's: more readers share it.
        useless=MORE_WORKERS),
    "cold_cache": Accepted(
        planted="36 MiB a batch, never read here before", cause=r"cold_cache|for the first time|cache (is|was) cold",
        suggested=r"page cache|warm(ing)? (up )?(the )?cache|cache[^.]* on (a )?local", symptoms={**WAITS, **IO, **LOST}),
    "readahead_amplification": Accepted(
        planted="pieces of 16 KiB at random places of a mapped file", cause=r"read-?ahead", suggested=r"read-?ahead|MADV_RANDOM|FADV_RANDOM",
        symptoms={**WAITS, **IO, **LOST}),
    "small_files": Accepted(
        planted="8,192 files of 2 KiB a batch", cause=r"small[-_ ]files?|many (small )?files",
        suggested=r"small[- ](file|random)|shard",
        symptoms={**WAITS, **IO, **LOST, r"DPD-005|CPU-bound input": "workers are CPU-bound"}),
    "checkpoint_stall": Accepted(
        planted="96 MiB saved with fsync every 10 steps", cause=r"checkpoint", suggested=r"checkpoint",
        symptoms={**RESIDUAL, **IO, **LOST}),
    "checkpoint_two_ranks": Accepted(
        planted="the same in rank 0, rank 1 waits", cause=r"checkpoint", suggested=r"checkpoint",
        symptoms={**RESIDUAL, **IO, **SKEW, **LOST}),
    "straggler": Accepted(
        # Naming the late rank is the cause here; what slows it was planted as plain work.
        planted="25 ms more work a step in rank 1", cause=r"straggler.*(\brank 1|\bR1\b)|(\brank 1|\bR1\b).*(late|straggl|slow)",
        symptoms={**SKEW, **RESIDUAL, **LOST}),
    "uneven_data": Accepted(
        # No rank is slower than the other: a tool that blames one of them is wrong, so only the plain fact is a symptom.
        planted="25 ms more work, in another rank each step", cause=r"uneven|changes from step to step|another rank (in )?each step",
        symptoms={r"^(STEP TIME: )?STRAGGLER": "one rank is late", **RESIDUAL, **LOST}),
}

GRADES = ["cause", "suggested", "symptom", "silent", "wrong"]


def _found(pattern, text):
    return re.search(pattern, text, re.IGNORECASE | re.DOTALL) is not None


def grade(accepted, claim):
    """(grade, what): of one claim; accepted is None for a healthy job."""
    said = f"{claim['name']}: {claim['text']}"
    if accepted:
        if _found(accepted.cause, said):
            return "cause", claim["name"]
        if _found(accepted.suggested, claim["advice"]):
            return "suggested", claim["name"]
        for pattern, what in accepted.symptoms.items():
            if _found(pattern, said):
                return "symptom", what
    if _found(NEUTRAL, claim["name"]):
        return "silent", claim["name"]
    return ("remark" if _found(REMARK, claim["name"]) else "wrong"), claim["name"]


def judge(fault, claims):
    """The best grade, the words that earned it, false claims besides, and advice that does not help."""
    accepted = FAULTS.get(fault)
    graded = [(*grade(accepted, claim), claim) for claim in claims]
    ranked = [entry for entry in graded if entry[0] in GRADES]
    best = min(ranked, key=lambda entry: GRADES.index(entry[0])) if ranked else ("silent", "", None)
    useless = [claim for _, _, claim in graded if accepted and _found(accepted.useless, claim["advice"])]
    return {
        "grade": best[0], "what": best[1],
        "first": bool(graded) and graded[0][0] == best[0],
        "wrong": sorted({what for kind, what, _ in ranked if kind == "wrong"}) if best[0] != "wrong" else [],
        "useless": bool(useless) and (GRADES.index(best[0]) >= GRADES.index("symptom") or claims[0] in useless),
    }
