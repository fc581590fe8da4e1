"""Real speculative decoding of SmolLM2: greedy text is plain text, sampled text has its law.

The draft is fitted once, and kept in the user's cache; the runs are decoded once and shared.
"""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from impl.assembly import Parts
from impl.decoding.subject import factory
from oracle.decoder import Opened, opened
from oracle.judge import history as histories
from oracle.judge.answer import judge_again
from oracle.judge.budget import Ledger
from oracle.judge.decode_trial import history_of, tokens_a_step, verdicts
from oracle.judge.decoding import Watched, watch
from oracle.judge.history import History
from oracle.judge.verdict import Outcome, Verdict
from oracle.workloads import corpus, smollm2
from oracle.workloads.llama import Slots
from oracle.workloads.plain import plainly

from .decoding_faults import FAULTS

pytestmark = pytest.mark.realmodel
HEALTHY = Parts()
KINDS = ("vanilla", "gated", "rnn")
# Where an engine folds.
ENGINES = {"emulator": "cpu", "cuda": "cuda"}
FOLDED = ("emulator", pytest.param("cuda", marks=pytest.mark.gpu))
LENGTH = 64
# None of these words or forms is in the text that the draft is fitted on.
TOPICS = (
    *("rainbow", "pencil", "elephant", "guitar", "snow", "bakery", "rocket", "spider", "tomato"),
    *("violin", "whale", "clown", "hammer", "cactus", "pirate", "candle", "opera", "tractor"),
    *("comet", "saddle"),
)
FORMS = ("What is a {} good for?", "Tell me how a {} came to be.", "Name three kinds of {}.")


@pytest.fixture(scope="module")
def tools() -> Opened:
    """The model and its fitted draft."""
    environment = os.environ  # noqa: TID251  (a matter of the test run, not of impl)
    try:
        return opened(Console(stderr=True))
    except smollm2.MissingError as error:
        if environment.get("DRAFTPROOF_REQUIRE_REALMODEL") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))  # noqa: TID251  (the reason is the install line)


def requests(tools: Opened, count: int, **parameters: Any) -> list[dict[str, Any]]:
    """Questions of different lengths; parameters may be functions of the number."""
    found = []
    for number in range(count):
        question = FORMS[number % len(FORMS)].format(TOPICS[number % len(TOPICS)])
        own = {
            name: given(number) if callable(given) else given for name, given in parameters.items()
        }
        found.append(tools.request(question, **{"length": LENGTH, **own}))
    return found


def decoded(
    tools: Opened,
    asked: Sequence[Mapping[str, Any]],
    kind: str,
    parts: Parts = HEALTHY,
    engine: str = "emulator",
) -> tuple[Watched, dict[str, Any]]:
    """Decode with one Markov head, folded by one engine where it belongs."""
    setting = tools.setting(asked, kind, 7, engine, ENGINES[engine])
    return watch(factory(setting, parts=parts), asked), setting


def judged(history: History) -> dict[str, Verdict]:
    """Every verdict by the name of its check."""
    return {result.check: result.verdict for result in verdicts(history, Ledger())}


@cache
def plain_texts(tools: Opened, device: str) -> list[list[int]]:
    """What plain decoding makes of the greedy requests."""
    asked = requests(tools, 20)
    return plainly(Slots(tools.model.network, len(asked), 128, device), asked)


@pytest.mark.parametrize("engine", FOLDED)
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_identical_to_plain_decoding(tools: Opened, kind: str, engine: str) -> None:
    """20 prompts of 64 tokens: token for token, but for counted near ties; > 1.2 tokens a step."""
    asked = requests(tools, 20)
    run, setting = decoded(tools, asked, kind, engine=engine)
    plain = dict(enumerate(plain_texts(tools, ENGINES[engine])))
    history = history_of(run, tools.reader, f"{kind}, greedy", setting, plain, {})
    found = judged(history)
    assert found["decode_identity"].outcome is Outcome.HOLDS, found["decode_identity"].reason
    assert found["decode_identity"].evidence["differ"] <= 2
    assert found["decode_accept"].outcome is Outcome.HOLDS, found["decode_accept"].reason
    assert found["decode_gates"].outcome is Outcome.HOLDS, found["decode_gates"].reason
    assert all(step["folded"] and step["accept_folded"] for step in run.steps)
    mean, half = tokens_a_step(run)
    assert mean - half > 1.2


HEATS = (0.0, 0.7, 1.0, 1.0)
# What each fault is looked for in: temperatures and length. A row changes hands before its
# temperature can be late; bfloat16 moves one coin in a hundred across its threshold.
PLANTED = {
    "coarse q": ((0.9,) * 8, 48),
    "early bonus": ((0.0, 0.9) * 4, 24),
    "late heat": ((1.5,) * 8 + (0.4,) * 8, 24),
}


def mixed(tools: Opened) -> list[dict[str, Any]]:
    """Greedy and sampled requests in one batch, some cut by top-k and top-p."""
    return requests(
        tools,
        16,
        temperature=lambda number: HEATS[number % 4],
        top_p=lambda number: 0.9 if number % 4 == 1 else 1.0,
        top_k=lambda number: 50 if number % 8 == 3 else 2**30,
    )


@pytest.mark.parametrize("engine", FOLDED)
def test_sampled_text_follows_the_models_law(tools: Opened, tmp_path: Path, engine: str) -> None:
    """Every check holds on a mixed run; stored, it is judged alike without the model."""
    asked = mixed(tools)
    run, setting = decoded(tools, asked, "vanilla", engine=engine)
    history = history_of(run, tools.reader, "mixed", setting, {}, {})
    for result in verdicts(history, Ledger()):
        assert result.verdict.outcome is Outcome.HOLDS, result.verdict.reason
        histories.save(result.history, tmp_path / result.check)
        loaded = histories.load(tmp_path / f"{result.check}.json")
        assert judge_again(loaded, Ledger(loaded.alpha)) == result.verdict
    assert {step["bucket"] for step in run.steps} >= {1, 8}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_planted_fault_is_named_on_the_real_model(tools: Opened, name: str) -> None:
    """Each fault is named by its checks, within the steps of one short run."""
    heats, length = PLANTED[name]
    asked = requests(tools, len(heats), length=length, temperature=lambda number: heats[number])
    run, setting = decoded(tools, asked, "vanilla", FAULTS[name].parts())
    found = judged(history_of(run, tools.reader, name, setting, {}, {}))
    for check in FAULTS[name].killers:
        assert found[check].outcome is Outcome.VIOLATED, f"{check}: {found[check].reason}"


def test_kept_keys_give_the_states_of_a_whole_reading(tools: Opened) -> None:
    """Read in pieces, beside another request, with a rejected draft taken back, or at once."""
    ids = tools.model.encode(smollm2.PASSAGES[0])[:40]
    network = Slots(tools.model.network, 3, 64)
    first = torch.tensor([2])
    network.extend(first, ids[None, :30], torch.tensor([0]))
    network.extend(first, ids[None, 5:9], torch.tensor([28]))
    rows = torch.stack([ids[28:34], ids[:6]])
    found = network.extend(torch.tensor([2, 1]), rows, torch.tensor([28, 0]))
    whole = tools.model.states(ids[None])[0]
    torch.testing.assert_close(found[0], whole[28:34], rtol=0, atol=1e-3)
    torch.testing.assert_close(found[1], whole[:6], rtol=0, atol=1e-3)
    with pytest.raises(ValueError, match="reaches 65 positions, required: at most 64"):
        network.extend(first, ids[None, :5], torch.tensor([60]))


def test_questions_of_the_fit_are_not_those_of_the_runs(tools: Opened) -> None:
    """No word that is decoded here was learned from."""
    assert not set(TOPICS) & set(corpus.WORDS)
    assert tools.draft.blocks > 100
