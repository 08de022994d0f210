"""CUDA phases, copies and synchronisations against a stand-in for torch.cuda.

The stand-in's clock moves only when the test says so, its events know when they have passed, and
it fails the test at once if anything but the job itself synchronises.
"""

import pytest

pytest.importorskip("torch")

FAKE = """
    import sys, torch
    from _bedplate_hook import device, ring

    class FakeCuda:
        _initialized = True
        clock = 0.0          # ms on the device
        reached = 0.0        # events up to here have passed
        capturing = False
        def is_current_stream_capturing(self):
            return self.capturing
        def synchronize(self, device=None):
            self.reached = self.clock
            return "synced"

    cuda = FakeCuda()

    class Event:
        made = 0
        def __init__(self, enable_timing=False):
            assert enable_timing
            Event.made += 1
        def record(self, stream=None):
            self.at = cuda.clock
        def query(self):
            return cuda.reached >= self.at
        def elapsed_time(self, other):
            assert self.query() and other.query(), "asked too early: CUDA would raise"
            return other.at - self.at
        def synchronize(self):
            raise AssertionError("Bedplate must never synchronise")

    cuda.Event = Event

    class Tensor:            # as much of a tensor as the wrappers look at
        def __init__(self, is_cuda):
            self.is_cuda = is_cuda
        def to(self, where):
            return Tensor(where == "cuda")
        def cuda(self):
            return self.to("cuda")
        def cpu(self):
            return self.to("cpu")
        def copy_(self, src, non_blocking=False):
            return self
        def item(self):
            return 4
        def tolist(self):
            return [4]
        def numel(self):
            return 10
        def element_size(self):
            return 4

    device.install(cuda, Tensor)
"""


def test_device_time_comes_from_polled_events(run, trace):
    run(
        FAKE
        + """
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    class Work(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x
        @staticmethod
        def backward(ctx, g):
            cuda.clock += 7.0            # what backward launches takes 7 ms
            return g
    for i in range(5):
        cuda.clock += 3.0                # forward
        Work.apply(model(torch.ones(4))).sum().backward()
        optimizer.step()
        if i != 1:
            cuda.reached = cuda.clock    # the device has caught up
    """
    )
    (process,) = trace.processes()
    phases = [(r.arg & 0xFF, r.arg >> 8, r.dur) for r in process.records("GPU_PHASE")]
    backward = [p for p in phases if p[0] == 4]
    steps = [p for p in phases if p[0] == 1]
    assert backward == [(4, 7_000_000, 7_000_000)] * 4  # the fifth is read at a step that never came
    assert steps == [(1, 10_000_000, 10_000_000)] * 3
    assert [p[0] for p in phases].count(2) == 4
    hosts = process.records("BACKWARD")
    for polled in [r for r in process.records("GPU_PHASE") if r.arg & 0xFF == 4]:
        assert polled.t0 in {host.t0 for host in hosts}
    assert "cuda_events" in process.hooks()
    assert process.count("DEVICE_SYNC") == 0


def test_nothing_is_recorded_while_a_graph_is_captured(run, trace):
    run(
        FAKE
        + """
    cuda.capturing = True
    torch.nn.Linear(4, 1)(torch.ones(4)).sum().backward()
    assert Event.made == 0
    """
    )
    (process,) = trace.processes()
    assert process.count("BACKWARD") == 1 and process.count("GPU_PHASE") == 0


def test_pairs_that_never_pass_are_bounded(run, trace):
    run(
        FAKE
        + """
    cuda.reached = -1.0
    optimizer = torch.optim.SGD(torch.nn.Linear(4, 1).parameters(), lr=0.1)
    for i in range(1000):
        cuda.clock += 1.0
        optimizer.step()
    assert len(device._pending) == device._PENDING_LIMIT
    """
    )
    assert trace.processes()[0].count("GPU_PHASE") == 0


def test_a_failing_event_switches_only_the_events_off(run, trace):
    run(
        FAKE
        + """
    def broken(self, stream=None):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    Event.record = broken
    for i in range(3):
        torch.nn.Linear(4, 1)(torch.ones(4)).sum().backward()
    """
    )
    (process,) = trace.processes()
    assert process.count("BACKWARD") == 3
    (line,) = process.texts("hook_off")
    assert line.startswith("cuda_events: RuntimeError: CUDA error")


def test_copies_and_synchronisations(run, trace):
    run(
        FAKE
        + """
    host, on_device = Tensor(False), Tensor(True)
    assert host.to("cuda").is_cuda and host.cuda().is_cuda     # 2 copies to the device
    on_device.copy_(src=host, non_blocking=True)               # a third
    host.to("cpu"), on_device.to("cuda"), host.copy_(host)     # nothing moves
    on_device.cpu(), host.copy_(on_device)                     # 2 reads
    assert on_device.item() == 4 and on_device.tolist() == [4] # 2 more
    host.item()
    assert cuda.synchronize() == "synced"                      # the job's own
    """
    )
    (process,) = trace.processes()
    assert [r.arg for r in process.records("H2D")] == [40] * 3
    assert [r.arg for r in process.records("DEVICE_SYNC")] == [40, 40, 0, 0, 0]


def test_phases_have_device_time_too(run, trace):
    import conftest

    run(
        FAKE
        + """
    import bedplate
    with bedplate.phase("decode"):
        cuda.clock += 2.5
    cuda.reached = cuda.clock
    bedplate.step()
    """,
        PYTHONPATH=str(conftest.PACKAGE),
    )
    (process,) = trace.processes()
    (polled,) = process.records("GPU_PHASE")
    assert (polled.arg & 0xFF, polled.arg >> 8) == (13, 2_500_000)


def test_it_waits_for_the_job_to_initialise_cuda(run, trace):
    run(
        """
        import types, torch
        from _bedplate_hook import device
        cuda = types.ModuleType("cuda")
        cuda._initialized = False
        def _lazy_init():
            cuda._initialized = True
        cuda._lazy_init = original = _lazy_init
        device.patch_cuda(cuda)
        installed = []
        device.install = installed.append
        torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1).step()
        assert installed == []
        cuda._lazy_init()
        assert installed == [cuda] and cuda._lazy_init is original
        """
    )


def test_a_real_gpu_if_there_is_one(run, trace):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    run(
        """
        import torch
        model = torch.nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(20):
            model(torch.ones(64, 1024).cuda()).sum().backward()
            optimizer.step()
        """
    )
    (process,) = trace.processes()
    assert process.count("H2D") >= 20
    assert process.count("GPU_PHASE") > 10
    assert process.texts("hook_off") == []
