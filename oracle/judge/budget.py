"""One alarm probability a run, spent by name."""

from dataclasses import dataclass, field

ALPHA = 1e-6
# The levels of chi-square are fixed by its calibrated range; below this they outgrow their lines.
ALPHA_MIN = 5e-7
# Shares of the run's alarm probability. What is not listed is not for sale.
SHARES = {
    "near ties": 0.01,
    "freshness": 0.01,
    "noise law": 0.10,
    "independence": 0.10,
    "draw law": 0.05,
    "exact law": 0.20,
    "block law": 0.15,
    "claimed law": 0.04,
    "losslessness": 0.21,
    "hypothesis": 0.10,
}


class OverspentError(RuntimeError):
    """A check asked for more alarm probability than its line still has."""


@dataclass
class Ledger:
    """The alarm probability of one run and who took it.

    alpha: probability that a correct sampler is reported as violated by any statistical check.
    """

    alpha: float = ALPHA
    spent: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an alpha that is no probability, and shares that promise more than all of it."""
        if not 0.0 < self.alpha < 1.0:
            raise ValueError(f"alpha is {self.alpha}, required: between 0 and 1, both excluded")
        if sum(SHARES.values()) > 1.0:
            raise OverspentError(f"shares add up to {sum(SHARES.values())}, required: at most 1")

    def take(self, line: str, probability: float) -> float:
        """Spend `probability` on `line`, an entry of SHARES, and return it.

        Raises OverspentError when the line would exceed its share, KeyError for an unknown line.
        """
        if line not in SHARES:
            raise KeyError(f"no ledger line {line!r}, required: one of {sorted(SHARES)}")
        total = self.spent.get(line, 0.0) + probability
        limit = SHARES[line] * self.alpha
        if total > limit * (1 + 1e-9):
            raise OverspentError(
                f"line {line!r} would spend {total:.3g}, required: at most {limit:.3g}"
            )
        self.spent[line] = total
        return probability

    def total(self) -> float:
        """What has been spent so far, over all lines."""
        return sum(self.spent.values())
