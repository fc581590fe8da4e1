"""Any order of loads, replays, edits, poison and new weights agrees with the reference."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from typer.testing import CliRunner

from impl.acceptor import Drafted
from impl.assembly import Parts
from impl.logits import OutputHead
from impl.proposer import Proposer
from impl.runner import Runner
from impl.stages import Stages
from impl.subject import factory as folded
from oracle.commands import app
from oracle.judge.answer import judge_again
from oracle.judge.budget import Ledger
from oracle.judge.history import load
from oracle.judge.protocol import Factory, Setting, Tensors
from oracle.judge.verdict import Outcome, ViolationRuntimeError
from oracle.workloads.synthetic import Synthetic

from .judging import context, verdicts
from .machine import machine
from .zoo.memory import restage_skip
from .zoo.specimen import Wrapped


@pytest.mark.stateful
def test_any_order_of_steps_agrees_with_the_reference(engine_name: str) -> None:
    """A short look: few runs of few steps."""
    short = settings(max_examples=25, stateful_step_count=15)
    run_state_machine_as_test(machine(engine_name), settings=short)


@pytest.mark.stateful
@pytest.mark.slow
def test_long_runs_agree_with_the_reference(engine_name: str) -> None:
    """Many runs of up to forty steps."""
    long = settings(max_examples=300, stateful_step_count=40)
    run_state_machine_as_test(machine(engine_name), settings=long)


def test_a_small_block_that_was_accepted_is_judged_whole(engine_name: str) -> None:
    """Every buffer is looked at around the accept; most rows of the noise were not drawn."""
    played: Any = machine(engine_name)()
    weights = {"dtype": torch.float32, "padding": 0, "seed": 0}
    played.build(combination=("dspark", "race"), forward="given", anchor_row=False, **weights)
    played.load(seed=0, rows=1, times=1)
    played.accept(seed=0, by="chain", liking=0.0, times=1)
    played.teardown()
    assert not played.failed


def head_of_capture(setting: Setting) -> Any:
    """The product reads a copy of the head that was made at the first call."""

    def other(stages: Stages) -> Stages:
        copies: list[OutputHead] = []

        def logits(head: OutputHead, hidden: torch.Tensor, out: torch.Tensor) -> None:
            if not copies:
                copies.append(replace(head, weight=head.weight.clone()))
            stages.logits(copies[0], hidden, out)

        return stages._replace(logits=logits)

    return folded(setting, stages=other)


class Trusting(Runner):
    """A runner that believes that nothing moves."""

    def __init__(self, *parts: Any, **named: Any) -> None:
        super().__init__(*parts, **named)
        self.addresses.captured.clear()


def trusts_addresses(setting: Setting) -> Any:
    """A replay over weights that moved is not refused."""
    return folded(setting, parts=Parts(runner=Trusting))


class Repeats(Wrapped):
    """Puts the noise back after an eager block."""

    def eager(self, inputs: Tensors) -> Tensors:
        """The block, and no step of the counter."""
        noise = self.inside.noise
        state = [] if noise is None else [tensor.clone() for tensor in noise.state.values()]
        outputs = self.inside.eager(inputs)
        for tensor, before in zip(
            () if noise is None else noise.state.values(), state, strict=True
        ):
            tensor.copy_(before)
        return outputs


def eager_repeats_noise(setting: Setting) -> Any:
    """The block after an eager one draws the same noise again."""
    return Repeats(folded(setting))


class KeepsHeat(Proposer):
    """Accepts with the temperatures of the first block of as many rows."""

    def drafted(self) -> Drafted:
        """The block, but for its temperatures."""
        block = super().drafted()
        kept = vars(self).setdefault("kept", {}).setdefault(len(block.tokens), block.temperature)
        return replace(block, temperature=kept)


def accepts_at_old_heat(setting: Setting) -> Any:
    """The accept divides by temperatures of an earlier load."""
    return folded(setting, parts=Parts(proposer=KeepsHeat))


class KeepsShares(Wrapped):
    """Accepts with the first top_p that came for as many rows."""

    def accept(self, target: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Filter by what was staged once."""
        share = target["top_p"]
        kept = vars(self).setdefault("kept", {}).setdefault(len(share), share)
        found: dict[str, torch.Tensor] = self.inside.accept({**target, "top_p": kept})
        return found


def accepts_at_old_top_p(setting: Setting) -> Any:
    """The accept filters by the top_p of an earlier target."""
    return KeepsShares(folded(setting))


class CountsTwice(Wrapped):
    """Steps the counter of the draft noise once an accept."""

    def accept(self, target: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Accept, and count a block that was never drafted."""
        found: dict[str, torch.Tensor] = self.inside.accept(target)
        if "block" in (state := {} if self.inside.noise is None else self.inside.noise.state):
            state["block"].add_(1)
        return found


def accept_counts_a_block(setting: Setting) -> Any:
    """The draft that follows an accept leaves out a block of noise."""
    return CountsTwice(folded(setting))


class Scratches(Wrapped):
    """Shifts the drafts in their own buffer when it accepts."""

    def accept(self, target: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Accept, and leave the tokens moved by one."""
        found: dict[str, torch.Tensor] = self.inside.accept(target)
        tokens = self.inside.buffers()["tokens"]["tensor"]
        tokens.copy_(tokens.roll(1, 1))
        return found


def accept_shifts_drafts(setting: Setting) -> Any:
    """The output row is made where the drafts lie."""
    return Scratches(folded(setting))


RULE = r"(correct_len|bonus|trim|commit_len|new_seq_len|out_tokens) of row \d"


@pytest.mark.stateful
@pytest.mark.parametrize(
    ("bug", "told"),
    [
        pytest.param(accepts_at_old_heat, RULE, marks=pytest.mark.slow),
        pytest.param(accepts_at_old_top_p, RULE, marks=pytest.mark.slow),
        (accept_counts_a_block, r"the accept left block \d+, required: block"),
        pytest.param(
            accept_shifts_drafts,
            "the accept changed .* bytes of buffer 'tokens'",
            marks=pytest.mark.slow,
        ),
        (restage_skip, r"(temperature|top_k|greedy) was \d (block|replay)|temperature: |greedy: "),
        pytest.param(head_of_capture, "kept step logit|token", marks=pytest.mark.slow),
        (trusts_addresses, "kept step logit|token"),
        pytest.param(
            eager_repeats_noise,
            "the block left|the generator|the noise stood",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_planted_bug_is_found_stored_and_judged_again(
    bug: Factory, told: str, tmp_path: Path
) -> None:
    """Fewer than 100 runs find it, and the stored run is violated without the sampler too."""
    found = machine("emulator", bug, tmp_path)
    limit = settings(
        max_examples=100,
        stateful_step_count=40,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
    )
    with pytest.raises(ViolationRuntimeError, match=rf"violated: .*({told})") as raised:
        run_state_machine_as_test(found, settings=limit)
    assert found.examples < 100
    stored = tmp_path / "machine-emulator.json"
    assert f"draftproof judge {stored}" in str(raised.value)
    check = "accept_rule" if "accept" in bug.__name__ else "equality"
    result = CliRunner().invoke(app, ["judge", str(stored)], env={"COLUMNS": "400"})
    assert result.exit_code == 1, result.output
    assert re.search(rf"violated: {check}, state machine: .*({told})", result.output)
    assert judge_again(load(stored), Ledger()).outcome is Outcome.VIOLATED


@pytest.mark.parametrize(
    ("bug", "told"),
    [
        (accept_counts_a_block, "the accept left block 2, required: block 1"),
        (accept_shifts_drafts, "the accept changed .* bytes of buffer 'tokens'"),
    ],
)
def test_the_check_alone_sees_what_an_accept_moves(bug: Factory, told: str) -> None:
    """Noise and outputs around an accept, without the machine."""
    found = verdicts(bug, context(), (("dspark", "counter"),), ("accept_rule",))["accept_rule"]
    assert {result.verdict.outcome for result in found} == {Outcome.VIOLATED}
    assert all(re.search(told, result.verdict.reason) for result in found)


def test_weights_of_another_shape_are_refused() -> None:
    """They would be spread over the captured memory."""
    setting = context().setting(Synthetic().material(0, 19, torch.float32), drafts=2, buckets=(2,))
    with pytest.raises(ValueError, match=r"^w1 is torch.float32 \(8,\); it should be .*\(19, 8\)$"):
        folded(setting).reweight({"w1": torch.zeros(8)})
