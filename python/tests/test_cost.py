"""What an event costs. The margins are wide, for busy machines; the figures are printed.

Run `python python/tests/test_cost.py` for the table alone.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

COST = """
import sys, time
import bedplate

def cost(function, rounds=15, calls=20000):
    spent = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for _ in range(calls):
            function()
        spent.append((time.perf_counter_ns() - began) / calls)
    return sorted(spent)[rounds // 2]

def phase():
    with bedplate.phase("x"):
        pass
"""
MEASURE = (
    COST
    + """
from _bedplate_hook import files, ring

at = ring.now()
empty = cost(lambda: None)
print("emit", cost(lambda: ring.emit(ring.GC, at, at)) - empty)
print("open and close mark", cost(lambda: ring.close_mark(ring.open_mark(3, at))) - empty)
print("bedplate.step()", cost(bedplate.step))
print("with bedplate.phase()", cost(phase))
before = cost(lambda: sys.audit("any.event", 1))
sys.addaudithook(files._audit)
print("audit event", cost(lambda: sys.audit("any.event", 1)) - before)
"""
)
OUTSIDE = (
    COST
    + """
def nothing():
    pass

empty = cost(nothing)
print("step() outside run", cost(bedplate.step))
print("phase() outside run", cost(phase) - empty)
"""
)


def _figures(source, environment):
    output = subprocess.run(
        [sys.executable, "-c", source], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    rows = (line.rpartition(" ") for line in output.splitlines())
    return {name: float(value) for name, _, value in rows}


def _start_up(hooked, plain):
    """Median of what the hook adds to a Python that does nothing, the two taken in turns."""
    added = []
    for _ in range(41):
        spent = []
        for environment in (hooked, plain):
            began = time.perf_counter_ns()
            subprocess.run([sys.executable, "-c", "pass"], env=environment, check=True)
            spent.append(time.perf_counter_ns() - began)
        added.append(spent[0] - spent[1])
    return statistics.median(added[1:])  # the first one writes bytecode


def table(trace):
    from conftest import PACKAGE

    plain = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    plain.pop("BEDPLATE_TRACE", None)
    hooked = trace.environment(PYTHONPATH=str(PACKAGE))
    figures = _figures(MEASURE, hooked)
    figures.update(_figures(OUTSIDE, plain))
    figures["start-up of a process"] = _start_up(hooked, plain)
    return figures


def test_an_event_costs_less_than_two_microseconds(trace, capsys):
    figures = table(trace)
    with capsys.disabled():
        print()
        for name, value in figures.items():
            print("  %-22s %10.0f ns" % (name, value))
    assert figures["emit"] < 4_000
    assert figures["open and close mark"] < 6_000
    assert figures["bedplate.step()"] < 6_000
    assert figures["audit event"] < 1_000
    assert figures["step() outside run"] < 500
    assert figures["phase() outside run"] < 1_000
    assert figures["start-up of a process"] < 5_000_000


if __name__ == "__main__":
    from ring_reader import Trace

    with tempfile.TemporaryDirectory() as folder, Trace(folder) as made:
        for row in table(made).items():
            print("%-22s %10.0f ns" % row)
