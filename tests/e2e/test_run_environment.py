"""The job's environment, its Python, and bytes that are no text."""

import json
import os
import subprocess
import sys

import pytest
from support import BEDPLATE, bedplate, finish, meta, only_run, run, start


def environment_of(*command, env, cwd) -> dict:
    out = subprocess.run(command, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    return dict(v.split(b"=", 1) for v in out.stdout.split(b"\0") if v)


@pytest.mark.parametrize("old", [None, "", "/some/where:/else"])
def test_only_three_variables_are_added(tmp_path, old):
    env = {"PATH": os.environ["PATH"], "A": "1", "WEIRD": "line\nbreak"}
    if old is not None:
        env["PYTHONPATH"] = old
    bare = environment_of("env", "-0", env=env, cwd=tmp_path)
    ours = environment_of(BEDPLATE, "run", "--", "env", "-0", env=env, cwd=tmp_path)
    folder = only_run(tmp_path)
    assert ours.pop(b"BEDPLATE_RUN") == os.fsencode(folder)
    assert ours.pop(b"BEDPLATE_TRACE").startswith(b"/proc/")
    path = ours.pop(b"PYTHONPATH")
    assert path == os.fsencode(folder / "hook") + (b":" + old.encode() if old else b"")
    bare.pop(b"PYTHONPATH", None)
    assert ours == bare


def test_an_empty_environment(tmp_path):
    result = bedplate("run", "--", "/usr/bin/env", cwd=tmp_path, env={})
    assert result.returncode == 0
    names = [v.split(b"=")[0] for v in result.stdout.split()]
    assert sorted(names) == [b"BEDPLATE_RUN", b"BEDPLATE_TRACE", b"PYTHONPATH"]


def test_a_job_that_empties_its_environment(tmp_path):
    result = run("env", "-i", sys.executable, "-c", "import os; print(dict(os.environ))", cwd=tmp_path)
    assert result.returncode == 0
    assert b"BEDPLATE" not in result.stdout


PYTHON = [
    [],
    ["-I"],
    ["-E"],
    ["-S"],
    ["-s"],
    ["-O"],
    ["-B"],
]


@pytest.mark.parametrize("flags", PYTHON, ids=lambda f: "".join(f) or "plain")
def test_python_sees_the_same_world(tmp_path, flags):
    """sys.path, loaded modules of a fresh interpreter and its exit code, with and without us."""
    code = (
        "import sys, json\n"
        "json.dump({'path': sys.path, 'argv': sys.argv, 'flags': str(sys.flags),"
        " 'sitecustomize': 'sitecustomize' in sys.modules}, sys.stdout)\n"
        "sys.exit(5)\n"
    )
    (tmp_path / "seen.py").write_text(code)
    command = [sys.executable, *flags, "seen.py", "x"]
    bare = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, timeout=60)
    ours = run(*command, cwd=tmp_path)
    assert (ours.returncode, bare.returncode) == (5, 5)
    seen = json.loads(ours.stdout)
    if "-S" in flags:  # without site.py nobody takes our folder off the path again
        seen["path"].remove(str(only_run(tmp_path) / "hook"))
    assert seen == json.loads(bare.stdout)


def test_the_jobs_own_pythonpath_and_sitecustomize_work(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 'own sitecustomize'\n")
    (own / "helper.py").write_text("value = 'own helper'\n")
    result = run(
        sys.executable, "-c", "import helper; print(mine, helper.value)", cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(own)},
    )
    assert result.stdout == b"own sitecustomize own helper\n", result.stderr


def test_a_sitecustomize_that_fails_fails_as_without_us(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('mine')\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", "print('on')"]
    bare = subprocess.run(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    ours = run(*command, cwd=tmp_path, env=env)
    assert (ours.returncode, ours.stdout) == (bare.returncode, bare.stdout)
    assert b"RuntimeError: mine" in bare.stderr and b"RuntimeError: mine" in ours.stderr


def test_the_working_folder_is_the_jobs_to_change(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    result = run(
        "sh", "-c", f"cd elsewhere; pwd; {sys.executable} -c 'import os; print(os.getcwd())'", cwd=tmp_path
    )
    assert result.stdout.decode().split() == [str(elsewhere)] * 2
    assert meta(only_run(tmp_path))["exit_code"] == "0"
    assert list(elsewhere.iterdir()) == []


NOT_TEXT = b"\xff\xfe[1,2] \xc3( $(id) \t'\"\x01 --"


def test_arguments_names_and_output_that_are_not_text(tmp_path):
    folder = tmp_path / os.fsdecode(b"f\xfflder")
    folder.mkdir()
    result = run(b"printf", b"%s|", NOT_TEXT, b"", b"--", cwd=folder, options=["--json", "r.json", "--html", "r.html"])
    assert result.returncode == 0
    assert result.stdout == NOT_TEXT + b"||--|"
    recorded = meta(only_run(folder))
    assert json.loads(recorded["command"])[2].startswith("\ufffd\ufffd[1,2]")
    report = json.loads((folder / "r.json").read_bytes().decode("utf-8"))
    assert report["run"]["command"][0] == "printf"
    (folder / "r.html").read_bytes().decode("utf-8")
    # The terminal report must not hand control bytes on.
    assert b"\x01" not in result.stderr.replace(NOT_TEXT, b"")


def test_a_run_folder_whose_name_is_not_text(tmp_path):
    out = os.fsdecode(b"r\xffn")
    result = run(sys.executable, "-c", "print('on')", cwd=tmp_path, options=["--out", out])
    assert (result.returncode, result.stdout) == (0, b"on\n")
    assert meta(tmp_path / out)["exit_code"] == "0"


def test_a_program_whose_name_is_not_text(tmp_path):
    program = tmp_path / os.fsdecode(b"pr\xffgram")
    program.write_text("#!/bin/sh\nsleep 1; exit 4\n")
    program.chmod(0o755)
    assert run(b"./pr\xffgram", cwd=tmp_path).returncode == 4


def test_what_looks_like_our_options_after_the_dashes_is_the_jobs(tmp_path):
    result = run("printf", "%s ", "--help", "--json", "x", "--", "--out", cwd=tmp_path)
    assert result.stdout == b"--help --json x -- --out "


def test_resource_limits_priority_and_umask_are_inherited(tmp_path):
    def limits():
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(3)
        os.umask(0o027)

    show = (
        "import os, resource; print(resource.getrlimit(resource.RLIMIT_NOFILE),"
        " resource.getrlimit(resource.RLIMIT_STACK), os.nice(0), oct(os.umask(0)), sorted(os.sched_getaffinity(0)),"
        " os.getpgrp() == os.getpgid(os.getppid()), os.getsid(0))"
    )
    command = [sys.executable, "-c", show]
    bare = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, preexec_fn=limits, timeout=60)
    ours = run(*command, cwd=tmp_path, preexec_fn=limits)
    assert ours.stdout == bare.stdout


def test_few_descriptors_are_enough(tmp_path):
    def limits():
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))

    job = start("sh", "-c", "exit 5", cwd=tmp_path, preexec_fn=limits)
    finish(job)
    assert job.returncode == 5
