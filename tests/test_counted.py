"""Draws that a sampler counts itself: exact, believed once made again, and judged as others."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from impl.stages import Stages
from impl.subject import factory as folded
from oracle.judge.budget import Ledger
from oracle.judge.checks import draft_law, wide
from oracle.judge.context import PROFILES, as_inputs, constant, query_rows
from oracle.judge.counting import counted, tabulated
from oracle.judge.fields import MalformedError
from oracle.judge.history import History
from oracle.judge.protocol import COUNTED
from oracle.judge.script import Count
from oracle.judge.trial import Trial
from oracle.judge.verdict import Outcome, Verdict

from .judging import FOLDED, SMALL, context, probed
from .nights import ONLY, run
from .zoo.capture import frozen_noise
from .zoo.specimen import Modest, Wrapped

COUNTER, RACE = ("dspark", "counter"), ("dspark", "race")
ROWS = 256  # so few draws that a call is two replays of as many rows
FEW = replace(SMALL, counted=(1, 1), rows_max=ROWS, tilt=0.2)
WIDE, DRAFTS, EVERY_ID = 5, 3, 2**30


def loaded(combination: tuple[str, str], engine: str, rows: int) -> tuple[Any, Any, Any]:
    """Our sampler with a batch, the setting, and the anchors on the device."""
    base = context(combination, engine=engine)
    material = base.workload.material(3, WIDE, torch.float32)
    setting = base.setting(material, drafts=DRAFTS, buckets=(8, 64))
    hidden, anchor = base.workload.rows(3, material, rows, query_rows(setting))
    inputs = as_inputs(setting, hidden, anchor, *constant(rows, 1.3, EVERY_ID))
    placed = {name: tensor.to(base.device) for name, tensor in inputs.items()}
    moved = {n: v.to(base.device) for n, v in setting.items() if isinstance(v, torch.Tensor)}
    subject = FOLDED({**setting, **moved})
    subject.load(placed)
    return subject, setting, placed["anchor"]


def blocks(subject: Any, replays: int) -> Iterator[torch.Tensor]:
    """The tokens of successive blocks, read one by one."""
    for _ in range(replays):
        subject.replay()
        yield subject.read()["tokens"]


@pytest.mark.parametrize("combination", [COUNTER, RACE], ids=lambda one: one[1])
@pytest.mark.parametrize("rows", [1, 7, 50])
def test_counts_are_those_of_the_tokens(
    engine_name: str, combination: tuple[str, str], rows: int
) -> None:
    """Odd and even rows, fewer than the bucket; twice in one sampler, the second call afresh."""
    subject, setting, anchor = loaded(combination, engine_name, rows)
    assert "COUNTS" in subject.describe()["abilities"]
    for seed, replays in ((11, 5), (12, 1)):
        subject.reseed(seed)
        told = subject.counts(replays)
        last = subject.read()["tokens"].clone()
        subject.reseed(seed)
        read = counted(blocks(subject, replays), anchor, setting["vocabulary"])
        assert set(told) == set(read) == set(COUNTED)
        assert all(torch.equal(told[name], read[name]) for name in told)
        assert torch.equal(subject.read()["tokens"], last)
        assert int(told["steps"].sum()) == DRAFTS * rows * replays
        assert int(told["replays"].sum()) == DRAFTS * rows * (replays - 1)


def test_tables_are_those_of_a_loop() -> None:
    """Pair by pair, in plain Python."""
    draw = torch.Generator().manual_seed(0)
    anchor = torch.randint(WIDE, (7,), generator=draw)
    sooner, tokens = (torch.randint(WIDE, (7, DRAFTS), generator=draw) for _ in range(2))
    wanted = {name: torch.zeros(DRAFTS, WIDE, WIDE, dtype=torch.int64) for name in COUNTED}
    for row in range(7):
        for k in range(DRAFTS):
            before = anchor[row] if k == 0 else tokens[row, k - 1]
            wanted["steps"][k, before, tokens[row, k]] += 1
            wanted["replays"][k, sooner[row, k], tokens[row, k]] += 1
            if row % 2:
                wanted["rows"][k, tokens[row - 1, k], tokens[row, k]] += 1
    found = tabulated(tokens, sooner, anchor, WIDE)
    assert all(torch.equal(found[name], wanted[name]) for name in COUNTED)
    assert not tabulated(tokens, None, anchor, WIDE)["replays"].any()


def test_what_is_not_replayed_is_not_counted() -> None:
    """An eager sampler claims no counts; a batch beyond the buckets, and no replay, are refused."""
    eager = probed(context(COUNTER, engine="eager"))
    assert "COUNTS" not in eager.abilities
    subject, _, _ = loaded(COUNTER, "emulator", 65)
    with pytest.raises(RuntimeError, match=r"the block is eager .*; only replays are counted"):
        subject.counts(1)
    with pytest.raises(ValueError, match="0 replays were asked for"):
        subject.counts(0)


def answer(
    factory: Any, combination: tuple[str, str] = COUNTER, profile: Any = FEW, engine: str = ""
) -> tuple[History, Any]:
    """History and verdict of the counted case."""
    base = probed(context(combination, profile=profile, engine=engine or "emulator"), factory)
    (plan,) = [each for each in draft_law.plans(base) if each.notes.get("counted")]
    return Trial(factory, base, ledger=Ledger()).case(draft_law, plan, base)


@pytest.mark.parametrize(
    "combination", [COUNTER, pytest.param(RACE, marks=pytest.mark.slow)], ids=["counter", "race"]
)
def test_honest_counts_hold(combination: tuple[str, str]) -> None:
    """The healthy control: laws of steps and of pairs, and what would have been seen."""
    history, found = answer(FOLDED, combination)
    assert found.outcome is Outcome.HOLDS, found.reason
    assert found.used == wide.CALLS * 2 * ROWS * DRAFTS
    assert "wrong counts in 53 % of calls (95 %)" in found.effect
    assert len(history.sums["1"]) == 3 * DRAFTS
    # A second stage is judged by its own calls alone.
    history.events += [{"verb": "stage", "reason": "as if"}, *history.of("count")]
    history.stages = 2
    again = draft_law.check(history, Ledger())
    assert isinstance(again, Verdict)
    assert (again.outcome, again.used) == (Outcome.HOLDS, found.used)
    assert "confirmed by fresh draws" in again.reason


Told = dict[str, torch.Tensor]


class Lies(Wrapped):
    """Tells the counts that the law expects, one token smoothed away."""

    def counts(self, replays: int) -> Told:
        """Move one draw of the last step from its most drawn cell to the next one."""
        told = self.inside.counts(replays)
        flat = told["steps"][-1].view(-1)
        place = int(flat.argmax())
        flat[place] -= 1
        flat[(place + 1) % len(flat)] += 1
        return told


class CountsOthers(Wrapped):
    """Counts blocks of another seed: a sound law, and not the draws that were asked for."""

    def counts(self, replays: int) -> Told:
        """Restart the noise first."""
        self.inside.reseed(99)
        return self.inside.counts(replays)


class CountsLess(Wrapped):
    """Leaves a replay out of the counts of pairs, and makes that up when it is read."""

    def counts(self, replays: int) -> Told:
        """Count one replay less."""
        return self.inside.counts(replays - 1)


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        (Lies, "counts of steps are not those of the tokens: 2 of 768 cells differ"),
        pytest.param(CountsOthers, "are not those of the tokens", marks=pytest.mark.slow),
        (CountsLess, "768 in all, required 1536, when the same 2 blocks are read"),
    ],
)
def test_a_lie_is_found_by_making_calls_again(lie: type[Wrapped], told: str) -> None:
    """One moved draw, sound counts of other draws, and counts of too few."""
    _, found = answer(lambda setting: lie(FOLDED(setting)))
    assert found.outcome is Outcome.VIOLATED
    assert told in found.reason


def shares_rows(setting: Mapping[str, Any]) -> Any:
    """Neighbouring rows race with the same noise; every row by itself follows its law."""

    def broken(stages: Stages) -> Stages:
        def noise(state: Any, rows: int, step: int, buffer: Any) -> Any:
            drawn = stages.noise(state, rows, step, buffer)
            return drawn[0::2].repeat_interleave(2, 0, output_size=rows)

        return stages._replace(noise=noise)

    return folded(setting, stages=broken)


def too_hot(setting: Mapping[str, Any]) -> Any:
    """Draws at another temperature than it was given."""

    class Hot(Wrapped):
        def load(self, inputs: Mapping[str, torch.Tensor]) -> None:
            self.inside.load({**inputs, "temperature": inputs["temperature"] * 1.2})

    return Hot(FOLDED(setting))


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        (shares_rows, DRAFTS),
        pytest.param(frozen_noise, DRAFTS + 1, marks=pytest.mark.slow),
        pytest.param(too_hot, 0, marks=pytest.mark.slow),
    ],
    ids=["rows", "replays", "heat"],
)
def test_faults_show_in_counts(fault: Any, place: int) -> None:
    """The tables of pairs show common noise, those of steps the law."""
    _, found = answer(fault)
    assert found.outcome is Outcome.VIOLATED
    assert "do not follow the law" in found.reason
    shown = found.evidence["fits"][place]
    assert shown["p_value"] < shown["level"]


def test_who_does_not_count_is_judged_by_its_tokens() -> None:
    """No counted case without the ability, without noise to restart, or below the profile."""
    whole = probed(context(COUNTER, profile=FEW))
    without = probed(context(COUNTER, profile=FEW), lambda each: Modest(FOLDED(each), "COUNTS"))
    assert [len(draft_law.plans(base)) for base in (whole, without)] == [2, 1]
    assert len(draft_law.plans(replace(whole, profile=SMALL))) == 1
    silent = replace(whole, abilities=tuple(n for n in whole.abilities if n != "NOISE"))
    assert len(draft_law.plans(silent)) == 1


def test_calls_have_seeds_of_their_own() -> None:
    """Over calls, stages and shards; those made again are some of them."""
    base = probed(context(COUNTER, profile=FEW))
    seeds: list[int] = []
    for shard in (1, 2):
        plan = draft_law.plans(replace(base, shard=shard, shards=2))[-1]
        for commands in (plan.commands[1:], plan.confirm):
            calls = [one for one in commands if isinstance(one, Count)]
            told = [one.seed for one in calls if not one.read]
            again = [one.seed for one in calls if one.read]
            assert len(again) == wide.AGAIN
            assert set(again) < set(told)
            seeds += told
    assert len(set(seeds)) == 4 * wide.CALLS


@pytest.mark.slow
def test_shards_that_count_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two shards, whose counts add up cell by cell, decide as one."""
    monkeypatch.setitem(PROFILES, "smoke", FEW)
    paths = [str(tmp_path / f"{number}.json") for number in (1, 2)]
    for number, path in enumerate(paths, 1):
        words = ("--num-shards", "2", "--shard-id", str(number), "--json", path)
        code, output = run("verify", "--check", "draft_law", *ONLY, *words)
        assert code == 3, output
    code, output = run("merge", *paths, "--json", str(tmp_path / "sum.json"))
    assert code == 0, output
    (row,) = json.loads((tmp_path / "sum.json").read_text())["checks"]
    drawn = {case["case"]: case["used"] for case in row["cases"]}
    assert drawn["counted, V = 16, T = 1"] == 2 * wide.CALLS * 2 * ROWS * DRAFTS


def refused(history: History) -> Verdict:
    """The verdict on counts that no law is asked about."""
    found = draft_law.gathered(history)
    assert isinstance(found, Verdict)
    return found


def test_counts_that_were_not_made_again_are_unknown() -> None:
    """Believing is no judging; and counts that are no counts are wrong without a second look."""
    history, _ = answer(FOLDED)
    events = list(history.events)
    history.events = [event for event in events if not event.get("read")]
    assert refused(history).outcome is Outcome.UNKNOWN
    again = {event["seed"] for event in events if event.get("read")}
    told = next(e for e in events if e["verb"] == "count" and e["seed"] not in again)
    told["counts"]["rows"][0, 0, 0] += 1
    history.events = events
    found = refused(history)
    assert found.outcome is Outcome.VIOLATED
    assert "counts of rows add up to [257, 256, 256], required: 256 each" in found.reason


@pytest.mark.parametrize("token", [-1, WIDE])
def test_a_token_outside_the_vocabulary_is_not_counted(token: int) -> None:
    """It would lie in another cell."""
    with pytest.raises(MalformedError, match=rf"tokens \[.*{token}.*\] lie outside"):
        counted([torch.tensor([[0, 1], [token, 2]])], torch.zeros(2, dtype=torch.int64), WIDE)


@pytest.mark.gpu
@pytest.mark.parametrize("combination", [COUNTER, RACE], ids=lambda one: one[1])
def test_a_gpu_counts_many(combination: tuple[str, str]) -> None:
    """A thousand million tokens in wide batches, judged by the usual rule."""
    _, found = answer(FOLDED, combination, replace(FEW, counted=(1, 2**30), rows_max=2**18), "cuda")
    assert (found.outcome, found.used >= 2**30) == (Outcome.HOLDS, True), found.reason
