"""The ring itself: claims, wrap-around, and every way in which there can be none."""

import os
import struct

import pytest
from conftest import PACKAGE
from ring_reader import HEADER, Process, Trace

STEPS = """
    import sys, bedplate
    for i in range(int(sys.argv[1])):
        bedplate.step()
    print("done", bedplate.active())
"""


def small(tmp_path, **sizes):
    return Trace(tmp_path / "small", **sizes)


def test_a_slow_reader_loses_the_oldest_and_counts_them(run, trace):
    count = trace.record_count * 9 + 17  # the 16-bit sequence wraps as well
    run(STEPS, str(count), PYTHONPATH=str(PACKAGE))
    (process,) = trace.processes()
    assert process.head == count
    assert process.lost == count - trace.record_count
    indices = [record.index for record in process.all_records]
    assert indices == list(range(count - trace.record_count, count))
    assert all(a.t0 <= b.t0 for a, b in zip(process.all_records, process.all_records[1:]))


def test_threads_share_a_slot_without_losing_a_record(run, trace):
    run(
        """
        import threading, bedplate
        def work():
            for i in range(500):
                with bedplate.phase("part"):
                    bedplate.step()
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
        PYTHONPATH=str(PACKAGE),
    )
    (process,) = trace.processes()
    assert (process.count("USER_STEP"), process.count("PHASE"), process.lost) == (4000, 4000, 0)
    per_thread = {}
    for record in process.records("PHASE"):
        per_thread[record.tid] = per_thread.get(record.tid, 0) + 1
    assert sorted(per_thread.values()) == [500] * 8


def test_events_from_signal_handlers_and_gc_callbacks_do_not_deadlock(run, trace):
    run(
        """
        import gc, signal, bedplate
        signal.signal(signal.SIGALRM, lambda *_: bedplate.step())
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        gc.callbacks.append(lambda phase, info: bedplate.step())
        gc.set_threshold(1)
        for i in range(30000):
            with bedplate.phase("part"):
                [[]]
        signal.setitimer(signal.ITIMER_REAL, 0)
        """,
        PYTHONPATH=str(PACKAGE),
    )
    (process,) = trace.processes()
    # Interrupted writers may cost a record its place, never the order of the others.
    assert process.head >= 30000
    assert len(process.all_records) >= trace.record_count - 2


@pytest.mark.parametrize("kind", ["absent file", "wrong magic", "text", "truncated", "directory"])
def test_an_unusable_trace_is_noted_in_the_run_folder_and_nowhere_else(run, trace, tmp_path, kind):
    path = tmp_path / "trace"
    if kind == "wrong magic":
        path.write_bytes(b"BEDPTRC9" + trace.memory[8:HEADER])
    elif kind == "text":
        path.write_text("not a trace")
    elif kind == "truncated":
        path.write_bytes(trace.memory[:HEADER])
    elif kind == "directory":
        path.mkdir()
    result = run(STEPS, "5", PYTHONPATH=str(PACKAGE), BEDPLATE_TRACE=str(path))
    assert (result.stdout, result.stderr) == ("done False\n", "")
    with open(os.path.join(trace.run, "hook_off.log")) as log:
        assert log.read().count("\n") == 1


def test_a_trace_nobody_may_open_and_a_run_folder_that_is_gone(run, tmp_path):
    result = run(
        STEPS, "5", PYTHONPATH=str(PACKAGE), BEDPLATE_TRACE="/proc/1/fd/9999", BEDPLATE_RUN="/absent"
    )
    assert (result.stdout, result.stderr) == ("done False\n", "")


def test_when_all_slots_are_taken_the_job_runs_unseen(run, tmp_path):
    with small(tmp_path, slots=2) as trace:
        for index in range(2):
            struct.pack_into("<I", trace.memory, trace.slot_offset(index), 1)
        result = run(STEPS, "5", PYTHONPATH=str(PACKAGE), **only_trace(trace))
        assert result.stdout == "done False\n"
        with open(os.path.join(trace.run, "hook_off.log")) as log:
            assert "all 2 slots of the trace are taken" in log.read()


def test_a_freed_slot_is_taken_again_and_starts_empty(run, tmp_path):
    with small(tmp_path, slots=1, records=64) as trace:
        run(STEPS, "100", PYTHONPATH=str(PACKAGE), **only_trace(trace))
        struct.pack_into("<I", trace.memory, trace.slot_offset(0), 0)
        run(STEPS, "3", PYTHONPATH=str(PACKAGE), **only_trace(trace))
        process = Process(trace.memory, trace.slot_offset(0), trace.text_bytes, trace.record_count)
        assert (process.head, process.count("USER_STEP"), process.lost) == (3, 3, 0)


def test_claims_of_many_processes_at_once_never_share_a_slot(run, trace):
    run(
        """
        import os, bedplate
        children = []
        for i in range(40):
            child = os.fork()
            if child == 0:
                bedplate.step()
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        """,
        PYTHONPATH=str(PACKAGE),
    )
    processes = trace.processes()
    assert len(processes) == 40
    assert len({process.pid for process in processes}) == 40
    assert all(process.count("USER_STEP") == 1 for process in processes)


def test_a_full_text_area_counts_what_it_lost_and_keeps_room_for_the_exception(run, trace):
    run(
        """
        import bedplate
        for i in range(2000):
            with bedplate.phase("a rather long name of a phase number %d" % i):
                pass
        raise KeyError("last words")
        """,
        PYTHONPATH=str(PACKAGE),
        code=1,
    )
    (process,) = trace.processes()
    assert process.text_lost > 0
    assert process.jsons("exception")[0]["message"] == "'last words'"


def test_values_out_of_range_are_mended_not_fatal(run, trace):
    run(
        """
        import bedplate
        from _bedplate_hook import ring
        bedplate.step()
        ring.emit(ring.GC, 2000, 1000, -1)
        ring.emit(ring.GC, 1000, 2000, 1 << 70)
        bedplate.step()
        """,
        PYTHONPATH=str(PACKAGE),
    )
    (process,) = trace.processes()
    assert [record.dur for record in process.records("GC")] == [0, 1000]
    assert [record.arg for record in process.records("GC")] == [(1 << 64) - 1, 0]
    assert process.count("USER_STEP") == 2


def only_trace(trace):
    return {"BEDPLATE_TRACE": trace.path, "BEDPLATE_RUN": trace.run}
