"""What a Python process of the job sees of Bedplate before it has anything to tell: nothing.

Runs on every supported Python that this machine has; those it lacks are skipped by name.
"""

import os
import signal
import subprocess

import interpreters
import pytest

FOUND = interpreters.found()


@pytest.fixture(params=interpreters.WANTED)
def python(request):
    if request.param not in FOUND:
        pytest.skip("no Python %s on this machine" % request.param)
    return FOUND[request.param]


def test_the_job_sees_the_path_and_modules_it_would_have_had(run, trace, python):
    script = """
        import sys
        print([p for p in sys.path if p.endswith("hook")], "sitecustomize" in sys.modules)
        print(sys.excepthook is sys.__excepthook__, sys.dont_write_bytecode)
        try:
            import sitecustomize
        except ImportError as e:
            print(e.name)
    """
    hooked = run(script, python=python)
    assert hooked.stdout == run(script, python=python, hooked=False).stdout
    assert hooked.stderr == ""
    assert trace.processes() == []  # nothing claimed


@pytest.mark.parametrize("python", interpreters.too_old())
def test_a_python_too_old_for_the_hook_runs_as_ever(run, trace, python):
    result = run("import sys; print(len(sys.argv))", python=python)
    assert (result.stdout, result.stderr) == ("1\n", "")
    assert trace.processes() == []


def test_steps_and_phases_without_torch(run, trace, python):
    package = os.path.join(os.path.dirname(__file__), "..")
    script = """
        import bedplate, sys
        assert bedplate.active()
        @bedplate.phase("forward")
        def forward(n):
            return n + 1
        for i in range(3):
            with bedplate.phase("load"):
                assert forward(i) == i + 1
            with bedplate.phase("validation"):
                pass
            bedplate.step()
        assert "torch" not in sys.modules
    """
    run(script, python=python, PYTHONPATH=package, RANK="3", WORLD_SIZE="8", LOCAL_RANK="1")
    (process,) = trace.processes()
    kinds = [record.kind for record in process.records("PHASE", "VALIDATION", "USER_STEP")]
    assert kinds == ["PHASE", "PHASE", "VALIDATION", "USER_STEP"] * 3
    names = {item["id"]: item["name"] for item in process.jsons("phase_name")}
    phases = [names[record.arg] for record in process.records("PHASE")]
    assert phases == ["forward", "load"] * 3
    assert (process.rank, process.world_size, process.local_rank) == (3, 8, 1)
    assert (process.role, process.state) == (1, 2)
    assert process.lost == 0
    version = process.text("python")
    assert version.startswith([v for v, path in FOUND.items() if path == python][0] + ".")


def test_own_sitecustomize_runs_once_with_its_own_semantics(run, trace, python, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(
        "import sys\nsys.own = getattr(sys, 'own', 0) + 1\nprint('own', __name__, __file__)\n"
    )
    result = run(
        """
        import sys, sitecustomize
        print(sys.own, sitecustomize.__file__, sys.path[1].endswith("own"))
        """,
        python=python,
        PYTHONPATH=str(own),
    )
    path = str(own / "sitecustomize.py")
    assert result.stdout == "own sitecustomize %s\n1 %s True\n" % (path, path)
    assert result.stderr == ""


@pytest.mark.parametrize(
    "source", ["raise RuntimeError('mine')", "import absent_module", "import sys; sys.exit(3)"]
)
def test_errors_of_an_own_sitecustomize_read_as_without_bedplate(run, python, tmp_path, source):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(source + "\n")
    results = [
        run("print('ran')", python=python, code=None, hooked=hooked, PYTHONPATH=str(own))
        for hooked in (True, False)
    ]
    hooked, plain = [(r.returncode, r.stdout, r.stderr) for r in results]
    if "exit" in source:  # Python prints the whole traceback there, with one frame of ours in it
        assert hooked[:2] == plain[:2] == (1, "")
        assert hooked[2].endswith("SystemExit: 3\n") and plain[2].endswith("SystemExit: 3\n")
    else:
        assert hooked == plain
        assert "mine" in plain[2] or "absent_module" in plain[2]


@pytest.mark.parametrize("option", ["-I", "-S", "-E"])
def test_options_that_keep_the_hook_out_break_nothing(run, trace, python, option):
    result = run("print(1 + 1)", python=python, options=[option])
    assert (result.stdout, result.stderr) == ("2\n", "")
    assert trace.processes() == []


def test_a_child_with_an_empty_environment_runs_without_the_hook(run, trace, python):
    result = run(
        """
        import subprocess, sys
        words = [sys.executable, "-c", "import sys; print('_bedplate_hook' in sys.modules)"]
        print(subprocess.run(words, env={}, stdout=subprocess.PIPE).stdout.decode().strip())
        print(subprocess.run(words, stdout=subprocess.PIPE).stdout.decode().strip())
        """,
        python=python,
    )
    assert result.stdout == "False\nTrue\n"


def test_an_uncaught_exception_prints_the_same_and_is_recorded(run, trace, python):
    script = "def f():\n    raise ValueError('gr\\u00fc\\ud800ndlich\\n')\n\nf()\n"
    hooked = run(script, python=python, code=1)
    plain = run(script, python=python, code=1, hooked=False)
    assert hooked.stderr == plain.stderr
    (process,) = trace.processes()
    (error,) = process.jsons("exception")
    assert error["type"] == "ValueError"
    assert error["message"].startswith("grü\\ud800ndlich")
    assert "in f" in error["traceback"]


@pytest.mark.parametrize("script", ["raise KeyboardInterrupt", "import os, time\nos.kill(os.getpid(), 2)\ntime.sleep(9)"])
def test_an_interrupt_ends_the_process_by_sigint(run, trace, python, script):
    hooked = run(script, python=python, code=-signal.SIGINT)
    plain = run(script, python=python, code=-signal.SIGINT, hooked=False)
    assert hooked.stderr == plain.stderr
    (error,) = trace.processes()[0].jsons("exception")
    assert error["type"] == "KeyboardInterrupt"


def test_a_thread_that_dies_is_recorded_once_the_process_has_a_slot(run, trace, python):
    package = os.path.join(os.path.dirname(__file__), "..")
    script = """
        import bedplate, threading
        from _bedplate_hook import crash
        crash.install()
        bedplate.step()
        thread = threading.Thread(target=lambda: 1 / 0, name="reader")
        thread.start()
        thread.join()
    """
    run(script, python=python, PYTHONPATH=package)
    (error,) = trace.processes()[0].jsons("exception")
    assert (error["type"], error["thread"]) == ("ZeroDivisionError", "reader")


def test_non_utf8_arguments_reach_the_reader_as_valid_utf8(run, trace, python, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; sys.stdout.buffer.write(repr(sys.argv).encode()); 1 / 0")
    command = [python.encode(), bytes(script), b"caf\xe9", b"tab\there", "grün".encode()]
    subprocess.run(command, env=trace.environment(), capture_output=True)
    (process,) = trace.processes()
    (words,) = process.jsons("argv")  # decoding the text area as UTF-8 is part of the check
    assert words[-3:] == ["caf\\udce9", "tab\there", "grün"]


def test_fork_exit_and_exec_leave_the_parents_slot_alone(run, trace, python):
    package = os.path.join(os.path.dirname(__file__), "..")
    run(
        """
        import bedplate, os
        bedplate.step()
        for ending in ("return", "_exit", "silent"):
            child = os.fork()
            if child == 0:
                if ending != "silent":
                    bedplate.step()
                    bedplate.step()
                os._exit(0)
            os.waitpid(child, 0)
        bedplate.step()
        """,
        python=python,
        PYTHONPATH=package,
    )
    processes = trace.processes()
    assert [process.count("USER_STEP") for process in processes] == [2, 2, 2]
    assert [process.state for process in processes] == [2, 1, 1]  # _exit closes nothing
    assert {process.ppid for process in processes[1:]} == {processes[0].pid}
    assert all(process.lost == 0 for process in processes)


def test_the_callers_descriptors_and_threads_stay_as_they_were(run, trace, python):
    package = os.path.join(os.path.dirname(__file__), "..")
    script = """
        import os, threading, sys
        import bedplate
        bedplate.step()
        first = os.open("/dev/null", os.O_RDONLY)
        os.closerange(3, 256)     # as daemons do
        again = open(sys.argv[1], "w")
        again.write("flushed at the very end")
        print(threading.active_count(), [t for t in os.listdir("/proc/self/task")].__len__())
    """
    out = os.path.join(trace.run, "out")
    result = run(script, out, python=python, PYTHONPATH=package)
    assert result.stdout == "1 1\n"
    assert result.stderr == ""
    with open(out) as file:
        assert file.read() == "flushed at the very end"


def test_a_run_inside_a_run_has_one_hook(run, trace, python):
    import shutil

    outer = os.path.join(trace.run, "outer")
    shutil.copytree(trace.hook, outer)
    package = os.path.join(os.path.dirname(__file__), "..")
    result = run(
        """
        import sys, bedplate, _bedplate_hook
        bedplate.step()
        print([p for p in sys.path if p.endswith(("hook", "outer"))], "sitecustomize" in sys.modules)
        print(_bedplate_hook.__file__.split("/")[-3], len([f for f in sys.meta_path
              if type(f).__name__ == "_TorchFinder"]))
        """,
        python=python,
        PYTHONPATH=os.pathsep.join((outer, package)),
    )
    plain = run('import sys; print("sitecustomize" in sys.modules)', python=python, hooked=False)
    assert result.stdout == "[] %s\nhook 1\n" % plain.stdout.strip()  # Debian's Python has one of its own
    assert trace.processes()[0].count("USER_STEP") == 1


def test_a_child_with_a_pythonpath_of_its_own_runs_without_the_hook(run, trace, python):
    result = run(
        """
        import os, subprocess, sys
        words = [sys.executable, "-c", "import sys; print('_bedplate_hook' in sys.modules)"]
        env = dict(os.environ, PYTHONPATH="/somewhere/else")
        print(subprocess.run(words, env=env, stdout=subprocess.PIPE).stdout.decode().strip())
        """,
        python=python,
    )
    assert (result.stdout, result.stderr) == ("False\n", "")
