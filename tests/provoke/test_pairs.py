"""Two faults at once: both named as causes and (long form) ranked in the order of what each costs, measured by removing each alone."""

import statistics

import cgroups
import conftest
import faults
import harness
import pytest


@pytest.mark.parametrize("names", faults.PAIRS, ids=lambda names: f"{names[0]}+{names[1]}")
def test_the_dearer_fault_comes_first(names, rounds):
    pair = faults.BY_NAME[names[0]], faults.BY_NAME[names[1]]
    title = "+".join(names[:2])
    both, alone = [], {fault.rule: [] for fault in pair}
    try:
        with faults.folder(pair[0].needs + pair[1].needs) as path:
            for _ in range(rounds):
                both.append(job(pair, pair, names, path))
                for fault in pair if harness.LONG else ():
                    alone[fault.rule].append(job(pair, [fault], names, path))
    except cgroups.Missing as missing:
        conftest.row(title, "skipped", note=str(missing))
        pytest.skip(f"{title}: {missing}")
    roots = [[f["rule"] for f in outcome.findings if f["because_of"] is None] for outcome in both]
    found = all(set(one) == set(alone) for one in roots)
    if not harness.LONG:
        conftest.row(title, "found" if found else "NOT FOUND", note=", ".join(roots[0]))
        assert found, both[0].text
        return
    dearest_first, costs = by_cost(both, alone)
    conftest.row(title, "found" if found else "NOT FOUND", note="; ".join(
        [f"{rule} costs {100 * cost:.0f} %, ceiling {100 * ceiling_of(rule, both):.0f} %" for rule, (cost, _) in costs.items()]))
    assert found, next(outcome.text for outcome, one in zip(both, roots) if set(one) != set(alone))
    for rule, (cost, noise) in costs.items():
        assert ceiling_of(rule, both) >= cost - noise, both[0].text
    (dearer, noise), (cheaper, other_noise) = (costs[rule] for rule in dearest_first)
    if dearer - cheaper > max(noise, other_noise):
        ranked = sorted(alone, key=lambda rule: ceiling_of(rule, both), reverse=True)
        assert ranked == dearest_first, both[0].text


def job(pair, chosen, names, path):
    """The common job of a pair with the faults `chosen` planted in it."""
    common = {**pair[0].base, **pair[1].base, **names[2]}
    parts = [fault.faulty if fault in chosen else fault.mended for fault in pair]
    stronger = {flag: value for flag, value in names[3].items() if any(flag in fault.faulty for fault in chosen)}
    with faults.planted(chosen, path) as (group, env):
        return harness.run(faults.flags(common, *parts, stronger, {"folder": path}), group, env,
                           before=lambda: faults.make_cold(chosen, path))


def by_cost(both, alone):
    """(rules, dearest first; cost and noise of each as shares of the step): its cost is what the job gains that has only the other."""
    one, other = alone
    costs = {rule: harness.gain_of(both, alone[rest]) for rule, rest in ((one, other), (other, one))}
    return sorted(costs, key=costs.get, reverse=True), costs


def ceiling_of(rule, outcomes):
    found = [outcome.finding(rule) for outcome in outcomes]
    return statistics.median(finding["gain_ceiling"] if finding else 0 for finding in found)
