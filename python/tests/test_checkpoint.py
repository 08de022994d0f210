"""Saving, loading, syncing."""

import os

import pytest

pytest.importorskip("torch")

from conftest import torch_since  # noqa: E402


def test_save_load_and_fsync(run, trace, tmp_path):
    run(
        """
        import io, os, pathlib, torch
        state = {"w": torch.ones(1 << 16)}
        torch.save(state, "one.pt")
        torch.save(state, pathlib.Path("two.pt"))
        with open("three.pt", "wb") as file:
            torch.save(obj=state, f=file)
            os.fsync(file.fileno())
            os.fdatasync(file.fileno())
        torch.save(state, io.BytesIO())
        assert torch.load("one.pt")["w"].sum().item() == 1 << 16
        try:
            torch.save(state, "absent/folder/x.pt")
        except RuntimeError:
            print("refused")
        """
    )
    (process,) = trace.processes()
    saves = process.records("CHECKPOINT")
    assert len(saves) == 5
    sizes = [os.path.getsize(str(tmp_path / name)) for name in ("one.pt", "two.pt")]
    assert [r.arg for r in saves[:2]] == sizes
    assert saves[3].arg == saves[4].arg == 0
    assert [r.arg for r in process.records("LOAD")] == sizes[:1]
    assert process.count("FSYNC") == 2
    paths = process.texts("ckpt_path")
    assert [os.path.basename(path) for path in paths[:3]] == ["one.pt", "two.pt", "three.pt"]
    assert all(os.path.isabs(path) for path in paths)
    assert process.open_kind == 0


@torch_since(2, 2, "torch.distributed.checkpoint.save")
def test_distributed_checkpoint(run, trace):
    run(
        """
        import torch
        import torch.distributed.checkpoint as dcp
        state = {"w": torch.ones(1 << 12)}
        dcp.save(state, checkpoint_id="saved")
        from torch.distributed.checkpoint.state_dict_saver import save
        save(state, checkpoint_id="again")
        """
    )
    (process,) = trace.processes()
    assert process.count("CHECKPOINT") >= 2
    paths = [os.path.basename(path) for path in process.texts("ckpt_path")]
    assert [name for name in paths if name in ("saved", "again")] == ["saved", "again"]


def test_a_stuck_checkpoint_says_so(run, trace):
    run(
        """
        import os, torch
        class Slow:
            def write(self, data):
                os._exit(5)
        torch.save(torch.ones(4), Slow())
        """,
        code=5,
    )
    (process,) = trace.processes()
    assert process.open_kind == 7
    assert process.open_since > process.claim_ns


def test_safetensors_as_hugging_face_saves(run, trace, tmp_path):
    # A stand-in with the real module's name and signatures: the library itself is not installed.
    library = tmp_path / "lib" / "safetensors"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("")
    (library / "torch.py").write_text(
        "def save_file(tensors, filename, metadata=None):\n    open(filename, 'wb').write(b'12345')\n"
        "def load_file(filename, device='cpu'):\n    return {}\n"
    )
    run(
        """
        import torch
        from safetensors.torch import save_file, load_file
        save_file({}, "model.safetensors", metadata={"format": "pt"})
        load_file("model.safetensors")
        """,
        PYTHONPATH=str(tmp_path / "lib"),
    )
    (process,) = trace.processes()
    assert [r.arg for r in process.records("CHECKPOINT")] == [5]
    assert [r.arg for r in process.records("LOAD")] == [5]
