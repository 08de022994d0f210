"""Backward and optimizer steps in the shapes that training loops really have."""

import re

import pytest

torch = pytest.importorskip("torch")

from conftest import torch_since  # noqa: E402

MODEL = """
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 1)
    x = torch.randn(16, 8)
    def loss():
        return model(x).pow(2).mean()
"""


def test_gradient_accumulation_counts_steps_not_backwards(run, trace):
    run(
        MODEL
        + """
    optimizer = torch.optim.AdamW(model.parameters())
    for i in range(12):
        loss().backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    """
    )
    (process,) = trace.processes()
    kinds = [r.kind for r in process.records("BACKWARD", "OPTIMIZER", "STEP")]
    assert kinds == (["BACKWARD"] * 4 + ["OPTIMIZER", "STEP"]) * 3
    steps = process.records("STEP")
    assert all(r.dur == 0 and r.arg == 0 for r in steps)
    for optimizer, step in zip(process.records("OPTIMIZER"), steps):
        assert step.t0 == optimizer.t0 + optimizer.dur
    assert process.jsons("optimizer") == [{"id": 0, "class": "AdamW"}]


def test_two_optimizers_of_a_gan_have_two_ordinals(run, trace):
    run(
        MODEL
        + """
    other = torch.nn.Linear(8, 1)
    first = torch.optim.Adam(model.parameters())
    second = torch.optim.SGD(other.parameters(), lr=0.1)
    for i in range(3):
        loss().backward(); first.step()
        torch.autograd.backward(other(x).sum()); second.step()
    """
    )
    (process,) = trace.processes()
    assert [r.arg for r in process.records("STEP")] == [0, 1] * 3
    assert [item["class"] for item in process.jsons("optimizer")] == ["Adam", "SGD"]
    assert process.count("BACKWARD") == 6


@pytest.mark.parametrize(
    "make",
    [
        "torch.optim.LBFGS(model.parameters(), max_iter=3)",
        pytest.param("torch.optim.Adam(model.parameters(), fused=True)", marks=torch_since(2, 4, "fused Adam on CPUs")),
        "torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)",
        "Own(model.parameters())",
        "Around(torch.optim.SGD(model.parameters(), lr=0.1))",
        "Wrapped(torch.optim.SGD(model.parameters(), lr=0.1))",
    ],
)
def test_every_kind_of_optimizer_steps_once(run, trace, make):
    run(
        MODEL
        + """
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})
        def step(self, closure=None):
            value = closure()
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.sub_(p.grad, alpha=0.1)
            return value

    class Around(torch.optim.Optimizer):     # a wrapper that is an optimizer, too (ZeRO, lookahead)
        def __init__(self, inner):
            super().__init__(inner.param_groups, {})
            self.inner = inner
        def step(self, closure=None):
            return self.inner.step(closure)

    class Wrapped:                           # a wrapper that is none (Lightning, accelerate)
        def __init__(self, inner):
            self.inner = inner
        def step(self, closure):
            return self.inner.step(closure)

    optimizer = %s
    def closure():
        model.zero_grad()
        value = loss()
        value.backward()
        return value
    for i in range(5):
        optimizer.step(closure)
    """
        % make
    )
    (process,) = trace.processes()
    assert process.count("STEP") == process.count("OPTIMIZER") == 5
    assert process.count("BACKWARD") >= 5
    assert {r.arg for r in process.records("STEP")} == {0}


def test_a_step_that_raises_does_not_swallow_the_next_ones(run, trace):
    run(
        MODEL
        + """
    broken = torch.optim.SGD(model.parameters(), lr=0.1)
    sound = torch.optim.SGD(model.parameters(), lr=0.1)
    def closure():
        raise RuntimeError("on purpose")
    try:
        broken.step(closure)
    except RuntimeError:
        pass
    loss().backward()
    for i in range(3):
        sound.step()
    """
    )
    assert trace.processes()[0].count("STEP") == 3


@torch_since(2, 3, "gradient scaler on CPUs")
def test_a_grad_scaler_step_that_is_skipped_is_no_step(run, trace):
    run(
        MODEL
        + """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu") if hasattr(torch.amp, "GradScaler") else None
    if scaler is None:
        raise SystemExit(77)
    for i in range(4):
        optimizer.zero_grad()
        scaler.scale(loss() * (float("inf") if i == 1 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    """
    )
    assert trace.processes()[0].count("STEP") == 3


def test_backward_inside_backward_counts_once(run, trace):
    run(
        MODEL
        + """
    from torch.utils.checkpoint import checkpoint
    for reentrant in (True, False):
        h = torch.randn(16, 8, requires_grad=True)
        checkpoint(lambda t: model(t).tanh(), h, use_reentrant=reentrant).sum().backward()
    value = loss()
    torch.autograd.grad(value, list(model.parameters()))
    """
    )
    assert trace.processes()[0].count("BACKWARD") == 3


def test_results_are_bitwise_the_same_with_and_without_the_hook(run, trace):
    script = (
        MODEL
        + """
    import hashlib, random
    random.seed(1)
    from torch.utils.data import DataLoader, TensorDataset
    data = TensorDataset(torch.randn(256, 8), torch.randn(256, 1))
    net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(net.parameters())
    for epoch in range(2):
        for workers in (0, 2):
            for a, b in DataLoader(data, batch_size=16, shuffle=True, num_workers=workers):
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(net(a), b).backward()
                optimizer.step()
    digest = hashlib.sha256()
    for value in net.state_dict().values():
        digest.update(value.numpy().tobytes())
    digest.update(bytes(torch.get_rng_state().tolist()))
    digest.update(repr(random.getstate()).encode())
    torch.save(optimizer.state_dict(), "saved.pt")
    digest.update(open("saved.pt", "rb").read())
    print(digest.hexdigest())
    """
    )
    hooked, plain = run(script), run(script, hooked=False)
    assert hooked.stdout == plain.stdout
    assert hooked.stderr == plain.stderr
    assert trace.processes()[0].count("STEP") == 64


def test_torch_compile_sees_no_hook(run, trace):
    """Whole graphs stay whole, with backward, optimizer, copies and phases around or inside."""
    script = (
        MODEL
        + """
    import logging
    import torch._dynamo
    torch._dynamo.config.suppress_errors = False
    compiled = torch.compile(lambda t: model(t.to(torch.float64).float()).pow(2).mean(),
                             backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend="eager")
    for i in range(3):
        compiled(x).backward()
        step()
        optimizer.zero_grad()
    print(model.weight.sum().item())
    explained = torch._dynamo.explain(lambda t: model(t).sum())(x)
    print(explained.graph_count, explained.graph_break_count)
    """
    )
    hooked, plain = run(script), run(script, hooked=False)
    assert hooked.stdout == plain.stdout
    without_times = [re.sub(r"W\d+ [\d:.]+ \d+", "", r.stderr) for r in (hooked, plain)]
    assert without_times[0] == without_times[1]
    assert trace.processes()[0].count("BACKWARD") == 3


def test_reload_spec_queries_and_lazy_loading(run, trace):
    run(
        """
        import importlib, importlib.util, sys
        spec = importlib.util.find_spec("torch")
        assert "torch" not in sys.modules
        assert type(spec.loader).__name__ == "SourceFileLoader"
        lazy = importlib.util.LazyLoader(spec.loader)
        spec.loader = lazy
        torch = sys.modules["torch"] = importlib.util.module_from_spec(spec)
        lazy.exec_module(torch)
        assert torch.ones(1).item() == 1.0
        import torch.serialization as s
        before = s.save
        importlib.reload(s)
        assert s.save is not before
        s.save(torch.ones(1), "a.pt")
        """
    )
    (process,) = trace.processes()
    assert process.count("CHECKPOINT") == 1
    assert "loader" in process.hooks()


def test_a_torch_that_cannot_be_imported_fails_as_without_bedplate(run, trace, tmp_path):
    broken = tmp_path / "lib" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("def f():\n    raise OSError('libgomp.so.1: absent')\nf()\n")
    script = "import torch"
    hooked = run(script, code=1, PYTHONPATH=str(tmp_path / "lib"))
    plain = run(script, code=1, hooked=False, PYTHONPATH=str(tmp_path / "lib"))
    assert hooked.stderr == plain.stderr


def test_a_torch_unlike_any_known_one_switches_hooks_off_by_name(run, trace, tmp_path):
    strange = tmp_path / "lib" / "torch"
    (strange / "utils" / "data").mkdir(parents=True)
    (strange / "__init__.py").write_text("__version__ = '9.9'\n")
    (strange / "utils" / "__init__.py").write_text("")
    (strange / "utils" / "data" / "__init__.py").write_text("")
    (strange / "utils" / "data" / "dataloader.py").write_text("class Other: pass\n")
    run("import torch.utils.data.dataloader", PYTHONPATH=str(tmp_path / "lib"))
    (process,) = trace.processes()
    assert process.text("torch") == "9.9"
    (line,) = process.texts("hook_off")
    assert line.startswith("torch.utils.data.dataloader: AttributeError")


def test_deprecation_warnings_point_at_the_users_line(run, trace):
    script = """
        import sys, types, warnings
        import torch
        def old():
            warnings.warn("old() is deprecated", FutureWarning, stacklevel=2)
        module = types.ModuleType("module")
        module.old = old
        hook = sys.modules.get("_bedplate_hook")
        if hook is not None:
            from _bedplate_hook import checkpoint, wrap
            wrap.replace(module, "old", checkpoint._timed(7, 0, "f"), "test")
            assert module.old is not old
        module.old()
    """
    hooked, plain = run(script), run(script, hooked=False)
    assert hooked.stderr == plain.stderr
    assert "script.py:13: FutureWarning" in hooked.stderr
