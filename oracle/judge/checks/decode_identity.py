"""Greedy text, token by token, against the model's own reading and against plain decoding."""

from typing import Any

from ..budget import Ledger
from ..history import History
from ..verdict import Verdict, holds, not_applicable, violated

NAME = "decode_identity"
TITLE = "identity: greedy text is that of plain decoding"
CLAIM = "At temperature 0 every token is the model's argmax, and the text that of plain decoding."
NEEDS = ("decoder",)


def complaint(event: dict[str, Any]) -> str:
    """The first token of one text that no rounding explains, or ''."""
    wrong = (event["gap"] > event["window"]).nonzero()
    if len(wrong):
        place = int(wrong[0])
        return (
            f"request {event['request']}, token {place}: {int(event['tokens'][place])} lies "
            f"{float(event['gap'][place]):.3g} below the model's best logit, required: at most "
            f"{float(event['window'][place]):.3g}, what float32 cannot tell"
        )
    if "plain" not in event:
        return ""
    if "plain_gap" in event:
        if event["plain_gap"] <= event["plain_window"]:
            return ""
        return (
            f"request {event['request']} differs from plain decoding where the logits are "
            f"{event['plain_gap']:.3g} apart, required: at most {event['plain_window']:.3g}"
        )
    if len(event["plain"]) != len(event["tokens"]):
        return (
            f"request {event['request']} has {len(event['tokens'])} tokens, required: the "
            f"{len(event['plain'])} of plain decoding"
        )
    return ""


def check(history: History, _ledger: Ledger) -> Verdict:
    """No greedy token lies further below the best logit than two float32 readings can differ.

    The texts themselves are compared with plain decoding too: equal, or first different at a near
    tie. Near ties and differences are counted.
    """
    texts = [event for event in history.of("text") if not event["sampled"] and "gap" in event]
    if not texts:
        return not_applicable("no request was greedy")
    used = sum(len(event["tokens"]) for event in texts)
    for event in texts:
        if wrong := complaint(event):
            return violated(wrong, used, "tokens")
    near = sum(int((event["gap"] > 0).sum()) for event in texts)
    close = sum(int((event["lead"] <= event["window"]).sum()) for event in texts)
    beside = [event for event in texts if "plain" in event]
    differ = sum("plain_gap" in event for event in beside)
    reason = f"{len(beside) - differ} of {len(beside)} texts identical to plain decoding"
    if differ:
        reason += f", {differ} from a near tie on"
    widest = max(float(event["window"].max()) for event in texts)
    effect = (
        f"one token more than {widest:.2g} below the best logit; {near} near ties taken, "
        f"{close} possible"
    )
    return holds(reason, used, effect, "tokens", near=near, close=close, differ=differ)
