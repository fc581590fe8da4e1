"""Every token is made the winner once."""

import torch

from ...workloads.synthetic import codes
from ..budget import Ledger
from ..context import Context, as_inputs, constant, query_rows
from ..history import History
from ..script import Plan, block
from ..verdict import Verdict, holds, violated

NAME = "spike"
TITLE = "spike sweep: every id wins once"
CLAIM = "Every id of the vocabulary can be drawn at every step, and is drawn when it must be."
NEEDS: tuple[str, ...] = ()

ROWS, DRAFTS, HEIGHT = 256, 3, 64.0
EVERY_ID = 2**30


def plan(context: Context, dtype: torch.dtype) -> Plan:
    """A head of +-1 codes and hidden states that repeat one code: the spike leads by 128."""
    vocabulary = context.profile.spike_vocabulary
    material = context.workload.material(context.seed, vocabulary, dtype)
    setting = context.setting(material, drafts=DRAFTS, buckets=(ROWS,))
    setting["head"] = codes(vocabulary, dtype)
    if context.family == "dspark":
        setting["w1"] = material.w1 / 8
        setting["w2"] = material.w2 / 8
    queries = query_rows(setting)
    heat, top_k = constant(ROWS, 1.0, EVERY_ID)
    top_k[1::2] = 1
    inputs, spikes = {}, {}
    first_query = queries - DRAFTS
    for start in range(0, vocabulary, ROWS):
        name = f"from {start}"
        row = torch.arange(ROWS).unsqueeze(1)
        step = torch.arange(DRAFTS).unsqueeze(0)
        ids = (start + row + step * (ROWS // 3)) % vocabulary
        hidden = torch.zeros(ROWS, queries, setting["head"].shape[1], dtype=dtype)
        hidden[:, first_query:] = HEIGHT * setting["head"][ids]
        anchor = (row.squeeze(1) + start) % vocabulary
        inputs[name] = as_inputs(setting, hidden, anchor, heat, top_k)
        spikes[name] = ids
    commands = tuple(command for name in inputs for command in block(name, redraw=False))
    return Plan(NAME, str(dtype), setting, inputs, commands, notes={"spikes": spikes})


def plans(context: Context) -> list[Plan]:
    """One sweep a dtype of the profile (the first alone in smoke)."""
    if context.workload.real:
        return []
    names = (
        context.profile.dtypes[:1] if context.profile.name == "smoke" else (context.profile.dtypes)
    )
    return [plan(context, getattr(torch, name)) for name in names]


def check(history: History, _ledger: Ledger) -> Verdict:
    """Compare every token with the spike of its row and step."""
    vocabulary = history.setting["vocabulary"]
    seen = torch.zeros(DRAFTS, vocabulary, dtype=torch.bool)
    used = 0
    for event in history.of("read"):
        tokens, ids = event["outputs"]["tokens"], history.notes["spikes"][event["inputs"]]
        wrong = tokens != ids
        used += tokens.numel()
        if bool(wrong.any()):
            row, step = wrong.nonzero()[0].tolist()
            return violated(
                f"token of row {row}, step {step}: observed {int(tokens[row, step])}, required "
                f"{int(ids[row, step])}, whose logit leads by {2 * HEIGHT:.0f} temperatures",
                used,
                unit="draws",
                wrong_ids=sorted(set(ids[wrong].tolist()))[:20],
            )
        for step in range(DRAFTS):
            seen[step, tokens[:, step]] = True
    if not bool(seen.all()):
        step, token = (~seen).nonzero()[0].tolist()
        return violated(f"id {token} was never made the winner at step {step}", used, "draws")
    return holds(
        f"all {vocabulary} ids won at all {DRAFTS} steps",
        used,
        "one id that is never drawn",
        "draws",
    )
