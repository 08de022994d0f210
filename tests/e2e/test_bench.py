"""bedplate bench: what it says, what it refuses, and that nothing of it stays behind."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import support
from conftest import needs_root
from support import BEDPLATE, bedplate, eventually

DISK = ["bench", "disk", "--size", "8MiB", "--seconds", "0.05", "--reserve", "0"]
META = ["bench", "meta", "--files", "200", "--threads", "2", "--reserve", "0"]
ENGINES = ["threads", pytest.param("fio", marks=pytest.mark.skipif(not shutil.which("fio"), reason="needs fio"))]


def nobody_can_feed():
    return ["--ranks", "8", "--samples-per-second", "1e9", "--sample-bytes", "150KiB"]


@pytest.mark.parametrize("engine", ENGINES)
def test_disk_as_json(tmp_path, engine):
    done = bedplate(*DISK, "--engine", engine, "--write", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert set(said["phases"]) == {"sequential read", "random read", "sequential write", "random write"}
    for name, phase in said["phases"].items():
        assert phase["amount"] == phase["calls"] * 128 * 1024, name
        assert 0 < phase["median_ns"] <= phase["p99_ns"] <= phase["longest_ns"], name
    assert engine in said["engine"]
    assert "fits" not in said
    assert list(tmp_path.iterdir()) == []


def test_disk_against_a_need(tmp_path):
    little = ["--samples-per-second", "0.5", "--sample-bytes", "9000"]
    done = bedplate(*DISK, *little, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert "blocks of 12 KiB" in text and "): fits\n" in text
    done = bedplate(*DISK, *nobody_can_feed(), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    text = done.stdout.decode()
    assert "blocks of 152 KiB" in text and "does not fit" in text and "would help: a cache" in text


def test_meta_as_json_and_against_a_need(tmp_path):
    done = bedplate(*META, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert list(said["phases"]) == ["create", "stat", "open and read", "list", "rename", "remove"]
    assert all(said["phases"][name]["calls"] == 200 for name in said["phases"] if name != "list")
    done = bedplate(*META, "--shared", *nobody_can_feed(), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert b"200 files of 150 KiB, 2 threads, one folder for all" in done.stdout
    assert b"would help: shards" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_need_whose_samples_are_loose_files(tmp_path):
    place, samples = tmp_path / "place", tmp_path / "samples"
    place.mkdir()
    samples.mkdir()
    for i in range(20):
        (samples / f"{i}.bin").write_bytes(b"x" * 5000)
    need = ["--samples-per-second", "0.5", "--dataset", f"{samples}/", "--format", "files", "--seconds", "0.1"]
    done = bedplate("bench", "meta", place, "--files", "100", "--reserve", "0", *need, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["need"]["sample_bytes"] == said["file_bytes"] == 5000
    assert len(said["judgements"]) == 2 and said["fits"]
    assert "the data set itself" in said["judgements"][1]["gives"]
    done = bedplate("bench", "disk", place, "--size", "8MiB", "--reserve", "0", *need, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert b"blocks of 8 KiB" in done.stdout and b"each sample of the data set is a file of its own" in done.stdout
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["bench"], "WHAT"),
        (["bench", "dsk"], "dsk"),
        (["bench", "disk", "--files", "3"], "--files belongs to `bedplate bench meta`"),
        (["bench", "meta", "--block", "4KiB"], "--block belongs to `bedplate bench disk`"),
        (["bench", "disk", "--size", "big"], "--size big: give a size like 128KiB"),
        (["bench", "disk", "--block", "1000"], "a multiple of 4 KiB"),
        (["bench", "disk", "--seconds", "0"], "--seconds"),
        (["bench", "disk", "--seconds", "nan"], "--seconds"),
        (["bench", "disk", "--depth", "0"], "a depth of 0"),
        (["bench", "disk", "--engine", "dd"], "dd"),
        (["bench", "meta", "--threads", "0"], "--threads"),
        (["bench", "meta", "--files", "1", "--threads", "2"], "at least one each"),
        (["bench", "disk", "--ranks", "8"], "give --samples-per-second"),
        (["bench", "disk", "--samples-per-second", "9"], "give --sample-bytes or --dataset"),
        (["bench", "disk", "--samples-per-second", "-1", "--sample-bytes", "1"], "samples per second"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, arguments, text):
    done = bedplate(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done
    assert text in done.stderr.decode()
    assert done.stdout == b"" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [DISK, META], ids=["disk", "meta"])
class TestPlaces:
    def test_that_are_not_there(self, command, tmp_path):
        done = bedplate(*command, tmp_path / "missing", cwd=tmp_path)
        assert done.returncode == 3 and b"missing" in done.stderr

    def test_that_are_no_folders(self, command, tmp_path):
        (tmp_path / "file").write_text("x")
        done = bedplate(*command, tmp_path / "file", cwd=tmp_path)
        assert done.returncode == 2 and b"is no folder" in done.stderr

    def test_that_would_be_filled(self, command, tmp_path):
        done = bedplate(*command[:-1], "1000TiB", cwd=tmp_path)
        assert done.returncode == 3 and b"less than the reserve of 1000 TiB" in done.stderr
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
    def test_that_are_closed_to_us(self, command, tmp_path):
        place = tmp_path / "closed"
        place.mkdir(mode=0o555)
        program = tmp_path / "bedplate"
        shutil.copy(BEDPLATE, program)
        if subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", "test", "-x", program]).returncode:
            pytest.skip("other users may not enter this test's folder")
        done = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", program, *command, place],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, cwd="/")
        assert done.returncode == 3, done
        assert b"closed" in done.stderr and b"ermission" in done.stderr

    @needs_root
    def test_on_a_read_only_mount(self, command, mounted):
        place = mounted("ro,size=64M")
        done = bedplate(*command, place, cwd=place.parent)
        assert done.returncode == 3, done
        assert b"Read-only" in done.stderr or b"read-only" in done.stderr

    @needs_root
    def test_on_a_full_file_system(self, command, mounted):
        place = mounted("size=4M")
        done = bedplate(*command, place, cwd=place.parent)
        if "disk" in command:
            assert done.returncode == 3 and b"4 MiB free" in done.stderr, done
        (place / "all of it").write_bytes(b"x" * (3 << 20))
        done = bedplate(*command, place, cwd=place.parent)
        assert done.returncode == 3, done
        assert b"free" in done.stderr
        assert [each.name for each in place.iterdir()] == ["all of it"]


@pytest.fixture
def mounted(tmp_path):
    """Mounts a tmpfs with options; skips by name where that is not permitted."""
    places = []

    def mount(options):
        place = tmp_path / "mount"
        place.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], stderr=subprocess.PIPE)
        if done.returncode:
            pytest.skip(f"needs to mount: {done.stderr.decode().strip()}")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", "-l", place], check=True)


@needs_root
def test_what_is_memory_is_said_to_be(mounted):
    place = mounted("size=64M")
    done = bedplate(*DISK, place, cwd=place.parent)
    assert b"this is a tmpfs: the figures are those of memory" in done.stdout


def start(*arguments, cwd):
    return subprocess.Popen([BEDPLATE, *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def scratch_folders(folder: Path) -> list:
    return list(folder.glob(".bedplate-bench-*/owner"))


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_meta_leaves_nothing_when_it_is_interrupted(tmp_path, ending):
    job = start("bench", "meta", "--files", "500000", "--bytes", "0", "--reserve", "0", cwd=tmp_path)
    eventually(lambda: scratch_folders(tmp_path), "the folder in which it works")
    job.send_signal(ending)
    out, err = support.finish(job)
    assert job.returncode == -ending and out == b"", err
    assert list(tmp_path.iterdir()) == []


def test_a_killed_meta_is_cleaned_up_by_the_next(tmp_path):
    job = start("bench", "meta", "--files", "500000", "--bytes", "0", "--reserve", "0", cwd=tmp_path)
    eventually(lambda: scratch_folders(tmp_path), "the folder in which it works")
    job.kill()
    support.finish(job)
    assert scratch_folders(tmp_path)
    done = bedplate(*META, cwd=tmp_path)
    assert done.returncode == 0 and b"removed what 1 killed measurement had left" in done.stdout, done
    assert list(tmp_path.iterdir()) == []


def running_fio(parent: int) -> list:
    return [pid for pid in support.children_of(parent) if support.command_line(pid).startswith(b"fio\0--name")]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_disk_leaves_nothing_however_it_ends(tmp_path, engine, ending):
    job = start("bench", "disk", "--size", "4MiB", "--seconds", "100", "--reserve", "0", "--engine", engine, cwd=tmp_path)
    fio = eventually(lambda: running_fio(job.pid), "fio") if engine == "fio" else []
    if not fio:
        # Its test file: open, and without a name.
        eventually(lambda: any("deleted" in os.readlink(each) or "/#" in os.readlink(each)
                               for each in Path(f"/proc/{job.pid}/fd").iterdir()), "the test file")
    job.send_signal(ending)
    out, _ = support.finish(job)
    assert job.returncode == -ending and out == b""
    for pid in fio:
        eventually(lambda: not support.alive(pid), "the end of fio")
    assert list(tmp_path.iterdir()) == []


def test_without_fio_threads_do_the_work(tmp_path):
    done = bedplate(*DISK, cwd=tmp_path, env={**os.environ, "PATH": "/nonexistent"})
    assert done.returncode == 0 and b"32 threads" in done.stdout, done
    done = bedplate(*DISK, "--engine", "fio", cwd=tmp_path, env={**os.environ, "PATH": "/nonexistent"})
    assert done.returncode == 3 and b"fio is not installed" in done.stderr


def test_a_fio_that_fails_is_no_slow_disk(tmp_path):
    (tmp_path / "bin").mkdir()
    fio = tmp_path / "bin/fio"
    fio.write_text("#!/bin/sh\n[ $1 = --version ] && echo fio-9.9 && exit 0\necho 'it broke' >&2\nexit 1\n")
    fio.chmod(0o755)
    done = bedplate(*DISK, cwd=tmp_path, env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    assert done.returncode == 3 and b"it broke" in done.stderr and done.stdout == b"", done


def test_progress_on_a_terminal(tmp_path, terminal):
    shown = terminal(BEDPLATE, "bench", "disk", "--size", "8MiB", "--seconds", "2", "--reserve", "0", "--engine", "threads")
    shown.expect(b"bedplate: sequential read ")
    shown.expect(b"IOPS")
    assert shown.finish() == 0
