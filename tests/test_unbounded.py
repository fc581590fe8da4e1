"""Counted noise whose uniform has no upper bound: how it is drawn, and what decides."""

import pytest
import torch

from oracle.judge import coupling
from oracle.judge.margin import ARITHMETIC
from oracle.reference import noise

from .test_coupling import a_block


def test_noise_without_a_bound_decides_by_rule() -> None:
    """An infinite E loses to every other id; where all are infinite, the lowest id wins."""
    made, given, outputs, e = a_block()
    row, step = 0, outputs["tokens"].shape[1] - 1
    vocabulary = made["vocabulary"]
    endless = e.clone()
    endless[row, step] = torch.inf
    winner = int(outputs["tokens"][row, step])
    endless[row, step, winner] = 1.0
    arithmetic = ARITHMETIC["torch-cpu"]
    assert coupling.couple(made, given, outputs, endless, arithmetic).illegal == 0
    tokens = outputs["tokens"].clone()
    tokens[row, step] = (winner + 1) % vocabulary
    kept = {name: value for name, value in outputs.items() if name == "step_logits"}
    spoilt = coupling.couple(made, given, kept | {"tokens": tokens}, endless, arithmetic)
    assert spoilt.illegal == 1
    endless[row, step] = torch.inf
    tokens[row, step] = 0
    equal = coupling.couple(made, given, kept | {"tokens": tokens}, endless, arithmetic)
    assert equal.illegal == 0


@pytest.mark.parametrize("dialect", ["counter", "counter-unbounded"])
def test_counted_noise_is_drawn_by_the_law_of_its_state(dialect: str) -> None:
    """Each name of a state has its own uniform of a word."""
    state = {"dialect": dialect, "seed_key": 5, "block": 3}
    event = {"rows": 2, "before": {"noise": state}}
    made = {"drafts": 2, "vocabulary": 4}
    law = {"counter": noise.uniform, "counter-unbounded": noise.unbounded_uniform}[dialect]
    drawn = coupling.block_noise(made, event)
    assert torch.equal(drawn, noise.counter_noise(2, 2, 4, 3, 5, law=law))
