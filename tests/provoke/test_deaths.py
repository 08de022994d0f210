"""Jobs that die: the first death is named, the others are its consequences, and the exit code is the job's own."""

import cgroups
import conftest
import faults
import harness
import pytest


@pytest.mark.parametrize("kind", faults.DEATHS)
def test_the_first_death_is_named(kind):
    words, rank = faults.DEATHS[kind]
    job, memory_mib = faults.death(kind)
    try:
        with cgroups.group(memory_mib=memory_mib) as group:
            outcome = harness.run(faults.flags(job), group)
    except cgroups.Missing as missing:
        conftest.row(f"crash: {kind}", "skipped", note=str(missing))
        pytest.skip(str(missing))
    found = outcome.finding("crash")
    conftest.row(f"crash: {kind}", found["status"] if found else "NOT FOUND", found["gain_ceiling"] if found else None,
                 note=outcome.verdict["text"])
    assert outcome.exit_code != 0
    assert outcome.rules[:1] == ["crash"], outcome.text
    assert words in outcome.verdict["text"], outcome.text
    if job["ranks"] > 1:
        assert found["scope"]["ranks"] == [rank], outcome.text
