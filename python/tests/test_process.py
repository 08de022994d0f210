"""Garbage collection, stack dumps, jobs that do as they like with processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch")


def test_garbage_collections_that_matter(run, trace):
    run(
        """
        import gc, torch
        gc.disable()
        keep = [[] for _ in range(300000)]
        cycle = []; cycle.append(cycle); del cycle
        mark = gc.collect()
        """
    )
    (process,) = trace.processes()
    last = process.records("GC")[-1]
    assert last.arg & 0xFF == 2
    assert last.arg >> 8 >= 1
    assert last.dur > 100_000


def wait_for(condition, what):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_stacks_on_request_without_stopping_the_process(trace, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, time\n"
        "def deep_inside():\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.readline()\n"
        "deep_inside()\n"
        "print('went on')\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=trace.environment(),
    )
    assert process.stdout.readline() == b"ready\n"
    (slot,) = trace.processes()
    assert slot.dump_signal == signal.SIGRTMAX - 3
    path = os.path.join(trace.run, "stacks", "%d.txt" % process.pid)
    assert os.path.getsize(path) == 0
    os.kill(process.pid, slot.dump_signal)
    wait_for(lambda: "deep_inside" in open(path).read(), "no stacks in %s" % path)
    out, _ = process.communicate(b"\n", timeout=60)
    assert (out, process.returncode) == (b"went on\n", 0)


@pytest.mark.parametrize("how", ["handler", "ignored"])
def test_a_job_that_uses_the_signal_keeps_it(run, trace, how):
    action = {"handler": "lambda *_: print('mine')", "ignored": "signal.SIG_IGN"}[how]
    result = run(
        """
        import os, signal
        number = signal.SIGRTMAX - 3
        signal.signal(number, %s)
        import torch
        os.kill(os.getpid(), number)
        print("alive")
        """
        % action
    )
    assert result.stdout.endswith("alive\n")
    (process,) = trace.processes()
    assert process.dump_signal == 0
    assert process.texts("hook_off") == ["stack_dump: the job uses signal 61 itself"]


def test_a_fork_child_writes_its_stacks_into_its_own_file(run, trace):
    run(
        """
        import os, signal, torch
        child = os.fork()
        if child == 0:
            torch.nn.Linear(2, 1)(torch.ones(2)).sum().backward()
            os.kill(os.getpid(), signal.SIGRTMAX - 3)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """
    )
    parent, child = trace.processes()
    folder = os.path.join(trace.run, "stacks")
    # The parent's file stayed empty, and empty ones are removed at the end.
    assert os.listdir(folder) == ["%d.txt" % child.pid]
    assert os.path.getsize(os.path.join(folder, "%d.txt" % child.pid)) > 0
    assert child.count("BACKWARD") == 1


def test_short_lived_children_claim_nothing(run, trace):
    run(
        """
        import subprocess, sys, torch, os
        for i in range(20):
            subprocess.run([sys.executable, "-c", "pass"])
            if os.fork() == 0:
                os._exit(0)
            os.wait()
        """
    )
    assert len(trace.processes()) == 1


def test_a_daemon_that_closes_everything_changes_folder_and_goes_on(run, trace):
    run(
        """
        import os, sys, time, torch
        torch.nn.Linear(2, 1)(torch.ones(2)).sum().backward()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.chdir("/")
                os.closerange(0, 65536)
                os.environ.clear()
                torch.nn.Linear(2, 1)(torch.ones(2)).sum().backward()
                os._exit(0)
            os._exit(0)
        os.wait()
        time.sleep(0.5)
        torch.nn.Linear(2, 1)(torch.ones(2)).sum().backward()
        """
    )
    counts = [process.count("BACKWARD") for process in trace.processes()]
    # The daemon has no BEDPLATE_TRACE any more, so it stays unseen rather than in the wrong slot.
    assert counts == [2]


def test_uncaught_exceptions_through_hooked_code_print_as_without_bedplate(run, trace):
    script = """
        import torch
        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x
            @staticmethod
            def backward(ctx, g):
                try:
                    torch.load("absent.pt")
                except FileNotFoundError as error:
                    raise ValueError("in backward") from error
        Function.apply(torch.ones(1, requires_grad=True)).backward()
    """
    hooked, plain = run(script, code=1), run(script, code=1, hooked=False)
    assert hooked.stderr == plain.stderr
    (error,) = trace.processes()[0].jsons("exception")
    assert (error["type"], error["message"]) == ("ValueError", "in backward")


def test_the_hook_adds_no_thread_and_no_warning(run, trace):
    script = """
        import os, warnings
        warnings.simplefilter("always")
        import torch
        print(len(os.listdir("/proc/self/task")), sorted(map(int, os.listdir("/proc/self/fd")))[:4])
    """
    hooked, plain = run(script, options=["-X", "dev"]), run(script, hooked=False, options=["-X", "dev"])
    assert hooked.stdout == plain.stdout
    assert hooked.stderr == plain.stderr
