"""Each fault alone: named first, the mended job healthy, and (medians of the long form only, for they are wall time) its ceiling
not below what mending it really brought."""

import statistics

import cgroups
import conftest
import faults
import harness
import pytest


@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name)
def test_fault_is_named_first_and_its_ceiling_holds(fault, rounds):
    faulty, mended = [], []
    try:
        with faults.folder(fault.needs) as path:
            for _ in range(rounds):
                for outcomes, outcome in zip((faulty, mended), provoke(fault, path)):
                    outcomes.append(outcome)
    except cgroups.Missing as missing:
        conftest.row(fault.name, "skipped", note=str(missing))
        pytest.skip(f"{fault.name}: {missing}")
    found = [outcome.finding(fault.rule) for outcome in faulty]
    ceiling = statistics.median(f["gain_ceiling"] if f else 0 for f in found)
    gain, noise = harness.gain_of(faulty, mended)
    besides = {rule for outcome in faulty for rule in outcome.rules} - {fault.rule}
    conftest.row(fault.name, found[0]["status"] if all(found) else "NOT FOUND", ceiling, gain, ", ".join(sorted(besides)))
    for outcome in faulty:
        is_named(fault, outcome)
    for outcome in mended:
        assert outcome.rules == [], outcome.text
        assert outcome.verdict["status"] == "healthy", outcome.text
    if not harness.LONG:
        return
    assert gain > harness.NOISE, f"the fault cost nothing ({gain:.2f}): it was not provoked"
    assert ceiling >= gain - noise, f"ceiling {ceiling:.2f}, gained {gain:.2f} ± {noise:.2f}\n{faulty[0].text}"


def provoke(fault, path):
    with faults.planted([fault], path) as (group, env):
        faulty = harness.run(faults.flags(fault.base, fault.faulty, {"folder": path}), group, env, fault.neighbours > 0,
                             before=lambda: faults.make_cold([fault], path))
    mended = harness.run(faults.flags(fault.base, fault.mended, {"folder": path}))
    return faulty, mended


def is_named(fault, outcome):
    assert outcome.rules[:1] == [fault.rule], outcome.text
    assert outcome.verdict["rule"] == fault.rule
    assert set(outcome.rules) <= {fault.rule, *fault.allow}, outcome.text
    for other in outcome.findings[1:]:
        assert other["because_of"], f"{other['rule']} is no consequence\n{outcome.text}"
    if fault.says:
        assert fault.says in outcome.text, outcome.text
