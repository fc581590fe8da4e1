"""One block against the reference: which tokens are wrong, by how much, and what is said of it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from oracle.judge import coupling
from oracle.judge.coupling import Mismatch, Race
from oracle.judge.margin import ARITHMETIC, UNIT, Arithmetic, key_bounds
from oracle.judge.redraw import race_noise
from oracle.judge.walk import Walk, walk
from oracle.reference import choice, draft, logits, noise

from .settings import B, K, V, inputs, setting

EXACT = Arithmetic(1.0, 2.0, 3.0, 4.0)


def sampled(tokens: list[int]) -> Race:
    """Five positions of one race over four ids: keys 3, 1, 1 - 2^-20 and none."""
    rows = len(tokens)
    keys = np.array([3.0, 1.0, 1 - 2.0**-20, -np.inf])
    log_noise = np.array([0.5, -1.0, 0.25, 0.0])
    return Race(
        scaled=np.tile(keys + log_noise, (rows, 1)),
        inherited=np.tile([0.0, 0.0, 1e-3, 0.5], (rows, 1)),
        log_noise=np.tile(log_noise, (rows, 1)),
        tokens=np.array(tokens),
        places=np.array([[7 + i, 2 * i] for i in range(rows)]),
    )


def test_the_winner_of_a_race_is_right_and_others_are_named() -> None:
    """Five positions, four of them wrong: all are counted, three are described."""
    race = sampled([0, 1, 2, 3, 1])
    found, wrong, gaps, windows, laws = coupling.compare_sampled(race, "counter", EXACT)
    assert wrong == 4
    down, up = key_bounds(race.scaled[:1, :3], race.log_noise[:1, :3], "counter", EXACT)
    assert found == [
        Mismatch("token", 8, 2, 1, 0, 2.0, float(down[0, 0] + up[0, 1])),
        Mismatch("token", 9, 4, 2, 0, 2 + 2.0**-20, float(down[0, 0] + up[0, 2] + 1e-3)),
        Mismatch("token", 10, 6, 3, 0, math.inf, float(down[0, 0])),
    ]
    assert gaps == pytest.approx([2.0] * 5, rel=1e-15)
    assert windows == pytest.approx([float(down[0, 0] + up[0, 1])] * 5, rel=1e-15)
    weights = np.exp(race.scaled[0])
    assert np.allclose(laws, weights / weights.sum(), rtol=1e-14)
    assert race.log_noise[0].tolist() == [0.5, -1.0, 0.25, 0.0]


def test_a_key_that_rounding_may_lift_is_no_fault() -> None:
    """The id that is 2^-20 behind wins where its inherited bound covers that, and not else."""
    race = sampled([2])
    scaled = race.scaled.copy()
    scaled[:, 0] = -np.inf
    near = replace(race, scaled=scaled)
    assert coupling.compare_sampled(near, "counter", EXACT)[:2] == ([], 0)
    bare = replace(near, inherited=np.zeros((1, 4)))
    (told,), wrong, *_ = coupling.compare_sampled(bare, "counter", EXACT)
    assert (wrong, told.observed, told.required, told.gap) == (1, 2, 1, 2.0**-20)
    # At the bound itself rounding still explains it.
    short = 2.0**-20 - told.window
    edge = replace(near, inherited=np.array([[0.0, 0.0, short, 0.0]]))
    assert coupling.compare_sampled(edge, "counter", EXACT)[1] == 0


@pytest.mark.parametrize("dialect", ["counter", "race"])
def test_bounds_are_those_of_the_columns_asked_for(dialect: str) -> None:
    """Columns of a race have the bounds of the whole; an impossible id has none."""
    race = sampled([0, 0])
    columns = np.array([[2, 3], [0, 1]])
    found = coupling.bounds_at(race, columns, dialect, EXACT)
    with np.errstate(invalid="ignore"):
        whole = key_bounds(race.scaled, race.log_noise, dialect, EXACT)
    for bound, every in zip(found, whole, strict=True):
        assert bound[0].tolist() == [every[0, 2] + 1e-3, 0.0]
        assert bound[1].tolist() == [every[1, 0], every[1, 1]]


def test_greedy_positions_take_the_lowest_id_of_the_largest() -> None:
    """Ties, a bound that covers a gap and one that does not, and positions that are not greedy."""
    values = np.array([[[1.0, 3.0, 3.0], [1.0, 3.0, 2.5], [1.0, 3.0, 2.5], [0.0, 1.0, 2.0]]])
    bound = np.zeros((1, 4, 3))
    bound[0, 1] = [9.0, 0.25, 0.25]
    bound[0, 2] = [9.0, 0.25, 0.125]
    chosen = np.array([[True, True, True, False]])
    judged = coupling.compare_greedy(values, bound, np.array([[1, 2, 1, 0]]), chosen)
    assert judged == ([], 0)
    found, wrong = coupling.compare_greedy(values, bound, np.array([[2, 0, 2, 0]]), chosen)
    # An equal value of a higher id is wrong where nothing is rounded.
    assert found == [
        Mismatch("token", 0, 0, 2, 1, 0.0, 0.0),
        Mismatch("token", 0, 2, 2, 1, 0.5, 0.375),
    ]
    assert wrong == 2
    assert coupling.compare_greedy(values, bound, np.array([[2, 2, 2, 2]]), ~chosen) == ([], 0)
    nobody = np.zeros((1, 4), dtype=bool)
    assert coupling.compare_greedy(values, bound, np.array([[0, 0, 0, 0]]), nobody) == ([], 0)
    many = np.tile(values[:, :1], (5, 1, 1))
    found, wrong = coupling.compare_greedy(
        many, np.zeros_like(many), np.zeros((5, 1), dtype=np.int64), np.ones((5, 1), dtype=bool)
    )
    assert ([one.row for one in found], wrong) == ([0, 1, 2], 5)
    assert found[2] == Mismatch("token", 2, 0, 0, 1, 2.0, 0.0)


def test_a_mismatch_says_observed_and_required() -> None:
    """The gap of a token is told where it is a number; a kept logit has none."""
    one = Mismatch("token", 3, 1, 5.0, 2.0, 0.1234567, 1e-5)
    text = "token of row 3, step 1: observed 5, required 2"
    assert one.sentence() == f"{text}; its key is 0.123 behind, rounding explains 1e-05"
    assert replace(one, gap=math.inf).sentence() == text
    kept = replace(one, what="kept step logit 4").sentence()
    assert kept == "kept step logit 4 of row 3, step 1: observed 5, required 2"


def a_block(dialect: str = "counter", **more: Any) -> tuple[Any, ...]:
    """Setting, inputs, outputs and noise of an honest block; its second row is greedy."""
    made = setting("cpu", "vanilla", dialect, **more)
    given = inputs(made) | {"temperature": torch.tensor([0.5, 0.0, 2.0])}
    e = noise.counter_noise(B, K, V, 4, 9)
    base = logits.base_logits(logits.draft_rows(given["hidden"], K), made["head"], V)
    heat = given["temperature"]
    tokens, kept, flags = draft.markov_block(
        base,
        given["anchor"],
        draft.vanilla(made["w1"], made["w2"]),
        choice.clamped(heat),
        choice.is_greedy(heat, given["top_k"]),
        e,
        dialect,
        torch.float32,
    )
    return made, given, {"tokens": tokens, "step_logits": kept.float(), "flags": flags}, e


@pytest.mark.parametrize("dialect", ["counter", "race"])
@pytest.mark.parametrize("shown", [True, False])
def test_an_honest_block_has_nothing_to_tell(dialect: str, *, shown: bool) -> None:
    """Tokens are counted by kind; gaps, windows and laws are those of the sampled rows."""
    made, given, outputs, e = a_block(dialect)
    kept = outputs["step_logits"].double()
    if not shown:
        del outputs["step_logits"]
    found = coupling.couple(made, given, outputs, e, ARITHMETIC["torch-cpu"])
    assert (found.mismatches, found.illegal, found.sampled, found.greedy) == ((), 0, 2 * K, K)
    heat = torch.tensor([0.5, 2.0])[:, None, None].double()
    scaled = kept[[0, 2]] / heat
    keys = (scaled - e[[0, 2]].log()).reshape(2 * K, V)
    top = keys.topk(2, dim=-1).values
    assert found.gaps == pytest.approx((top[:, 0] - top[:, 1]).tolist(), rel=1e-9)
    assert np.allclose(found.laws, torch.softmax(scaled, -1).reshape(2 * K, V), rtol=1e-9)
    down, up = key_bounds(
        scaled.reshape(2 * K, V).numpy(),
        e[[0, 2]].log().reshape(2 * K, V).numpy(),
        dialect,
        ARITHMETIC["torch-cpu"],
    )
    own = np.zeros((2 * K, V)) if shown else walk(made, given, outputs).bound[[0, 2]] / heat.numpy()
    places = keys.topk(2, dim=-1).indices.numpy()
    every, own = np.arange(2 * K), own.reshape(2 * K, V)
    window = (down + own)[every, places[:, 0]] + (up + own)[every, places[:, 1]]
    assert found.windows == pytest.approx(window, rel=1e-6)
    # What the subject kept has no bound of its own; the reference has that of its products.
    assert (found.windows < 100 * UNIT).all() == shown
    without = coupling.couple(made, given, outputs, None, ARITHMETIC["torch-cpu"])
    assert (without.mismatches, without.illegal) == ((), 0)
    assert (without.sampled, without.greedy) == (0, K)
    assert (without.gaps.shape, without.windows.shape) == ((0,), (0,))
    assert without.laws.shape == (0, V)


def test_wrong_tokens_of_both_kinds_are_counted_and_told() -> None:
    """A greedy and a sampled token that nothing explains."""
    made, given, outputs, e = a_block()
    tokens = outputs["tokens"]
    last = torch.full((B,), K - 1)
    wrong = (tokens[torch.arange(B), last] + 1) % V
    spoilt = tokens.clone()
    spoilt[:2, K - 1] = wrong[:2]
    found = coupling.couple(made, given, outputs | {"tokens": spoilt}, e, ARITHMETIC["torch-cpu"])
    assert found.illegal == 2
    assert [
        (one.what, one.row, one.step, one.observed, one.required) for one in found.mismatches
    ] == [
        ("token", 1, K - 1, int(wrong[1]), int(tokens[1, K - 1])),
        ("token", 0, K - 1, int(wrong[0]), int(tokens[0, K - 1])),
    ]
    silent = coupling.couple(
        made, given, outputs | {"tokens": spoilt}, None, ARITHMETIC["torch-cpu"]
    )
    assert silent.illegal == 1


def test_kept_logits_are_compared_and_then_decide() -> None:
    """One that is off is told; a token that its own logits explain is no second fault."""
    made, given, outputs, e = a_block()
    kept = outputs["step_logits"].clone()
    required = float(kept[1, K - 1, 5])
    kept[1, K - 1, 5] = 99.0
    tokens = outputs["tokens"].clone()
    tokens[1, K - 1] = 5
    spoilt = outputs | {"step_logits": kept, "tokens": tokens}
    for e_shown in (e, None):
        found = coupling.couple(made, given, spoilt, e_shown, ARITHMETIC["torch-cpu"])
        assert found.illegal == 1
        (one,) = found.mismatches
        assert (one.what, one.row, one.step) == ("kept step logit 5", 1, K - 1)
        assert (one.observed, one.required) == (99.0, required)
        assert one.gap == pytest.approx(99 - required)
        assert 0 <= one.window < 1
    every = outputs | {"step_logits": outputs["step_logits"] + 50}
    found = coupling.couple(made, given, every, None, ARITHMETIC["torch-cpu"])
    assert (len(found.mismatches), found.illegal) == (3, B * K * V)


def test_an_undrawable_row_is_judged_as_a_greedy_one() -> None:
    """Kept logits with a NaN: the first NaN is the token, whatever the noise."""
    made, given, outputs, e = a_block()
    base = {**made, "head": made["head"].clone()}
    base["head"][6] = torch.nan
    kept = outputs["step_logits"].clone()
    kept[..., 6] = torch.nan
    tokens = torch.full_like(outputs["tokens"], 6)
    # The bias after a token is that of the token, so later steps are walked anew.
    walked = draft.walked_logits(
        logits.base_logits(given["hidden"], base["head"], V),
        given["anchor"],
        tokens,
        draft.vanilla(made["w1"], made["w2"]),
        torch.float32,
    )
    judged = {"tokens": tokens, "step_logits": walked.float()}
    found = coupling.couple(base, given, judged, e, ARITHMETIC["torch-cpu"])
    assert (found.mismatches, found.illegal, found.sampled, found.greedy) == ((), 0, 0, B * K)


def event(noise_before: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A replay of three rows in the bucket of four."""
    state = {"noise": noise_before}
    after = {"noise": {"generator": more.pop("generator", None)}, "path": {"bucket": 4}}
    return {"verb": "replay", "rows": B, "before": state, "after": after, **more}


def test_the_noise_of_an_event_is_found_where_it_is_shown() -> None:
    """Counter words, noise that was drawn again, a generator's state, or nothing."""
    made = setting("cpu", "vanilla")
    counter = event({"dialect": "counter", "block": 4, "seed_key": 9})
    assert torch.equal(coupling.block_noise(made, counter), noise.counter_noise(B, K, V, 4, 9))
    assert coupling.counter_of(counter) == ", block counter 4"
    source = torch.Generator().manual_seed(3)
    start = source.get_state()
    drawn, end = race_noise(start, "cpu", 4, K, V)
    race = event({"dialect": "race", "generator": start}, generator=end)
    found = coupling.block_noise(made, race)
    assert found.dtype == torch.float64
    assert torch.equal(found, drawn[:B].double())
    assert coupling.counter_of(race) == ""
    untold = event({"dialect": "race", "generator": start}, generator=end)
    untold["after"]["path"] = {}
    assert torch.equal(coupling.block_noise(made, untold), drawn[:B].double())
    again = coupling.block_noise(made, event({"dialect": "race"}, redrawn=drawn))
    assert again.dtype == torch.float64
    assert torch.equal(again, drawn.double())
    assert coupling.block_noise(made, event({})) is None
    assert coupling.block_noise(made, event({"dialect": "other"})) is None
    if not torch.cuda.is_available():
        assert coupling.block_noise({**made, "device": "cuda"}, race) is None


def test_all_positions_are_picked_without_a_copy() -> None:
    """[B, K, V] flattened to [n, V]; some of them are copied out."""
    values = np.arange(24.0).reshape(2, 3, 4)
    every = np.ones((2, 3), dtype=bool)
    whole = coupling.picked(values, every)
    assert np.array_equal(whole, values.reshape(6, 4))
    assert np.shares_memory(whole, values)
    every[0, 1] = False
    assert np.array_equal(coupling.picked(values, every), values.reshape(6, 4)[[0, 2, 3, 4, 5]])


def test_infinite_and_missing_values_are_compared_as_they_are() -> None:
    """Equal infinities agree, a NaN agrees with a NaN alone, and a bound includes its end."""
    logits_ = np.array([[[np.inf, np.nan, 1.0, 1.0, -np.inf]]])
    bound = np.full((1, 1, 5), 0.25)
    walked = Walk(logits_, logits_, bound, torch.ones(1), torch.ones(1, dtype=torch.bool))
    kept = np.array([[[np.inf, np.nan, 1.25, np.nan, -np.inf]]])
    wrong, found = coupling.kept_mismatches(kept, walked)
    assert wrong[0, 0].tolist() == [False, False, False, True, False]
    assert [one.what for one in found] == ["kept step logit 3"]
    ties = np.array([[[np.inf, np.inf]]])
    chosen = np.ones((1, 1), dtype=bool)
    judged = coupling.compare_greedy(ties, np.zeros((1, 1, 2)), np.array([[1]]), chosen)
    assert judged[1] == 1
