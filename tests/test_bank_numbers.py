"""The bank number by number: each fault against its formula, each plan against its definition."""

import math

import numpy as np
import pytest
from scipy import stats

from oracle.judge import bank
from oracle.judge.bank import Member
from oracle.judge.significance import Floats

# Two contexts of four tokens, one of which cannot come after the first; a third that cannot be.
WEIGHTS = np.array([[4.0, 2.0, 0.0, 2.0], [1.0, 5.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
WITHIN = WEIGHTS / np.array([[8.0], [10.0], [1.0]])
with np.errstate(divide="ignore"):
    LOG = np.log(WITHIN)


def close(found: Floats, expected: list[list[float]]) -> bool:
    """Whether a fault has these probabilities; a context that cannot be has none."""
    return bool(np.allclose(np.exp(found), [*expected, [0.0] * 4], rtol=1e-12, atol=0))


def shares(*weights: float) -> list[float]:
    """Weights that add up to one."""
    return [weight / sum(weights) for weight in weights]


def test_rows_are_made_to_add_up_to_one() -> None:
    """Far from zero too, and a row without weight stays without."""
    found = bank.normalised(np.array([[1000.0, 1000.0 + math.log(3)], [-np.inf, -np.inf]]))
    assert np.exp(found[0]) == pytest.approx([0.25, 0.75], rel=1e-12)
    assert found[1].tolist() == [-np.inf, -np.inf]


def test_each_fault_is_its_formula() -> None:
    """Tilt, nudge of either size, shift, loss, leak and rounding."""
    with np.errstate(divide="ignore"):
        root = np.sqrt(WEIGHTS)
    assert close(bank.tilted(LOG, 1.0), [shares(*row) for row in root[:2]])
    assert close(
        bank.nudged(LOG, 0.1),
        [shares(0.6, 0.2, 0, 0.2), shares(0.08, 0.6, 0.16, 0.16)],
    )
    assert close(bank.nudged(LOG, -0.1), [shares(0.4, 0.3, 0, 0.3), shares(0.12, 0.4, 0.24, 0.24)])
    # At most half of what there is moves, either way.
    assert close(bank.nudged(LOG, 3.0), [shares(0.75, 0.125, 0, 0.125), [0.05, 0.75, 0.1, 0.1]])
    assert close(bank.nudged(LOG, -3.0), [shares(0.25, 0.375, 0, 0.375), [0.15, 0.25, 0.3, 0.3]])
    with np.errstate(divide="ignore"):
        up = bank.shifted(LOG, 1)
    mixed = 0.999 * np.roll(WITHIN, 1, axis=1) + 0.001 * WITHIN
    assert close(up, mixed[:2].tolist())
    assert close(bank.lost(LOG, 1), [shares(4, 2, 0, 0.002), shares(1, 5, 2, 0.002)])
    assert close(bank.lost(LOG, 2), [shares(4, 2, 0, 0.002), shares(1, 5, 0.002, 0.002)])
    even = [[1 / 3, 1 / 3, 0, 1 / 3], [0.25] * 4]
    leaky = 0.8 * WITHIN[:2] + 0.2 * np.array(even)
    assert close(bank.leaking(LOG, 0.2), leaky.tolist())
    logits = np.array([[1.0625, -np.inf, 5.0, 0.0]])
    rounded = np.exp(np.array([1.0, -np.inf, 5.0, 0.0]))
    assert np.exp(bank.coarse(logits, 4))[0] == pytest.approx(rounded / rounded.sum(), rel=1e-12)
    kept = np.exp(np.array([1.0625, -np.inf, 5.0, 0.0]))
    assert np.exp(bank.coarse(logits, 5))[0] == pytest.approx(kept / kept.sum(), rel=1e-12)


def test_the_names_and_number_of_members() -> None:
    """They depend on V, on T and on whether there are logits."""
    names = [one.name for one in bank.members(LOG)]
    sizes = ("0.1", "0.3", "1", "3", "10", "30")
    assert names == [
        *(f"T {sign}{size} %" for size in sizes for sign in "+-"),
        *(f"most likely token {sign}{size} %" for size in ("0.1", "1") for sign in "+-"),
        "ids shifted by +1",
        "ids shifted by -1",
        "last 1 ids lost",
        "1 % uniform",
    ]
    full = [one.name for one in bank.members(LOG, LOG, 2.0)]
    assert [name for name in full if name not in names] == [
        "T ignored",
        "bf16 logits",
        "fp16 logits",
    ]
    for vocabulary, lost in ((63, {1}), (128, {1, 2}), (1024, {1, 2, 16}), (1500, {1, 2, 23})):
        flat = np.full((1, vocabulary), -math.log(vocabulary))
        told = {one.name for one in bank.members(flat) if "lost" in one.name}
        assert told == {f"last {ids} ids lost" for ids in lost}


def test_members_hold_the_ratios_of_their_faults() -> None:
    """By name; an impossible id tells nothing, and what it got goes to the others."""
    known = {one.name: one.log_ratio for one in bank.members(LOG, 2 * LOG, 2.0)}
    possible = WITHIN > 0

    def ratio(fault: Floats) -> Floats:
        kept = np.where(possible, np.exp(fault), 0.0)
        total = kept.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(possible, np.log(kept / total / WITHIN), 0.0)

    for name, fault in {
        "T +10 %": bank.tilted(LOG, 0.1),
        "T -30 %": bank.tilted(LOG, -0.3),
        "T ignored": bank.tilted(LOG, -0.5),
        "most likely token +1 %": bank.nudged(LOG, 0.01),
        "most likely token -0.1 %": bank.nudged(LOG, -0.001),
        "ids shifted by -1": bank.shifted(LOG, -1),
        "last 1 ids lost": bank.lost(LOG, 1),
        "1 % uniform": bank.leaking(LOG, 0.01),
        "bf16 logits": bank.coarse(2 * LOG, 8),
        "fp16 logits": bank.coarse(2 * LOG, 11),
    }.items():
        assert np.allclose(known[name], ratio(fault), rtol=1e-9, atol=1e-12), name


def test_a_fault_that_shares_no_id_is_left_true() -> None:
    """Its row tells nothing."""
    fault = np.array([[-np.inf, -np.inf, 0.0, -np.inf], [0.0] * 4, [0.0] * 4])
    one = bank.member("odd", fault, LOG)
    assert one.name == "odd"
    assert one.log_ratio[[0, 2]].tolist() == [[0.0] * 4] * 2
    assert one.log_ratio[1] == pytest.approx(np.log(0.25) - LOG[1], rel=1e-12)


def test_values_are_counts_times_ratios_and_their_mean_decides() -> None:
    """A mean of e-values is compared with 1 / alarm, which it may equal."""
    members = [Member("a", np.array([[1.0, 2.0]])), Member("b", np.array([[-1.0, 0.5]]))]
    assert bank.log_values(np.array([[3, 4]]), members).tolist() == [11.0, -1.0]
    logs = np.log(np.array([1.0, 2.0, 9.0]))
    assert bank.mean_log(logs) == pytest.approx(math.log(4), rel=1e-12)
    assert bank.rejects(np.array([math.log(8.0)] * 2), 0.125)
    assert not bank.rejects(np.array([math.log(7.99)] * 2), 0.125)


def test_the_never_drawn_mixture_is_a_mean_over_cells() -> None:
    """(1 - p)^-n where an id of a context did not come, n the draws of that context."""
    counts = np.array([[3, 0, 0, 2], [0, 7, 0, 0], [0, 0, 0, 0]])
    cells = [0.75**-5, 0.9**-7, 0.8**-7, 0.8**-7]
    expected = math.log(sum(cells) / 7)
    assert bank.never_drawn(LOG, counts) == pytest.approx(expected, rel=1e-12)
    assert bank.never_drawn(LOG[:1], np.array([[1, 1, 0, 1]])) == -math.inf
    with np.errstate(divide="ignore"):
        assert bank.never_drawn(np.log(np.array([[1.0, 0.0]])), np.array([[9, 0]])) == 0.0


def test_planned_draws_solve_their_equation() -> None:
    """drift n - quantile spread sqrt(n) = log(members / alarm), under the fault."""
    law = np.array([[0.5, 0.3], [0.1, 0.1]])
    ratio = np.array([[0.2, -0.1], [0.05, -0.4]])
    faulty = law * np.exp(ratio)
    faulty = faulty / faulty.sum()
    drift = float((faulty * ratio).sum())
    spread = math.sqrt(float((faulty * ratio**2).sum()) - drift**2)

    def lead(draws: int) -> float:
        quantile = float(stats.norm.isf(0.1))
        return drift * draws - quantile * spread * math.sqrt(draws) - math.log(7 / 1e-4)

    needed = bank.draws_needed(Member("one", ratio), law, 7, 1e-4, 0.1)
    assert lead(needed) >= 0 > lead(needed - 1)
    # A fault that is certain to be seen has no spread.
    sure = Member("sure", np.array([[0.5, 0.5]]))
    assert bank.draws_needed(sure, np.array([[0.5, 0.5]]), 4, 1e-3, 0.3) == math.ceil(
        math.log(4 / 1e-3) / 0.5
    )
    with pytest.raises(ValueError, match="'none' is the law itself, required: a law that differs"):
        bank.draws_needed(Member("none", 0 * ratio), law, 7, 1e-4, 0.1)


def test_the_smallest_tilt_is_where_the_best_member_just_leads() -> None:
    """The harder sign decides; the law of the contexts counts, and an impossible one does not."""
    law = WITHIN * np.array([[0.6], [0.4], [1.0]])
    known = bank.members(LOG)
    draws, alarm = 9000, 1e-6
    ratios = np.stack([one.log_ratio.ravel() for one in known])
    for keywords, miss in (({}, 0.025), ({"miss": 0.2}, 0.2)):
        found = bank.smallest_tilt(known, law, draws, 17, alarm, **keywords)
        leads = []
        for sign in (1, -1):
            with np.errstate(divide="ignore"):
                hot = WITHIN ** (1 / (1 + sign * found))
            total = hot.sum(axis=1, keepdims=True)
            hot = np.array([[0.6], [0.4], [0.0]]) * hot / np.where(total > 0, total, 1)
            mean = ratios @ hot.ravel()
            spread = np.sqrt(ratios**2 @ hot.ravel() - mean**2)
            quantile = float(stats.norm.isf(miss))
            leads.append(float((draws * mean - quantile * math.sqrt(draws) * spread).max()))
        assert min(leads) == pytest.approx(math.log(17 / alarm), rel=5e-3)
        assert max(leads) > math.log(17 / alarm)
    assert bank.smallest_tilt(known, law, 40, 17, alarm) == math.inf


@pytest.mark.parametrize(("peak", "harder"), [(0.9, 1), (0.98, -1), (0.999, -1)])
def test_the_harder_sign_of_an_error_decides(peak: float, harder: int) -> None:
    """At the stated error one sign just leads, the other does so clearly."""
    law = np.array([[peak, (1 - peak) / 2, (1 - peak) / 2]])
    known = bank.members(np.log(law))
    found = bank.smallest_tilt(known, law, 20_000, 17, 1e-6)
    ratios = np.stack([one.log_ratio.ravel() for one in known])
    leads = {}
    for sign in (1, -1):
        hot = (law ** (1 / (1 + sign * found))).ravel()
        hot = hot / hot.sum()
        mean = ratios @ hot
        spread = np.sqrt(ratios**2 @ hot - mean**2)
        scores = 20_000 * mean - float(stats.norm.isf(0.025)) * math.sqrt(20_000) * spread
        leads[sign] = float(scores.max()) - math.log(17 / 1e-6)
    assert leads[harder] == pytest.approx(0.0, abs=5e-3)
    assert leads[-harder] > 1
