"""The checks of decoding on a tiny model: healthy runs hold, each planted fault is named."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from impl.assembly import Parts
from oracle.judge import betting, reading
from oracle.judge import history as histories
from oracle.judge.acceptance_figure import draw, shares
from oracle.judge.answer import judge_again
from oracle.judge.budget import Ledger
from oracle.judge.decode_trial import history_of, tokens_a_step, verdicts
from oracle.judge.decoding import Watched, watch
from oracle.judge.history import History
from oracle.judge.reading import Model
from oracle.judge.verdict import Outcome, Verdict

from .decoding_faults import FAULTS
from .decoding_rig import Tiny, factory, plainly, requests, setting, states_of

HEATS = (0.0, 1.0, 0.0, 0.7)
HELD = {"decode_gates", "decode_identity", "decode_accept", "decode_drafts", "decode_law"}


def mixed(count: int = 16) -> list[dict[str, Any]]:
    """Greedy and sampled requests, some of them with top-k and top-p."""
    return requests(
        count,
        temperature=lambda number: HEATS[number % 4],
        top_k=lambda number: 5 if number % 8 == 1 else 2**30,
        top_p=lambda number: 0.8 if number % 8 == 3 else 1.0,
    )


def run_of(asked: Sequence[Mapping[str, Any]], parts: Parts, **changes: Any) -> History:
    """Decode on a tiny model and read what came of it."""
    network = Tiny()
    given = setting(network, **changes)
    run = watch(factory(given, parts=parts), asked)
    model = Model(lambda text: states_of(network, text), network.head)
    greedy = [n for n, one in enumerate(asked) if one["temperature"] == 0]
    plain = {n: plainly(Tiny(), asked[n]) for n in greedy}
    return history_of(run, model, "tiny", {**given, "device": "cpu"}, plain, {})


def judged(history: History) -> dict[str, Verdict]:
    """Every verdict by the name of its check."""
    return {result.check: result.verdict for result in verdicts(history, Ledger())}


@cache
def healthy() -> History:
    """One healthy run, shared."""
    return run_of(mixed(), Parts())


def test_healthy_decoder_holds_everywhere() -> None:
    """Every check applies to a mixed run, and holds with its smallest effect."""
    found = judged(healthy())
    assert {name for name, each in found.items() if each.outcome is Outcome.HOLDS} == HELD
    assert "8 of 8 texts identical to plain decoding" in found["decode_identity"].reason
    assert all(each.effect for each in found.values())


def test_stored_run_is_judged_alike_without_the_model(tmp_path: Path) -> None:
    """Each history goes to a file and back, and gives the verdict that is stored in it."""
    for result in verdicts(healthy(), Ledger()):
        histories.save(result.history, tmp_path / result.check)
        loaded = histories.load(tmp_path / f"{result.check}.json")
        assert loaded.verdict["reason"] == result.verdict.reason
        assert judge_again(loaded, Ledger(loaded.alpha)) == result.verdict


def test_bonus_from_the_row_before_is_named() -> None:
    """Greedy text is no longer the model's, and the final draws are not where their coins say."""
    found = judged(run_of(mixed(), FAULTS["early bonus"].parts()))
    for name in FAULTS["early bonus"].killers:
        assert found[name].outcome is Outcome.VIOLATED
    assert "below the model's best logit" in found["decode_identity"].reason
    assert found["decode_gates"].outcome is Outcome.HOLDS


def test_temperature_of_the_row_before_is_named() -> None:
    """Drafts at another temperature are accepted at another rate, though every coin is obeyed."""
    asked = requests(20, length=16, temperature=lambda number: 3.0 if number < 4 else 0.25)
    found = judged(run_of(asked, FAULTS["late heat"].parts()))
    assert found["decode_drafts"].outcome is Outcome.VIOLATED
    assert found["decode_accept"].outcome is Outcome.HOLDS


def test_text_at_another_temperature_is_named() -> None:
    """A text at twice the temperature is told, with the step in which the bet was won."""
    told = requests(24, length=20, temperature=0.75)
    network = Tiny()

    class Hot:
        """Decodes at twice the temperature it was asked for."""

        def __init__(self) -> None:
            self.inside = factory(setting(network))

        def submit(self, request: Mapping[str, Any]) -> int:
            return self.inside.submit({**request, "temperature": 2 * request["temperature"]})

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inside, name)

    run = watch(Hot(), told)
    model = Model(lambda text: states_of(network, text), network.head)
    given = {**setting(network), "device": "cpu"}
    found = judged(history_of(run, model, "hot", given, {}, {}))["decode_law"]
    assert found.outcome is Outcome.VIOLATED
    assert found.evidence["tokens"] < 400


def test_path_that_is_misreported_is_named() -> None:
    """A block that ran eagerly and says it was replayed is refused by the table."""
    history = run_of(mixed(4), Parts(), engine="eager")
    assert judged(history)["decode_gates"].outcome is Outcome.HOLDS
    history.events[0]["steps"][2]["folded"] = True
    found = judged(history)["decode_gates"]
    assert "block of step 3: observed (True, 'no sampler'), required (False" in found.reason


def test_tokens_a_step_is_a_ratio_with_its_interval() -> None:
    """Two requests of 3 and 1 tokens in 2 rows each: one token a row, and the spread of both."""
    places = {
        "request": torch.tensor([0, 0, 0, 1, 1]),
        "step": torch.tensor([0, 0, 1, 0, 1]),
    }
    mean, half = tokens_a_step(Watched([], [[], []], places))
    assert mean == pytest.approx(5 / 4)
    assert half == pytest.approx(1.96 * (2 * 2 * 0.5**2) ** 0.5 / 4)


def test_figure_shows_each_position(tmp_path: Path) -> None:
    """One bar a position, as high as the share of accepted drafts; a line through the overlaps."""
    found = shares(healthy().events[0]["places"])
    assert len(found) == 3
    assert [one.reached for one in found] == sorted((one.reached for one in found), reverse=True)
    assert all(abs(one.accepted - one.expected) < 3 * one.half for one in found)
    path = tmp_path / "figure.svg"
    assert draw(healthy().events[0]["places"], "T < 1", path) == f"figure: {path}"
    bars = re.findall(r'<rect x="[^>]*height="([\d.]+)"', path.read_text())
    heights = [float(bar) / 170 for bar in bars]
    assert heights == pytest.approx([one.accepted for one in found], abs=1e-3)
    assert len(path.read_text()) < 60_000


def test_bet_is_followed_in_time() -> None:
    """The crossing is the first, and stays one when the e-value falls again."""
    up, down = np.full((10, 1), 1.0), np.full((10, 1), -1.0)
    seen = betting.course(np.concatenate([up, down]), ("only",), alarm=np.exp(-4.5))
    assert (seen.crossed, seen.at) == (4, 9)
    assert seen.highest == pytest.approx(10.0)
    assert betting.course(down, ("only",), 0.1).crossed == -1


def test_smallest_tilt_is_found_when_drawn() -> None:
    """A law tilted by the stated effect wins its bet in nearly all of many runs."""
    alarm, tokens, source = 1e-4, 3000, np.random.default_rng(3)
    law = np.array([0.5, 0.25, 0.15, 0.1])
    log_law = np.log(law)
    variance = float((law * log_law**2).sum() - (law * log_law).sum() ** 2)
    members = len(reading.TILTS)
    error = betting.smallest_tilt(tokens * variance, reading.TILTS, members, alarm)
    faulty = law ** (1 / (1 + error))
    drawn = source.choice(4, size=(60, tokens), p=faulty / faulty.sum())
    columns = []
    for tilt in reading.TILTS:
        other = law ** (1 / (1 + tilt))
        columns.append(np.log(other / other.sum()) - log_law)
    ratio = np.stack(columns, 1)
    won = [betting.course(ratio[each], ("",) * members, alarm).crossed >= 0 for each in drawn]
    assert 0.9 <= np.mean(won) <= 1.0
    assert 0.05 < error < 0.3
