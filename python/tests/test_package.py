"""The bedplate package outside `bedplate run`: typed, importable, nothing happens."""

import asyncio
import importlib.util
import os
import subprocess
import sys

import pytest
from conftest import PACKAGE


@pytest.fixture
def bedplate():
    spec = importlib.util.spec_from_file_location(
        "bedplate_outside_run", str(PACKAGE / "bedplate" / "__init__.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_is_a_no_op(bedplate):
    assert bedplate.active() is False
    assert bedplate.step() is None
    with bedplate.phase("forward"):
        pass

    @bedplate.phase("forward")
    def function(n):
        """Adds one."""
        return n + 1

    assert function(1) == 2 and function.__doc__ == "Adds one."
    with pytest.raises(KeyError):
        with bedplate.phase("forward"):
            raise KeyError("passes through")


def test_phases_keep_what_they_decorate(run, trace):
    run(
        """
        import asyncio, bedplate, inspect
        @bedplate.phase("sync")
        def function(n, *, k=1):
            "Adds."
            return n + k
        @bedplate.phase("async")
        async def coroutine(n):
            await asyncio.sleep(0.05)
            return n
        assert function.__doc__ == "Adds." and str(inspect.signature(function)) == "(n, *, k=1)"
        assert function(1, k=2) == 3
        assert inspect.iscoroutinefunction(coroutine) and asyncio.run(coroutine(5)) == 5
        again = bedplate.phase("nested")
        with again:
            with again:
                pass
        try:
            with bedplate.phase("raises"):
                raise KeyError("passes through")
        except KeyError:
            pass
        """,
        PYTHONPATH=str(PACKAGE),
    )
    (process,) = trace.processes()
    names = {item["id"]: item["name"] for item in process.jsons("phase_name")}
    phases = process.records("PHASE")
    assert [names[r.arg] for r in phases] == ["sync", "async", "nested", "nested", "raises"]
    assert phases[1].dur >= 50_000_000
    assert phases[3].t0 <= phases[2].t0 and phases[3].dur >= phases[2].dur


def test_it_is_typed():
    assert (PACKAGE / "bedplate" / "py.typed").exists()
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, str(PACKAGE / "bedplate" / "__init__.py")]
    result = subprocess.run(words, capture_output=True, text=True, cwd="/")
    assert result.returncode == 0, result.stdout


def test_the_event_loop_is_not_needed_for_plain_use(bedplate):
    @bedplate.phase("async")
    async def coroutine():
        return 3

    assert asyncio.run(coroutine()) == 3


def test_the_binary_embeds_every_file_of_the_hook():
    listed = (PACKAGE.parent / "src" / "cli" / "CMakeLists.txt").read_text()
    hook = PACKAGE / "bedplate" / "hook"
    files = [str(path.relative_to(hook)) for path in hook.rglob("*.py")]
    assert len(files) > 10
    assert [name for name in files if name not in listed] == []
