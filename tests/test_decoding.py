"""The decode loop over a tiny target: text, batches, folds, stops, rollback."""

import pytest
import torch

from impl.decoding.drafter import Drafter
from impl.decoding.request import Request

from .decoding_rig import Tiny, decoded, factory, plainly, requests, setting, weights

KINDS = ("vanilla", "gated", "rnn")


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_that_of_plain_decoding(kind: str) -> None:
    """At temperature 0 every request gets the tokens of one-by-one decoding, at its full length."""
    network = Tiny()
    asked = requests(7)
    buckets = (1, 2, 4) if kind == "vanilla" else (4,)
    texts, steps = decoded(factory(setting(network, kind, buckets=buckets)), asked)
    assert texts == {n: plainly(Tiny(), request) for n, request in enumerate(asked)}
    assert all(step["folded"] and step["accept_folded"] for step in steps)


def test_batch_grows_and_shrinks_through_all_buckets() -> None:
    """Requests wait for a row, rows move up when one ends, and each bucket is replayed."""
    _, steps = decoded(factory(setting(Tiny(), buckets=(1, 2, 4))), requests(7))
    assert {step["bucket"] for step in steps} == {1, 2, 4}
    assert {len(step["request"]) for step in steps} >= {1, 2, 4}
    assert sum(any(step["ended"]) for step in steps) > 1


@pytest.mark.parametrize("rule", ["chain", "block"])
def test_greedy_rows_keep_their_text_among_sampled_ones(rule: str) -> None:
    """In a mixed batch a greedy row is untouched, and a sampled one is accepted eagerly."""
    asked = requests(6, temperature=lambda number: 0.9 * (number % 2))
    texts, steps = decoded(factory(setting(Tiny(), rule=rule)), asked)
    for number in (0, 2, 4):
        assert texts[number] == plainly(Tiny(), asked[number])
    assert "sampled rows" in {step["accept_reason"] for step in steps}


def test_text_ends_with_its_stop_token() -> None:
    """What was accepted past a stop token is dropped, whatever the block held."""
    asked = requests(6, stop=(3, 7))
    texts, _ = decoded(factory(setting(Tiny())), asked)
    assert texts == {n: plainly(Tiny(), request) for n, request in enumerate(asked)}
    assert any(text[-1] in (3, 7) and len(text) < 10 for text in texts.values())


def test_eager_engine_decodes_the_same_text_and_says_so() -> None:
    """Without a recording the same seed gives the same text, sampled rows included."""
    asked = requests(5, temperature=lambda number: 0.8 * (number % 2), top_p=0.9)
    folded, _ = decoded(factory(setting(Tiny())), asked)
    eager, steps = decoded(factory(setting(Tiny(), engine="eager")), asked)
    assert eager == folded
    assert {step["reason"] for step in steps} == {"no sampler"}


def test_length_is_a_cut_and_never_overrun() -> None:
    """The last block is verified as far as tokens are still asked for."""
    asked = [{**request, "length": 2} for request in requests(4, temperature=1.5)]
    texts, steps = decoded(factory(setting(Tiny())), asked)
    assert {len(text) for text in texts.values()} == {2}
    assert int(steps[0]["verify_len"].max()) == 2


def test_target_without_a_law_ends_the_request() -> None:
    """A NaN of the target commits nothing, and the request ends with that reason."""
    network = Tiny()
    network.head[0, 0] = float("nan")
    texts, steps = decoded(factory(setting(network)), requests(2))
    assert texts == {0: [], 1: []}
    assert steps[0]["ended"] == ["no target law"] * 2


def test_what_cannot_be_served_is_refused() -> None:
    """Short prompts, slots that are too short, unknown engines and misfits raise by name."""
    with pytest.raises(ValueError, match="the prompt has 1 tokens; it should have at least 2"):
        Request((4,))
    with pytest.raises(ValueError, match="length is 0; it should be at least 1"):
        Request((4, 5), length=0)
    subject = factory(setting(Tiny(length=16)))
    with pytest.raises(ValueError, match="may reach 17 positions; a slot holds 16"):
        subject.submit({"prompt": torch.tensor([1, 2]), "length": 12})
    with pytest.raises(NotImplementedError, match="engine 'steam'"):
        factory(setting(Tiny(), engine="steam"))
    own = weights("vanilla")["drafter"]
    with pytest.raises(ValueError, match="with hidden size 8 it needs"):
        Drafter(Tiny().head, own["project"], own["lift"], own["widen"], torch.ones(7))
