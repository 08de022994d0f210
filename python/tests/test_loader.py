"""DataLoader waits and fetches, with every way torch has of making a batch."""

import os

import pytest

pytest.importorskip("torch")

WAIT_EVALUATION, WAIT_EXHAUSTED, WAIT_STARTING = 1, 2, 4

DATA = """
    import os, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    class Files(Dataset):
        def __len__(self):
            return 32
        def __getitem__(self, i):
            with open(__file__) as file:
                file.read(100)
            time.sleep(0.002)
            return torch.full((4,), float(i))

    class Stream(IterableDataset):
        def __iter__(self):
            for i in range(32):
                yield torch.full((4,), float(i))
"""


def waits(process):
    return [r for r in process.records("INPUT_WAIT") if not r.arg & WAIT_STARTING]


def test_a_loader_in_the_training_process(run, trace):
    run(
        DATA
        + """
    loader = DataLoader(Files(), batch_size=8)
    for epoch in range(2):
        for batch in loader:
            pass
    with torch.no_grad():
        for batch in DataLoader(Files(), batch_size=16):
            pass
    """
    )
    (process,) = trace.processes()
    found = waits(process)
    assert [r.arg >> 8 for r in found] == [1] * 10 + [2] * 3
    assert [r.arg & WAIT_EXHAUSTED for r in found] == [0, 0, 0, 0, 2] * 2 + [0, 0, 2]
    assert [r.arg & WAIT_EVALUATION for r in found] == [0] * 10 + [1] * 3
    fetches = process.records("FETCH")
    assert len(fetches) == 10
    assert all(r.dur >= 8 * 2_000_000 for r in fetches)
    assert all((r.arg & 0xFFFFFFFF) + (r.arg >> 32) < r.dur // 1000 // 2 for r in fetches)  # it slept
    # A fetch in this process lies inside the wait it causes.
    assert all(any(w.t0 <= f.t0 and f.t0 + f.dur <= w.t0 + w.dur for w in found) for f in fetches)
    assert [r.arg for r in process.records("FILES")] == [8] * 8 + [16] * 2
    (path,) = process.texts("open_path")
    assert path.endswith("script.py")
    first, second = process.jsons("loader")
    assert (first["id"], first["num_workers"], first["batch_size"]) == (1, 0, 8)
    assert first["dataset"] == "__main__.Files" and not first["iterable"]
    assert second["batch_size"] == 16
    assert (process.open_kind, process.open_since) == (0, 0)
    assert process.role == 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_have_slots_of_their_own(run, trace, method):
    run(
        DATA
        + """
    if __name__ == "__main__":
        loader = DataLoader(Files(), batch_size=4, num_workers=2, persistent_workers=True,
                            multiprocessing_context=sys.argv[1])
        for epoch in range(2):
            assert sum(int(batch.sum()) for batch in loader) == 4 * sum(range(32))
    """,
        method,
        RANK="1",
    )
    processes = trace.processes()
    trainers = [p for p in processes if p.count("INPUT_WAIT")]
    workers = [p for p in processes if p.role == 2]
    assert len(trainers) == 1 and len(workers) == 2
    assert trainers[0].count("FETCH") == 0
    assert sum(worker.count("FETCH") for worker in workers) == 16
    assert sum(r.arg for worker in workers for r in worker.records("FILES")) == 64
    assert all(worker.rank == 1 for worker in workers)
    assert len(waits(trainers[0])) == 18
    (loader,) = trainers[0].jsons("loader")
    assert (loader["num_workers"], loader["persistent"]) == (2, True)
    assert loader["start_method"] == method
    starting = [r for r in trainers[0].records("INPUT_WAIT") if r.arg & WAIT_STARTING]
    assert len(starting) == 1


def test_workers_started_anew_each_epoch_leave_no_files_behind(run, trace):
    run(
        DATA
        + """
    for epoch in range(3):
        for batch in DataLoader(Stream(), batch_size=8, num_workers=2):
            pass
    """
    )
    processes = trace.processes()
    assert len(processes) == 7 and {process.state for process in processes} == {2}
    assert os.listdir(os.path.join(trace.run, "stacks")) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_iterable_datasets(run, trace, workers):
    run(
        DATA
        + """
    for batch in DataLoader(Stream(), batch_size=8, num_workers=int(sys.argv[1])):
        pass
    """,
        str(workers),
    )
    processes = trace.processes()
    trainer = [p for p in processes if p.role == 1][0]
    copies = max(workers, 1)
    assert len(waits(trainer)) == 4 * copies + 1
    assert trainer.jsons("loader")[0]["iterable"] is True
    assert sum(p.count("FETCH") for p in processes) == 4 * copies


def test_a_loader_inside_a_dataset_belongs_to_the_outer_wait(run, trace):
    run(
        DATA
        + """
    class Nested(Files):
        def __getitem__(self, i):
            return next(iter(DataLoader(Files(), batch_size=2)))
    for batch in DataLoader(Nested(), batch_size=16):
        pass
    """
    )
    (process,) = trace.processes()
    assert len(waits(process)) == 3
    assert process.count("FETCH") == 2
    assert sum(r.arg for r in process.records("FILES")) == 64


def test_an_exception_of_the_dataset_reads_as_without_bedplate(run, trace):
    script = (
        DATA
        + """
    class Broken(Files):
        def __getitem__(self, i):
            raise KeyError(i)
    for batch in DataLoader(Broken(), batch_size=2):
        pass
    """
    )
    hooked = run(script, code=1)
    plain = run(script, code=1, hooked=False)
    assert hooked.stderr == plain.stderr
    (process,) = trace.processes()
    assert process.jsons("exception")[0]["type"] == "KeyError"
    assert len(waits(process)) == 1 and process.count("FETCH") == 1


def test_a_worker_that_dies_leaves_the_open_mark_of_the_wait_behind(run, trace):
    run(
        DATA
        + """
    class Stuck(Files):
        def __getitem__(self, i):
            os.kill(os.getppid(), 9)
            os._exit(0)  # what lived on would hold the pipes that the test reads to their end
    for batch in DataLoader(Stuck(), batch_size=2, num_workers=1):
        pass
    """,
        code=-9,
    )
    trainer = [p for p in trace.processes() if p.role != 2][0]
    assert trainer.open_kind == 3
    assert trainer.claim_ns < trainer.open_since
    assert trainer.state == 1


def test_imports_inside_a_fetch_are_not_data_files(run, trace):
    run(
        DATA
        + """
    class Importing(Files):
        def __getitem__(self, i):
            import wave, xml.dom.minidom
            return 1
    for batch in DataLoader(Importing(), batch_size=32):
        pass
    """
    )
    (process,) = trace.processes()
    assert process.count("FETCH") == 1
    assert process.count("FILES") == 0
