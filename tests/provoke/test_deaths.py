"""Jobs that die: the first death is named, the others are its consequences, and the exit code is the job's own."""

import cgroups
import conftest
import faults
import harness
import pytest


@pytest.mark.parametrize("kind", faults.DEATHS)
def test_the_first_death_is_named(kind):
    words, rank = faults.DEATHS[kind]
    ranks = 1 if kind == "memory" else 2
    arguments = faults.flags({"steps": 60, "width": 512, "workers": 0, "ranks": ranks, "die": kind, "die-rank": rank, "die-step": 20})
    try:
        if kind == "memory":
            with cgroups.group(memory_mib=900) as group:
                outcome = harness.run(arguments, group)
        else:
            outcome = harness.run(arguments)
    except cgroups.Missing as missing:
        conftest.row(f"crash: {kind}", "skipped", note=str(missing))
        pytest.skip(str(missing))
    found = outcome.finding("crash")
    conftest.row(f"crash: {kind}", found["status"] if found else "NOT FOUND", found["gain_ceiling"] if found else None,
                 note=outcome.report["verdict"]["text"])
    assert outcome.exit_code != 0
    assert outcome.rules[:1] == ["crash"], outcome.text
    assert words in outcome.report["verdict"]["text"], outcome.text
    if ranks > 1:
        assert found["scope"]["ranks"] == [rank], outcome.text
