"""A decoded run to its verdicts: one history, judged by every check of decoding."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from .answer import judged
from .budget import Ledger
from .checks import DECODING
from .decoding import Watched
from .environment import environment
from .history import History
from .reading import Model, read
from .trial import Result
from .verdict import Pending, Verdict

HELD = ("rule", "buckets", "engine", "kind", "seed", "device")


def history_of(
    run: Watched,
    model: Model,
    case: str,
    setting: Mapping[str, Any],
    plain: Mapping[int, Sequence[int]],
    notes: Mapping[str, Any],
) -> History:
    """What was seen of a run: places, steps, and the model's reading of every text.

    setting  with the names in HELD. plain: texts of plain decoding by request. notes: `cases`, how
    many runs share one alarm budget; `name` of the decoder; `reproduce`, the command
    """
    device = str(setting["device"])
    parameters = {
        name: torch.tensor([float(one.get(name, default)) for one in run.requests])
        for name, default in (("temperature", 0.0), ("top_k", 2.0**30), ("top_p", 1.0))
    }
    decoded = {"verb": "decode", "places": run.places, "steps": run.steps}
    return History(
        check=DECODING[0].NAME,
        case=case,
        setting={name: setting[name] for name in HELD},
        inputs={"requests": parameters},
        notes={"cases": notes.get("cases", 1)},
        description={
            "name": notes.get("name", ""),
            "stages": "torch-cuda" if device.startswith("cuda") else "torch-cpu",
        },
        environment=environment(device),
        reproduce=str(notes.get("reproduce", "")),
        events=[decoded, *read(run, model, plain)],
    )


def verdicts(history: History, ledger: Ledger) -> Iterator[Result]:
    """Judge a decoded run by every check; each result holds the history as it judged it."""
    for check in DECODING:
        own = replace(history, check=check.NAME, alpha=ledger.alpha)
        begun = time.perf_counter()
        answer = judged(check, own, ledger)
        if isinstance(answer, Pending):
            raise TypeError(f"{check.NAME} asks for fresh draws, which a decoded run has not")
        verdict: Verdict = answer
        own.verdict = {"outcome": verdict.outcome.value, "reason": verdict.reason}
        seconds = time.perf_counter() - begun
        yield Result(check.NAME, "decode", history.case, verdict, seconds, own)


def tokens_a_step(run: Watched) -> tuple[float, float]:
    """Committed tokens of a row in a step, and the half width of the 95 % interval of their mean.

    The interval is that of a ratio over requests, which are independent while rows of one are not.
    """
    request, step = run.places["request"], run.places["step"]
    count = len(run.texts)
    tokens = torch.bincount(request, minlength=count).double()
    width = int(step.max()) + 1
    rows = torch.bincount(torch.unique(request * width + step) // width, minlength=count).double()
    mean = float(tokens.sum() / rows.sum())
    rest = tokens - mean * rows
    error = float((rest.square().sum() * count / max(count - 1, 1)).sqrt() / rows.sum())
    return mean, 1.96 * error
