"""include/bedplate/trace.h: a C++ trainer writes what the Python reader reads."""

import shutil
import subprocess

import pytest
from conftest import PACKAGE

PROGRAM = r"""
#include <bedplate/trace.h>

#include <sys/wait.h>

#include <string>
#include <thread>
#include <vector>

namespace trace = bedplate::trace;

int main(int count, char**) {
  if (!trace::active()) return 9;
  trace::rank(3, 4, 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) {
        trace::Phase phase("forward");
        trace::step();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  { trace::Phase phase("validation"); }
  { trace::Phase phase("tab\there \"quoted\" \xc3\xbc"); }
  if (count > 1) {
    for (int i = 0; i < 300; ++i) trace::Phase(("name " + std::to_string(i)).c_str());
  }
  const pid_t child = fork();
  if (child == 0) {
    trace::step();
    { trace::Phase phase("eval"); }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  trace::step();
  return status;
}
"""

compiler = shutil.which("g++") or shutil.which("c++")
pytestmark = pytest.mark.skipif(compiler is None, reason="no C++ compiler on this machine")


def build(folder, *flags):
    source, program = folder / "program.cc", folder / "program"
    source.write_text(PROGRAM)
    include = PACKAGE.parent / "include"
    words = [compiler, "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
    words += ["-I", str(include), "-pthread", str(source), "-o", str(program), *flags]
    subprocess.run(words, check=True, timeout=120)
    return program


@pytest.mark.parametrize("standard", ["-std=c++11", "-std=c++20"])
def test_records_of_a_cpp_program(trace, tmp_path, standard):
    program = build(tmp_path, standard, "-O2")
    subprocess.run([str(program)], env=trace.environment(), check=True, timeout=60)
    parent, child = trace.processes()
    assert (parent.rank, parent.world_size, parent.local_rank, parent.role) == (3, 4, 1, 1)
    assert (parent.count("USER_STEP"), parent.count("VALIDATION"), parent.lost) == (401, 1, 0)
    names = {item["id"]: item["name"] for item in parent.jsons("phase_name")}
    assert names[1] == "forward" and names[2] == "validation"
    assert names[3] == "tab?here ?quoted? ??"
    phases = [names[r.arg] for r in parent.records("PHASE")]
    assert phases.count("forward") == 400
    assert len({r.tid for r in parent.records("USER_STEP")}) == 5
    assert (child.ppid, child.count("USER_STEP"), child.count("VALIDATION")) == (parent.pid, 1, 1)
    assert child.records()[0].tid == child.pid
    assert parent.text("hooks") == "trace.h"
    assert all(r.t0 >= parent.claim_ns - 1_000_000_000 for r in parent.records())


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_sanitizers_find_nothing(trace, tmp_path, sanitizer):
    try:
        program = build(tmp_path, "-std=c++11", "-O1", "-g", "-fsanitize=" + sanitizer)
    except subprocess.CalledProcessError:
        pytest.skip("this compiler has no -fsanitize=%s" % sanitizer)
    result = subprocess.run(
        [str(program), "many"], env=trace.environment(), capture_output=True, timeout=120
    )
    assert result.returncode == 0, result.stderr.decode()
    assert result.stderr == b""
    process = trace.processes()[0]
    assert process.lost == 0
    assert len(process.jsons("phase_name")) == 256  # the rest of the names has no number


def test_without_a_trace_it_is_a_no_op(trace, tmp_path):
    program = build(tmp_path, "-std=c++11")
    for value in (None, "", "/absent", "/dev/null", str(tmp_path)):
        variables = {"PATH": "/usr/bin"}
        if value is not None:
            variables["BEDPLATE_TRACE"] = value
        result = subprocess.run([str(program)], env=variables, capture_output=True, timeout=60)
        assert (result.returncode, result.stdout, result.stderr) == (9, b"", b"")
    assert trace.processes() == []
