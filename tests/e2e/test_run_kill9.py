"""kill -9 of `bedplate run` at any moment: the job lives on, nothing of ours stays behind."""

import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from support import alive, children_of, command_line, eventually, finish, job_cgroups, meta, run, run_folders, start

SEED = int(os.environ.get("BEDPLATE_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
TIMES = int(os.environ.get("BEDPLATE_TEST_KILLS", 12))


@pytest.fixture(scope="module", autouse=True)
def say_seed():
    print(f"BEDPLATE_TEST_SEED={SEED}", file=sys.stderr)


def bpf_programs() -> set:
    """The kernel's own list, as far as /proc shows it: descriptors of programs that somebody holds."""
    found = set()
    for fdinfo in Path("/proc").glob("[0-9]*/fdinfo/*"):
        try:
            text = fdinfo.read_text()
        except OSError:
            continue
        if "prog_id:" in text:
            found.add((fdinfo.parts[2], text.split("prog_id:")[1].split()[0]))
    return found


@pytest.mark.parametrize("index", range(TIMES))
def test_at_a_random_moment(tmp_path, index):
    # Half of the moments lie in the first 200 ms, where everything is being set up.
    moment = random.Random(SEED + index)
    delay = moment.uniform(0, 0.2) if index % 2 else moment.uniform(0.2, 3)
    shm = set(os.listdir("/dev/shm"))
    marker = tmp_path / "done"
    # The job writes its pid as the first thing it does and a file as the last.
    code = f"echo $$ > {tmp_path}/pid; sleep 4; touch {marker}; exit 0"
    job = start("sh", "-c", code, cwd=tmp_path)
    time.sleep(delay)
    witnesses = [p for p in children_of(job.pid) if b"bedplate" in command_line(p)]
    os.kill(job.pid, signal.SIGKILL)
    out, err = job.communicate(timeout=60)  # ends when the last holder of the pipes has ended
    assert job.returncode == -9
    for pid in witnesses:
        eventually(lambda: not alive(pid), "the helper beside the job to end with us")
    what = f"seed {SEED}, run {index}, killed after {delay * 1000:.0f} ms"
    if (tmp_path / "pid").exists():
        eventually(marker.exists, f"the job to go on to its end ({what})")
    assert out == b"", what
    assert set(os.listdir("/dev/shm")) - shm == set(), what
    # What had been recorded by then is readable.
    for folder in run_folders(tmp_path):
        if (folder / "run.db").exists() and (folder / "run.db").stat().st_size > 0:
            recorded = meta(folder)
            assert "exit_code" not in recorded, what
            if delay > 1.5:
                assert recorded["schema"] == "1", what
    # The next run clears the empty groups.
    assert run("true", cwd=tmp_path).returncode == 0
    assert not job_cgroups(job.pid), what


def test_the_job_keeps_its_terminal_group_and_parentage_as_under_a_shell(tmp_path):
    job = start("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 30", cwd=tmp_path, start_new_session=True)
    pid = int(eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the job's pid"))
    group = os.getpgid(pid)
    os.kill(job.pid, signal.SIGKILL)
    job.wait(timeout=10)
    time.sleep(0.3)
    assert alive(pid)
    assert os.getpgid(pid) == group == job.pid
    os.kill(pid, signal.SIGKILL)
    finish(job)


def test_the_recording_is_readable_up_to_the_last_second(tmp_path):
    job = start("sleep", "30", cwd=tmp_path)
    (folder,) = eventually(lambda: run_folders(tmp_path), "the run folder")
    time.sleep(4)
    child = [p for p in children_of(job.pid) if command_line(p).startswith(b"sleep")]
    os.kill(job.pid, signal.SIGKILL)
    for pid in child:
        os.kill(pid, signal.SIGKILL)
    finish(job)
    with sqlite3.connect(f"file:{folder / 'run.db'}?mode=ro", uri=True) as db:
        seen = dict(db.execute("select name, seen from signal"))
        streams = [row[0] for row in db.execute("select distinct subject from stream")]
    assert seen.get("host.cpu") == 1
    assert "host" in streams and f"proc/{child[0]}" in streams


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for BPF")
def test_no_bpf_program_stays(tmp_path):
    before = {number for _, number in bpf_programs()}
    job = start("sleep", "30", cwd=tmp_path)
    time.sleep(2)
    during = {number for pid, number in bpf_programs() if pid == str(job.pid)} - before
    child = [p for p in children_of(job.pid) if command_line(p).startswith(b"sleep")]
    os.kill(job.pid, signal.SIGKILL)
    for pid in child:
        os.kill(pid, signal.SIGKILL)
    finish(job)
    eventually(lambda: not during & {number for _, number in bpf_programs()}, "our BPF programs to be gone")
