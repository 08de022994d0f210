"""Where a run is kept, and what happens when it cannot be."""

import json
import os
import re
import subprocess
import time

import pytest
from conftest import needs_other_users, needs_root
from support import BEDPLATE, bedplate, eventually, finish, meta, only_run, read_until, run, run_folders, start


def test_a_report_named_as_the_runs_own_file_leaves_the_run_alone(tmp_path):
    result = bedplate("run", "--out", "d", "--json", "d/run.db", "--", "sh", "-c", "exit 3", cwd=tmp_path)
    assert result.returncode == 3
    assert b"d/run.db is the recording of a run" in result.stderr
    assert bedplate("report", "d", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("name", ["a" * 300, "/".join(["b" * 100] * 40)], ids=["part", "path"])
def test_a_name_that_is_too_long_is_refused_and_nothing_is_run_or_made(tmp_path, name):
    result = bedplate("run", "--out", name, "--", "touch", "ran", cwd=tmp_path)
    assert result.returncode == 2
    assert b"give a shorter one" in result.stderr and len(result.stderr) < 400, result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_removed_meanwhile_is_not_said_to_be_kept(tmp_path):
    result = bedplate("run", "--out", "d", "--", "sh", "-c", "rm -rf d; sleep 1; exit 4", cwd=tmp_path)
    assert result.returncode == 4
    assert b"d was removed while the job ran" in result.stderr and b"run kept in" not in result.stderr


def test_default_folder_is_said_and_complete(tmp_path):
    result = run("true", cwd=tmp_path)
    folder = only_run(tmp_path)
    assert f"run kept in {folder}".encode() in result.stderr
    assert (folder / "run.db").is_file()
    assert (folder / "hook" / "sitecustomize.py").is_file()
    recorded = meta(folder)
    assert json.loads(recorded["command"]) == ["true"]
    assert recorded["working_folder"] == str(tmp_path)
    assert recorded["id"] == folder.name
    assert int(recorded["duration_ns"]) > 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [folder.name]


@pytest.mark.parametrize("made_before", [False, True])
def test_out_names_the_folder(tmp_path, made_before):
    if made_before:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "b").mkdir()
    result = run("true", cwd=tmp_path, options=["--out", "a/b/"])
    assert result.returncode == 0
    assert meta(tmp_path / "a" / "b")["exit_code"] == "0"
    assert str(tmp_path / "a" / "b").encode() in result.stderr


def test_json_and_html_are_written(tmp_path):
    result = run("sh", "-c", "exit 3", cwd=tmp_path, options=["--json", "r.json", "--html", "r.html"])
    assert result.returncode == 3
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["schema"] == 1
    assert report["run"]["exit_code"] == 3
    assert report["run"]["command"] == ["sh", "-c", "exit 3"]
    assert "<html" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_json_to_standard_output_comes_after_the_jobs(tmp_path, name):
    with open(tmp_path / "out", "wb") as out:
        job = start("echo", "job", cwd=tmp_path, options=["--json", name], stdout=out)
        finish(job)
    first, rest = (tmp_path / "out").read_text().split("\n", 1)
    assert first == "job"
    assert json.loads(rest)["run"]["exit_code"] == 0
    assert os.readlink("/dev/stdout") == "/proc/self/fd/1"  # the name itself is left alone


def test_json_through_a_shells_process_substitution(tmp_path):
    done = subprocess.run(
        ["bash", "-c", f"{BEDPLATE} run --json >(cat > copy) -- true; wait $!"], cwd=tmp_path, timeout=60
    )
    assert done.returncode == 0
    eventually(lambda: (tmp_path / "copy").read_text().endswith("}\n"), "the copy of the report")
    assert json.loads((tmp_path / "copy").read_text())["run"]["exit_code"] == 0


def test_a_json_that_cannot_be_written_is_said_and_changes_nothing_else(tmp_path):
    result = run("sh", "-c", "exit 3", cwd=tmp_path, options=["--json", "no/such/folder/r.json"])
    assert result.returncode == 3
    assert b"no/such/folder/r.json" in result.stderr
    assert meta(only_run(tmp_path))["exit_code"] == "3"


@pytest.mark.parametrize(
    "occupant, text", [("run.db", b"holds a run already"), ("letter.txt", b"is not empty"), (None, b"not a folder")]
)
def test_an_occupied_folder_is_refused_and_the_job_is_not_run(tmp_path, occupant, text):
    if occupant:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / occupant).write_text("mine")
    else:
        (tmp_path / "out").write_text("mine")
    result = run("touch", "ran", cwd=tmp_path, options=["--out", "out"])
    assert result.returncode == 2
    assert text in result.stderr
    assert not (tmp_path / "ran").exists()
    kept = tmp_path / "out" / occupant if occupant else tmp_path / "out"
    assert kept.read_text() == "mine"


def test_a_run_that_cannot_start_takes_its_folders_back(tmp_path):
    (tmp_path / "empty").mkdir()
    for out in ("new/deep/run", "empty"):
        assert run("no-such-command", cwd=tmp_path, options=["--out", out]).returncode == 127
    assert [p.name for p in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.fixture
def small_disk(tmp_path):
    """A folder of its own with 1 MiB in all."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder])
    if made.returncode != 0:
        pytest.skip("needs to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(folder):
    with open(folder / "ballast", "wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"x" * 4096)
        except OSError:
            pass


@needs_root
@pytest.mark.parametrize("options", [[], ["--out", "run"]])
def test_a_full_folder_does_not_stop_the_job(tmp_path, small_disk, options):
    fill(small_disk)
    spare = tmp_path / "spare"
    spare.mkdir()
    result = run("echo", "ran", cwd=small_disk, options=options, env={**os.environ, "TMPDIR": str(spare)})
    assert (result.returncode, result.stdout) == (0, b"ran\n")
    assert re.search(rb"No space left.* the run is kept in " + str(spare).encode() + rb"/\S+ instead", result.stderr)
    assert meta(only_run(spare))["exit_code"] == "0"
    assert [p.name for p in small_disk.iterdir()] == ["ballast"]


@needs_root
def test_with_no_place_at_all_the_job_is_not_started(tmp_path, small_disk):
    fill(small_disk)
    result = run("touch", tmp_path / "ran", cwd=small_disk, env={**os.environ, "TMPDIR": str(small_disk)})
    assert result.returncode == 3
    assert b"nothing was run, for nothing could be recorded" in result.stderr
    assert not (tmp_path / "ran").exists()


@needs_root
def test_a_disk_that_fills_later_cuts_the_recording_short_and_not_the_job(tmp_path, small_disk):
    job = start(
        "sh", "-c", "echo ready; read line; exit 6", cwd=tmp_path, options=["--out", str(small_disk / "run")],
        stdin=subprocess.PIPE,
    )
    assert read_until(job.stdout.fileno(), b"ready\n") == b"ready\n"
    eventually(lambda: meta(small_disk / "run").get("root_pid"), "the recording to be under way")
    fill(small_disk)
    time.sleep(5)  # ten ticks of the recorder, each of which wants to write
    out, err = job.communicate(b"go\n", timeout=60)
    assert job.returncode == 6
    assert re.search(rb"the recording stopped after .* full", err), err
    assert b"the job went on" in err
    assert b"run kept in" in err


@needs_root
@needs_other_users
def test_an_unwritable_folder_falls_back(tmp_path):
    # As nobody: root may write everywhere.
    closed, spare = tmp_path / "closed", tmp_path / "spare"
    closed.mkdir(mode=0o755)
    spare.mkdir()
    spare.chmod(0o777)
    for folder in [*tmp_path.parents, tmp_path]:
        if folder.stat().st_uid == 0 and str(folder).startswith("/tmp/pytest"):
            folder.chmod(0o755)
    result = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", BEDPLATE, "run", "--", "echo", "ran"],
        cwd=closed,
        env={**os.environ, "TMPDIR": str(spare)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    assert (result.returncode, result.stdout) == (0, b"ran\n"), result.stderr
    assert b"Permission denied" in result.stderr
    assert meta(only_run(spare))["uid"] == "65534"
    assert run_folders(closed) == []


def test_a_colon_in_the_path_costs_the_hook_and_says_so(tmp_path):
    result = run("sh", "-c", "echo ${PYTHONPATH-unset}", cwd=tmp_path, options=["--out", "a:b"],
                 env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    assert result.returncode == 0
    assert result.stdout == b"unset\n"
    assert b"PYTHONPATH cannot name" in result.stderr
    assert meta(tmp_path / "a:b")["exit_code"] == "0"


def test_a_working_folder_that_was_removed(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    spare = tmp_path / "spare"
    spare.mkdir()
    result = subprocess.run(
        ["sh", "-c", f"rmdir ../gone; exec {BEDPLATE} run -- echo ran"],
        cwd=gone, env={**os.environ, "TMPDIR": str(spare)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
    )
    assert (result.returncode, result.stdout) == (0, b"ran\n"), result.stderr
    assert meta(only_run(spare))["exit_code"] == "0"


def test_two_runs_at_once_in_one_folder(tmp_path):
    jobs = [start("sh", "-c", "sleep 0.3", cwd=tmp_path) for _ in range(4)]
    for job in jobs:
        finish(job)
        assert job.returncode == 0
    assert len(run_folders(tmp_path)) == 4
