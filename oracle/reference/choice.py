"""Step logits, temperature and noise to one token a row."""

import torch

from .logits import rounded

TEMPERATURE_MIN = 1e-5
GREEDY_BELOW = 1e-6
SOUND, HAS_NAN, EMPTY = 0, 1, 2


def is_greedy(temperature: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """A request is greedy when top_k <= 1 or its temperature lies below 1e-6: [B] bool."""
    return (top_k <= 1) | (temperature.to(torch.float32) < GREEDY_BELOW)


def clamped(temperature: torch.Tensor) -> torch.Tensor:
    """The one temperature of draft, claimed law and target law: max(T, 1e-5) in float32.

    temperature [B]. Returns [B] float64. Negative, NaN or infinite values are a ValueError.
    """
    bad = ~(temperature.isfinite() & (temperature >= 0))
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        seen = float(temperature[row])
        raise ValueError(f"temperature of row {row} is {seen}, required: finite and >= 0")
    return temperature.to(torch.float32).clamp(min=TEMPERATURE_MIN).to(torch.float64)


def step_logits(base: torch.Tensor, bias: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """base + bias in float32, rounded once to the step dtype (P2).

    base, bias [B, V] float64 holding low-precision values. Returns [B, V] float64.
    """
    return rounded(base + bias, dtype)


def flags(logits: torch.Tensor) -> torch.Tensor:
    """Per row: 1 when a logit is NaN, 2 when none is above -inf, else 0: [B] uint8."""
    has_nan = logits.isnan().any(-1)
    empty = (logits == -torch.inf).all(-1)
    return torch.where(has_nan, HAS_NAN, torch.where(empty, EMPTY, SOUND)).to(torch.uint8)


def winner(keys: torch.Tensor) -> torch.Tensor:
    """The largest key wins, the lowest id on a tie; a NaN beats all, the first NaN wins.

    keys [..., V] float64. Returns [...] int64.
    """
    vocabulary = keys.shape[-1]
    nan = keys.isnan()
    largest = keys == keys.amax(-1, keepdim=True)
    best = torch.where(nan.any(-1, keepdim=True), nan, largest)
    ids = torch.arange(vocabulary)
    return torch.where(best, ids, vocabulary).amin(-1)


def law(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Claimed law q = softmax(l / T) from the P2 values and the clamped temperature (P4)."""
    return torch.softmax(logits / temperature.unsqueeze(-1), dim=-1)


def keys(
    logits: torch.Tensor, temperature: torch.Tensor, noise: torch.Tensor, dialect: str
) -> torch.Tensor:
    """What tokens compete with: race p / E, counter l / T - log E.

    logits [..., V] float64 (P2 values); temperature [...] float64; noise [..., V] float64, E > 0;
    dialect 'race' or 'counter'. Returns [..., V] float64.
    """
    if dialect == "race":
        return law(logits, temperature) / noise
    if dialect == "counter":
        return logits / temperature.unsqueeze(-1) - torch.log(noise)
    raise ValueError(f"dialect is {dialect!r}, required: 'race' or 'counter'")


def token(
    logits: torch.Tensor,
    temperature: torch.Tensor,
    greedy: torch.Tensor,
    noise: torch.Tensor,
    dialect: str,
) -> torch.Tensor:
    """One token a row; greedy rows and rows without a finite maximum take the argmax.

    logits [B, V], temperature [B], noise [B, V] float64; greedy [B] bool. Returns [B] int64.
    """
    drawn = winner(keys(logits, temperature, noise, dialect))
    largest = winner(logits)
    undrawable = ~logits.amax(-1).isfinite()
    return torch.where(greedy | undrawable, largest, drawn)
