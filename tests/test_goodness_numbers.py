"""What is said of one table, field by field, against the tests that it is put together from."""

import math
from dataclasses import replace

import numpy as np
import pytest

from oracle.judge import bank, goodness, scan, significance
from oracle.judge.goodness import NEVER_DRAWN, Table

ALARM = 2e-6
LAW = np.array([[0.24, 0.12, 0.04], [0.06, 0.3, 0.24], [0.0, 0.0, 0.0]])
COUNTS = np.array([[2400, 1200, 400], [600, 3010, 2390], [0, 0, 0]])
with np.errstate(divide="ignore"):
    WITHIN = np.log(LAW / np.array([[0.4], [0.6], [1.0]]))


def test_a_table_is_taken_apart_by_context() -> None:
    """Weights and log laws; a context that cannot be has weight 0 and no token."""
    weights, log_law = goodness.conditional(LAW)
    assert weights == pytest.approx([0.4, 0.6, 0.0], rel=1e-14)
    assert np.allclose(log_law, WITHIN, rtol=1e-12)
    table = Table(LAW, COUNTS)
    assert table.draws == 10_000
    assert (table.named(0), table.named(5)) == ("token 0 after 0", "token 2 after 1")
    assert Table(LAW[:1], COUNTS[:1]).named(2) == "token 2"


def test_stage_one_is_put_together_from_three_tests() -> None:
    """Chi-square at its level, bank and scan at half of the alarm each."""
    table = Table(LAW, COUNTS, WITHIN, 0.8)
    found = goodness.judge(table, 1, ALARM)
    pools = significance.pool(LAW.ravel(), 10_000)
    assert np.array_equal(found.pools.member, pools.member)
    assert found.fit == significance.fit(pools, COUNTS.ravel(), 1e-3)
    weights, log_law = goodness.conditional(LAW)
    present = np.where(weights[:, None] > 0, log_law, 0.0)
    assert found.blurred == significance.smallest_tilt(pools, present, 1e-3, weights=weights)
    known = bank.members(log_law, WITHIN, 0.8)
    assert found.exact is not None
    values = dict(zip((one.name for one in known), bank.log_values(COUNTS, known), strict=True))
    values[NEVER_DRAWN] = bank.never_drawn(log_law, COUNTS)
    assert found.exact.values == values
    assert list(found.exact.values)[-1] == NEVER_DRAWN
    assert found.exact.finding == scan.scan(LAW, COUNTS, ALARM / 2)
    assert found.exact.tilt == bank.smallest_tilt(known, LAW, 10_000, len(values), ALARM / 2)
    assert found.exact.mass == scan.smallest_mass(LAW, 10_000, ALARM / 2)
    assert (found.exact.alarm, found.exact.complaint, found.complaint) == (ALARM, "", "")
    again = goodness.bank_of(table)
    assert [one.name for one in again] == [one.name for one in known]
    assert np.array_equal(bank.log_values(COUNTS, again), bank.log_values(COUNTS, known))
    second = goodness.judge(table, 2, ALARM)
    assert (second.exact, second.fit.level, second.complaint) == (None, 1e-6, "")
    assert second.blurred == significance.smallest_tilt(pools, present, 1e-6, weights=weights)


def test_the_stated_effect_is_that_of_the_stronger_test() -> None:
    """Chi-square or the bank, by name; chi-square where they are equal."""
    one = goodness.judge(Table(LAW, COUNTS), 1, ALARM)
    assert one.exact is not None
    for blurred, tilt, least, by in (
        (0.5, 0.25, 0.25, "bank"),
        (0.125, 0.25, 0.125, "chi-square"),
        (0.25, 0.25, 0.25, "chi-square"),
    ):
        put = replace(one, blurred=blurred, exact=replace(one.exact, tilt=tilt))
        assert put.tilt == least
        assert put.effect == f"T off by {100 * least:.2g} % ({by}, 97.5 %)"
    alone = replace(one, exact=None, blurred=0.031)
    assert (alone.tilt, alone.effect) == (0.031, "T off by 3.1 % (chi-square, 97.5 %)")


def test_what_is_stored_of_a_table() -> None:
    """Every number of the fit, and logs that JSON can hold."""
    one = goodness.judge(Table(LAW, COUNTS), 1, ALARM)
    assert one.exact is not None
    fit = one.fit
    fitted = {
        "step": 3,
        "statistic": "G",
        "value": fit.value,
        "other": fit.other,
        "degrees": 5,
        "p_value": fit.p_value,
        "level": 1e-3,
        "least_expected": fit.least_expected,
        "pools": 6,
        "draws": 10_000,
    }
    assert replace(one, exact=None).described(3) == fitted
    far = replace(one.exact.finding, log_p=-math.inf)
    put = replace(one.exact, values={"a": -math.inf, "b": 2.5}, finding=far)
    stored = replace(one, exact=put).described(3)
    assert stored == {
        **fitted,
        "bank": {"a": -690.0, "b": 2.5},
        "scan": vars(far) | {"log_p": -690.0},
        "exact_alarm": ALARM,
    }


def test_a_complaint_names_the_fault_and_the_interval() -> None:
    """Both tests speak, each with what it observed and what it required."""
    law = np.full((1, 4), 0.25)
    counts = np.array([[500, 500, 0, 0]])
    exact = goodness.exact(Table(law, counts), np.log(law), ALARM)
    logs = np.array(list(exact.values.values()))
    best = int(logs.argmax())
    name = list(exact.values)[best]
    most, mean = logs[best] / math.log(10), bank.mean_log(logs) / math.log(10)
    assert exact.complaint.split("; ") == [
        f"1000 draws are 10^{most:.1f} times as likely under '{name}' as under the law",
        f"mean over {len(logs)} such faults 10^{mean:.1f}, required below 10^6.0",
        "token 0 to token 1: observed 1000 draws, 500 expected",
        f"p = {exact.finding.adjusted:.2g} after all intervals, required above 1e-06",
    ]
    assert exact.finding.first == 0


def test_intervals_in_words() -> None:
    """One cell, a run of ids, and ranks by falling probability."""
    table = Table(LAW, COUNTS)
    finding = scan.scan(LAW, COUNTS, ALARM)
    for order, first, last, cells, words in (
        ("id", 4, 4, (4,), "token 1 after 1"),
        ("falling probability", 0, 0, (4,), "token 1 after 1"),
        ("id", 1, 4, (1, 2, 3, 4), "token 1 after 0 to token 1 after 1"),
        (
            "falling probability",
            2,
            3,
            (5, 1),
            "ranks 2 to 3 by falling probability, from token 2 after 1 on",
        ),
    ):
        one = replace(finding, order=order, first=first, last=last, cells=cells)
        assert goodness.interval(table, one) == words


def test_the_draws_that_a_plan_asks_for() -> None:
    """The first of its steps at which the bank sees the error in every law."""
    second = np.array([[0.5, 0.3, 0.2]])
    needed = [goodness.draws_for([law], 0.02, ALARM) for law in (LAW, second)]
    assert goodness.draws_for([LAW, second], 0.02, ALARM) == max(needed)
    for law, draws in zip((LAW, second), needed, strict=True):
        known = bank.members(goodness.conditional(law)[1])
        seen = [
            bank.smallest_tilt(known, law, n, len(known) + 1, ALARM / 2)
            for n in (draws, int(draws / 1.2))
        ]
        assert seen[0] <= 0.02 < seen[1]
    assert goodness.draws_for([LAW], 0.4, ALARM) == 2**14


def test_the_steps_of_a_plan() -> None:
    """Four times the draws at most, 2 % more at least, else the square of what is lacking."""
    known = bank.members(goodness.conditional(LAW)[1])

    def seen(draws: int) -> float:
        return bank.smallest_tilt(known, LAW, draws, len(known) + 1, ALARM / 2)

    steps = [2**14]
    while seen(steps[-1]) > 0.004:
        lacking = (seen(steps[-1]) / 0.004) ** 2
        steps.append(math.ceil(steps[-1] * min(4.0, max(1.02, lacking))))
    assert steps[1] == 2**16
    assert goodness.draws_for([LAW], 0.004, ALARM) == steps[-1]
    # Seen just so is seen.
    assert goodness.draws_for([LAW], seen(2**14), ALARM) == 2**14
    # The exact table averages one value more than the bank has.
    without = bank.smallest_tilt(known, LAW, 2**14, len(known), ALARM / 2)
    assert without < seen(2**14)
    assert goodness.draws_for([LAW], without, ALARM) > 2**14


def test_a_plan_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that no affordable number of draws shows."""
    with pytest.raises(
        ValueError, match=r"^an error of 0\.02 in T is out of reach, required: a law"
    ):
        goodness.draws_for([np.full((1, 4), 0.25)], 0.02, ALARM)
    monkeypatch.setattr(goodness, "DRAWS_MAX", 2**14)
    with pytest.raises(ValueError, match=r"^an error of 0\.4 in T is out of reach"):
        goodness.draws_for([LAW], 0.4, ALARM)
