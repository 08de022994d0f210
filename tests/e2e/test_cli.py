"""The command line itself: help, version, completion, and what is said to a slip of the finger."""

import json
import os
import re
import shutil
import subprocess

import pytest
from support import BEDPLATE, bedplate, run_folders


def words_of(result) -> str:
    return result.stderr.decode()


def test_help_lists_each_command_with_examples(tmp_path):
    for arguments in (["--help"], ["-h"], ["help"]):
        result = bedplate(*arguments, cwd=tmp_path)
        assert result.returncode == 0 and result.stderr == b""
        text = result.stdout.decode()
        for command in ("run", "version", "completion"):
            assert re.search(rf"^  {command} +\S", text, re.M), command
        assert "bedplate run -- python train.py" in text
        assert max(map(len, text.splitlines())) <= 100


def commands() -> list:
    text = subprocess.run([BEDPLATE, "--help"], stdout=subprocess.PIPE, timeout=60).stdout.decode()
    return re.findall(r"^  ([a-z]+)  +\S", text.split("Examples:")[0], re.M)


@pytest.mark.parametrize("command", commands())
def test_each_command_has_help(tmp_path, command):
    result = bedplate(command, "--help", cwd=tmp_path)
    assert result.returncode == 0
    text = result.stdout.decode()
    assert text.startswith(f"bedplate {command}: ")
    assert f"Usage: bedplate {command}" in text
    assert max(map(len, text.splitlines())) <= 100
    assert bedplate("help", command, cwd=tmp_path).stdout == result.stdout


def test_version(tmp_path):
    text = bedplate("version", cwd=tmp_path).stdout.decode()
    assert re.fullmatch(r"bedplate \d+\.\d+\.\d+\n", text)
    assert bedplate("--version", cwd=tmp_path).stdout.decode() == text
    features = bedplate("version", "--features", cwd=tmp_path).stdout.decode().splitlines()
    as_json = json.loads(bedplate("version", "--json", cwd=tmp_path).stdout)
    assert as_json["version"] == text.split()[1]
    assert set(as_json["features"]) == {line.split()[0] for line in features[1:]} >= {"bpf"}
    for name, feature in as_json["features"].items():
        assert feature["on"] or feature["note"], name  # what is off says why


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["rnu", "--", "true"], "unknown command rnu; did you mean run?"),
        (["xyzzy"], "unknown command xyzzy"),
        (["--hlep"], "unknown option --hlep; did you mean --help?"),
        (["run", "--jsno", "x", "--", "true"], "unknown option --jsno; did you mean --json?"),
        (["run", "--jsno=x", "--", "true"], "unknown option --jsno; did you mean --json?"),
        (["run", "--quite", "--", "true"], "did you mean --quiet?"),
        (["run", "python", "train.py"], "the job comes after --, as in: bedplate run -- python train.py"),
        (["run", "--quiet", "train me.py"], "bedplate run -- 'train me.py'"),
        (["run"], "no command was given, as in: bedplate run -- python train.py"),
        (["run", "--"], "no command was given"),
        (["run", "--hz", "0", "--", "true"], "--hz"),
        (["run", "--hz", "many", "--", "true"], "--hz"),
        (["run", "--hz", "nan", "--", "true"], "--hz"),
        (["run", "python", "-c", "1"], "the job comes after --, as in: bedplate run -- python -c 1"),
        (["train.py"], "a job is run by: bedplate run -- train.py"),
        (["run", "--config", "/dev/zero", "--", "true"], "/dev/zero is not a regular file"),
        (["run", "--out"], "--out"),
        (["run", "--out", "", "--", "true"], "--out has an empty value"),
        (["run", "--html", "", "--", "true"], "--html has an empty value"),
        (["report", "--trace", "", "somewhere"], "--trace has an empty value"),
        (["version", "extra"], "unexpected argument extra"),
        (["completion"], "SHELL"),
        (["completion", "tcsh"], "give bash, zsh or fish"),
        ([], "no command was given"),
        ([b"r\xff\x1b[31m"], "unknown command r"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(tmp_path, arguments, text):
    result = bedplate(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert text in words_of(result)
    assert "\x1b" not in words_of(result)
    assert result.stdout == b""
    assert run_folders(tmp_path) == []


def test_output_that_cannot_be_written_is_no_success(tmp_path):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BEDPLATE, "version"], stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 3
    assert b"No space left" in done.stderr or b"full" in done.stderr


def completed(shell: str, tmp_path, line: str) -> set:
    """What bash offers for the last word of `line`."""
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _bedplate; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    words = line.split(" ")
    done = subprocess.run(
        ["bash", "-c", script, "bash", tmp_path / "completion", *words], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
    )
    assert done.stderr == b"", done.stderr
    return set(done.stdout.decode().split())


def test_bash_completion(tmp_path):
    (tmp_path / "completion").write_bytes(bedplate("completion", "bash", cwd=tmp_path).stdout)
    (tmp_path / "results").mkdir()
    (tmp_path / "results.json").write_text("")
    assert completed("bash", tmp_path, "bedplate r") >= {"run"}
    assert completed("bash", tmp_path, "bedplate v") == {"version"}
    assert completed("bash", tmp_path, "bedplate run --j") == {"--json"}
    assert completed("bash", tmp_path, "bedplate run --out res") == {"results"}
    assert completed("bash", tmp_path, "bedplate run --json res") == {"results", "results.json"}
    assert "python3" in completed("bash", tmp_path, "bedplate run -- pytho") | completed(
        "bash", tmp_path, "bedplate run -- python"
    )
    assert completed("bash", tmp_path, "bedplate version --f") == {"--features"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(tmp_path, shell):
    if not shutil.which(shell):
        pytest.skip(f"needs {shell}")
    script = tmp_path / f"completion.{shell}"
    script.write_bytes(bedplate("completion", shell, cwd=tmp_path).stdout)
    done = subprocess.run([shell, "-n", script], stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_fish_completes(tmp_path):
    if not shutil.which("fish"):
        pytest.skip("needs fish")
    script = tmp_path / "completion.fish"
    script.write_bytes(bedplate("completion", "fish", cwd=tmp_path).stdout)

    def offered(line):
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"], cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path), "PATH": os.path.dirname(BEDPLATE) + ":" + os.environ["PATH"]},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
        )
        return {each.split("\t")[0] for each in done.stdout.decode().splitlines()}

    assert "run" in offered("bedplate r")
    assert "--json" in offered("bedplate run --j")
    assert "seq" in offered("bedplate run --quiet -- seq")
