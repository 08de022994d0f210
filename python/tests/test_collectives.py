"""torch.distributed under the hook: gloo, two ranks, by torchrun and by mp.spawn."""

import pytest

pytest.importorskip("torch.distributed")

from conftest import torch_since  # noqa: E402

ALL_REDUCE, BARRIER, OBJECT, SEND, RECV, ISEND, IRECV, INIT = 1, 7, 11, 32, 33, 34, 35, 64

START = """
    import os, sys, time
    import torch
    from torch.distributed import all_reduce        # a name imported before init
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
"""

# Threads of torch 2.13 may outlive the interpreter, and then abort it ("terminate called without an
# active exception"), with and without a hook: a job that does not end it cannot be hit.
END = """
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)
"""


def ranks(trace):
    found = sorted((p for p in trace.processes() if p.role == 1), key=lambda p: p.rank)
    assert [p.rank for p in found] == [0, 1]
    return found


def operations(process):
    """(op, async, group, sequence) of each collective record after init_process_group."""
    records = [r.arg for r in process.records("COLLECTIVE") if r.arg & 0xFF != INIT]
    return [(a & 0xFF, a >> 8 & 1, a >> 9 & 0x7F, a >> 16) for a in records]


@torch_since(2, 6, "reduce_scatter in Gloo")
def test_every_collective_is_seen_once(run, trace, torchrun):
    run(
        START
        + """
    t = torch.ones(256)
    both = [torch.empty(256), torch.empty(256)]
    dist.all_reduce(t)
    all_reduce(t)
    dist.reduce(t, 0)
    dist.broadcast(t, src=0)
    dist.all_gather(both, t)
    dist.all_gather_into_tensor(torch.empty(512), t)
    dist.reduce_scatter(torch.empty(128), list(torch.ones(256).chunk(2)))
    dist.reduce_scatter_tensor(torch.empty(128), t)
    dist.all_to_all_single(torch.empty(256), t)
    dist.barrier()
    dist.gather(t, both if rank == 0 else None, dst=0)
    dist.scatter(torch.empty(256), both if rank == 0 else None, src=0)
    dist.all_gather_object([None, None], {"a": 1})
    dist.broadcast_object_list([1, 2], src=0)
    dist.monitored_barrier()
    if rank == 0:
        dist.send(t, 1)
        dist.isend(t, 1).wait()
    else:
        dist.recv(t, 0)
        dist.irecv(t, 0).wait()
    dist.destroy_process_group()
    """,
        launcher=torchrun(2),
    )
    first, second = ranks(trace)
    shared = [1, 1, 2, 3, 4, 4, 5, 5, 6, 7, 9, 10, 11, 13, 8]
    expected = [(op, 0, 0, i + 1) for i, op in enumerate(shared)]
    assert operations(first)[:15] == expected
    assert operations(second)[:15] == expected
    assert [o[0] for o in operations(first)[15:]] == [SEND, ISEND, ISEND]
    assert [o[0] for o in operations(second)[15:]] == [RECV, IRECV, IRECV]
    assert [o[3] for o in operations(first)[15:]] == [1, 2, 2]  # launch and wait share a number
    assert (first.world_size, first.local_rank, second.local_rank) == (2, 0, 1)
    assert first.text("backend") == "gloo"
    names = {item["id"]: item["name"] for item in first.jsons("op_name")}
    assert names[ALL_REDUCE] == "all_reduce" and names[BARRIER] == "barrier"
    moved = [r.arg for r in first.records("BYTES")]
    assert moved == [1024] * 4 + [2048] * 2 + [1024] * 5 + [1024] * 2
    assert [p for p in trace.processes() if p.role == 3]  # torchrun itself is no rank


def test_a_torch_that_was_imported_before_the_hook(run, trace):
    """A .pth file may do that: names that are out already are pointed at the wrappers."""
    run(
        """
        import os, sys
        import torch, torch.distributed as dist
        from torch.distributed import all_reduce
        from torch.utils.data import DataLoader
        sys.path.insert(0, os.environ["LATER"])
        os.environ["BEDPLATE_TRACE"] = os.environ["LATER_TRACE"]
        import _bedplate_hook
        _bedplate_hook.arm()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        all_reduce(torch.ones(1))
        dist.all_reduce(torch.ones(1))
        next(iter(DataLoader([1, 2])))
        torch.save(1, "a.pt")
        torch.nn.Linear(1, 1)(torch.ones(1)).backward()
        """,
        hooked=False,
        LATER=trace.hook,
        LATER_TRACE=trace.path,
    )
    (process,) = trace.processes()
    assert [o[0] for o in operations(process)] == [ALL_REDUCE, ALL_REDUCE]
    assert process.count("CHECKPOINT") == process.count("BACKWARD") == 1
    assert process.count("INPUT_WAIT") == 2


def test_waiting_for_the_other_rank_shows_in_the_collective(run, trace, torchrun):
    run(
        START
        + """
    t = torch.ones(4)
    dist.barrier()
    if rank == 1:
        time.sleep(0.5)
    work = dist.all_reduce(t, async_op=True)
    work.wait()
    work.wait()
    assert t.sum().item() == 8
    """,
        launcher=torchrun(2),
    )
    first, second = ranks(trace)
    for process in (first, second):
        assert operations(process)[-2:] == [(ALL_REDUCE, 1, 0, 2)] * 2
    launch, wait = [r for r in first.records("COLLECTIVE") if r.arg >> 8 & 1]
    assert wait.dur > 400_000_000
    assert launch.dur < 100_000_000
    assert sum(r.dur for r in second.records("COLLECTIVE") if r.arg >> 8 & 1) < 300_000_000


def test_groups_have_numbers_and_sequences_of_their_own(run, trace, torchrun):
    run(
        START
        + """
    pair = dist.new_group([0, 1])
    alone = dist.new_group([1])
    t = torch.ones(4)
    dist.all_reduce(t)
    dist.all_reduce(t, group=pair)
    dist.all_reduce(t, dist.ReduceOp.SUM, pair)
    dist.all_reduce(t, group=dist.group.WORLD)
    if rank == 1:
        dist.all_reduce(t, group=alone)
    dist.destroy_process_group()
    """,
        launcher=torchrun(2),
    )
    first, second = ranks(trace)
    reduces = [o[2:] for o in operations(first) if o[0] == ALL_REDUCE]
    assert reduces == [(0, 1), (1, 1), (1, 2), (0, 2)]
    assert [o[2:] for o in operations(second) if o[0] == ALL_REDUCE][4] == (2, 1)
    assert first.jsons("group")[0]["ranks"] == [0, 1]
    assert second.jsons("group")[1]["ranks"] == [1]


def test_a_rank_stuck_in_a_collective_says_so(run, trace, torchrun):
    run(
        START
        + """
    import signal
    dist.all_reduce(torch.ones(4))
    if rank == 1:
        time.sleep(30)
    signal.alarm(1)      # kills the rank in the middle of its wait
    dist.barrier()
    """,
        launcher=torchrun(2),
        code=1,
    )
    first, second = ranks(trace)
    assert first.open_kind == 5
    assert (first.open_arg & 0xFF, first.open_arg >> 16) == (BARRIER, 2)
    assert first.open_since > first.records("COLLECTIVE")[-1].t0
    assert second.open_kind == 0


def test_ranks_of_mp_spawn_and_the_exception_of_one(run, trace):
    run(
        """
        import os, sys
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp

        def work(rank, port):
            store = dist.FileStore(port, 2)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
            dist.all_reduce(torch.ones(2))
            dist.barrier()
            dist.destroy_process_group()
            if rank == 1:
                raise RuntimeError("rank one fell over")

        if __name__ == "__main__":
            mp.spawn(work, (os.path.abspath("store"),), nprocs=2)
        """,
        code=1,
    )
    first, second = ranks(trace)
    assert [o[0] for o in operations(first)] == [ALL_REDUCE, BARRIER]
    assert second.jsons("exception")[0]["message"] == "rank one fell over"
    assert first.jsons("exception") == []
    parent = [p for p in trace.processes() if p.pid == first.ppid][0]
    assert parent.jsons("exception")[0]["type"] == "ProcessRaisedException"
    assert parent.role == 3


def exchanging_backwards(process):
    """Which backwards DDP's records of communication belong to, by their ends."""
    ends = [b.t0 + b.dur for b in process.records("BACKWARD")]
    return [ends.index(c.t0 + c.dur) for c in process.records("DDP_COMM")]


DDP = (
    START
    + """
    from torch.nn.parallel import DistributedDataParallel
    torch.manual_seed(0)
    size = int(sys.argv[1])
    model = DistributedDataParallel(torch.nn.Sequential(
        *[torch.nn.Linear(size, size) for _ in range(4)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(8, size)
    for i in range(int(sys.argv[2])):
        time.sleep(float(sys.argv[3]))
        if rank == 1 and i in (3, 5):
            time.sleep(0.3)
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    sys.stdout.write("%d %r\\n" % (rank, model.module[0].weight.double().sum().item()))
"""
    + END
)


def test_ddp_tells_the_communication_that_backward_did_not_hide(run, trace, torchrun):
    hooked = run(DDP, "512", "10", "0.5", launcher=torchrun(2))
    first, second = ranks(trace)
    assert first.count("BACKWARD") == second.count("BACKWARD") == 10
    exposed = first.records("DDP_COMM")
    assert len(exposed) >= 7  # the last one is read by a next backward which never came
    backwards = first.records("BACKWARD")
    for comm in exposed:
        (home,) = [b for b in backwards if b.t0 + b.dur == comm.t0 + comm.dur]
        assert comm.dur <= comm.arg
        # DDP's clock starts at the end of forward, a little before backward begins.
        assert comm.dur <= home.dur + 20_000_000
    slow = [c for c in exposed if c.dur > 200_000_000]
    assert len(slow) == 2
    # The rank that came late waits for nobody.
    assert not [c for c in second.records("DDP_COMM") if c.dur > 200_000_000]
    plain = run(DDP, "512", "10", "0", launcher=torchrun(2), hooked=False)
    assert sorted(hooked.stdout.split("\n")) == sorted(plain.stdout.split("\n"))


def test_ddp_is_asked_for_the_same_few_of_many_short_steps_in_all_ranks(run, trace, torchrun):
    run(DDP, "8", "600", "0", launcher=torchrun(2))
    asked = []
    for rank in ranks(trace):
        asked.append({number for number in exchanging_backwards(rank) if number > 100})
        assert rank.text("ddp_asked") == "now and then"
    # A step here takes 1-3 ms and a question 50 us: one in 16 to 64, on a quiet machine.
    assert all(5 <= len(numbers) <= 250 for numbers in asked), asked
    fewer, more = sorted(asked, key=len)
    assert len(fewer & more) >= len(fewer) / 2, asked


def test_no_sync_and_a_model_that_is_gone(run, trace, torchrun):
    run(
        START
        + """
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    x = torch.randn(8, 64)
    for i in range(6):
        with model.no_sync():
            model(x).sum().backward()
    del model
    torch.nn.Linear(4, 4)(torch.ones(4)).sum().backward()
"""
        + END,
        launcher=torchrun(2),
    )
    first, _ = ranks(trace)
    assert first.count("BACKWARD") == 7
    assert first.texts("hook_off") == []


def test_accumulated_gradients_are_exchanged_in_the_last_backward(run, trace, torchrun):
    run(
        START
        + """
    import contextlib
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    x = torch.randn(8, 64)
    for i in range(20):
        time.sleep(0.25)
        with contextlib.nullcontext() if i % 4 == 3 else model.no_sync():
            model(x).sum().backward()
"""
        + END,
        launcher=torchrun(2),
    )
    for rank in ranks(trace):
        assert exchanging_backwards(rank) == [3, 7, 11, 15]  # the last would be asked for before the next exchange


@torch_since(2, 2, "compiled all_reduce on CPUs")
def test_fsdp_and_functional_collectives_keep_working(run, trace, torchrun):
    result = run(
        START
        + """
    from torch.distributed.fsdp import FullyShardedDataParallel
    import torch.distributed._functional_collectives as functional
    device = torch.device("cpu")
    print(functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD).sum().item())
    compiled = torch.compile(lambda t: functional.all_reduce(t, "sum", dist.group.WORLD) + 1,
                             backend="eager", fullgraph=True)
    print(compiled(torch.ones(2)).sum().item())
    def legacy(t):
        dist.all_reduce(t)
        return t + 1
    print(torch.compile(legacy, backend="eager", fullgraph=True)(torch.ones(2)).sum().item())
    try:
        model = FullyShardedDataParallel(torch.nn.Linear(16, 16), device_id=device)
        model(torch.ones(4, 16)).sum().backward()
        print("fsdp")
    except Exception as error:
        print("no fsdp on cpu here:", type(error).__name__)
"""
        + END,
        launcher=torchrun(2),
    )
    assert result.stdout.count("4.0") == 2
    assert result.stdout.count("6.0") == 4
    if "fsdp\n" in result.stdout:
        first, _ = ranks(trace)
        assert {4, 5} <= {o[0] for o in operations(first)}
