"""Planned draws are those that find the effect, no more and no fewer."""

import numpy as np
import pytest

from oracle.judge import bank, planning, scan, significance
from oracle.judge.significance import STAGES

SKEWED = np.array([0.30, 0.20, 0.15, 0.12, 0.10, 0.07, 0.04, 0.02])
WIDE = np.exp(1.5 * np.random.default_rng(3).standard_normal(128))
WIDE /= WIDE.sum()


@pytest.mark.parametrize("law", [SKEWED, WIDE], ids=["V8", "V128"])
@pytest.mark.parametrize("tilt", [0.01, -0.05])
def test_the_share_of_changed_draws_is_that_of_a_simulated_race(
    law: np.ndarray, tilt: float
) -> None:
    """Two laws on common exponentials; the tolerance is five standard errors."""
    other, races = planning.tilted(law, tilt), 200_000
    e = np.random.default_rng(1).exponential(size=(races, len(law)))
    differ = ((law / e).argmax(1) != (other / e).argmax(1)).mean()
    rate = planning.changed(law, other)
    assert abs(differ - rate) <= 5 * np.sqrt(rate / races)


def test_changed_agrees_with_the_double_sum() -> None:
    """The sorted form and the formula as it stands, zeros included."""
    p, q = planning.without(WIDE, 0.01), planning.tilted(WIDE, 0.2)
    total = sum(
        1.0 / np.maximum(p / p[i], q / q[i]).sum() for i in range(len(p)) if p[i] > 0 and q[i] > 0
    )
    assert planning.changed(p, q) == pytest.approx(1 - total, rel=1e-9)
    assert planning.changed(q, p) == pytest.approx(1 - total, rel=1e-9)
    assert planning.changed(p, p) == pytest.approx(0.0, abs=1e-12)


def test_the_published_draws_of_the_coupled_oracle() -> None:
    """T + 1 % at V = 8 is seen after about 1,400 draws with probability 99 %."""
    draws = planning.coupled_draws(SKEWED, planning.tilted(SKEWED, 0.01), 0.01)
    assert draws == pytest.approx(1427, rel=0.15)


@pytest.mark.parametrize("tilt", [0.02, 0.05])
def test_planned_chi_square_draws_have_the_planned_power(tilt: float) -> None:
    """300 pairs of stages at the planned n: both reject in 95 % of them, 3 sigma below is 272."""
    other = planning.tilted(WIDE, tilt)
    draws = planning.chi_square_draws(WIDE, other, 0.05)
    stages = ((draws, STAGES[0]), (int(np.ceil(draws * planning.CONFIRMATION)), STAGES[1]))
    source = np.random.default_rng(7)
    found = sum(
        all(
            significance.fit(
                significance.pool(WIDE, n), source.multinomial(n, other).astype(np.int64), level
            ).rejects
            for n, level in stages
        )
        for _ in range(300)
    )
    assert found >= 272
    fewer = planning.chi_square_draws(WIDE, planning.tilted(WIDE, 2 * tilt), 0.05)
    assert fewer < draws / 3


def test_planned_pairs_show_the_share() -> None:
    """Pairs at uniform V = 512: the planned number sees the share, nine tenths of it do not."""
    draws = planning.pair_draws(1 / 512, 0.01, 3e-9, 0.05)
    assert significance.pairs_seen(draws, 1 / 512, 3e-9, 0.05) <= 0.01
    assert significance.pairs_seen(int(0.9 * draws), 1 / 512, 3e-9, 0.05) > 0.01


@pytest.mark.parametrize("tilt", [0.02, -0.02])
def test_planned_bank_draws_have_the_planned_power(tilt: float) -> None:
    """200 runs at the planned n and 95 %: 180 found; half the error is found in far fewer."""
    draws = planning.bank_draws(WIDE, tilt, 1e-8, 0.05)
    members = bank.members(np.log(WIDE)[None])
    source = np.random.default_rng(13)

    def found(size: float) -> int:
        other = planning.tilted(WIDE, size)
        return sum(
            bank.rejects(
                bank.log_values(source.multinomial(draws, other).astype(np.int64)[None], members),
                1e-8,
            )
            for _ in range(200)
        )

    assert found(tilt) >= 180
    assert found(tilt / 2) <= 100


def test_a_lost_interval_is_seen_after_the_planned_draws() -> None:
    """The scan's own statement of its smallest mass, turned round."""
    draws = planning.scan_draws(WIDE, 2e-3, 1e-9, 0.05)
    assert scan.smallest_mass(WIDE, draws, 1e-9, 0.05) <= 2e-3
    assert scan.smallest_mass(WIDE, int(0.9 * draws), 1e-9, 0.05) > 2e-3


def test_what_cannot_be_seen_is_said() -> None:
    """Equal laws need more draws than anyone has; a mass that does not fit is refused."""
    assert planning.coupled_draws(SKEWED, SKEWED, 0.01) == planning.DRAWS_MAX
    with pytest.raises(ValueError, match="required: a sum between 0 and 1"):
        planning.raised(SKEWED, 0.8)
