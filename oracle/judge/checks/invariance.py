"""Batch mates, bucket and pad rows change nothing they must not."""

from itertools import pairwise

import torch

from ...workloads.synthetic import sampling_parameters
from ..budget import Ledger
from ..context import Context, as_inputs, query_rows
from ..history import History
from ..script import Command, Plan, Reseed, block
from ..verdict import Verdict, holds, violated

NAME = "invariance"
TITLE = "batch and bucket invariance"
CLAIM = "A request drafts the same block alone, among others, and in a larger bucket."
NEEDS: tuple[str, ...] = ()

BUCKETS, DRAFTS, VOCABULARY, SEED = (1, 4, 16), 3, 77, 30
COMPANY = (1, 3, 4, 9, 16)


def plans(context: Context) -> list[Plan]:
    """The same first rows in batches of several sizes, each from one noise state."""
    if context.workload.real:
        return []
    cases = []
    for name in context.profile.dtypes:
        material = context.workload.material(context.seed, VOCABULARY, getattr(torch, name), 8)
        setting = context.setting(material, drafts=DRAFTS, buckets=BUCKETS)
        queries = query_rows(setting)
        hidden, anchor = context.workload.rows(context.seed, material, max(COMPANY), queries)
        heat, top_k = sampling_parameters(context.seed, max(COMPANY))
        if context.dialect == "race" or "NOISE" not in context.abilities:
            top_k[:] = 1
        parts = (hidden, anchor, heat, top_k)
        inputs = {
            f"{rows} rows": as_inputs(setting, *(part[:rows] for part in parts)) for rows in COMPANY
        }
        commands: list[Command] = []
        for load in inputs:
            commands += [Reseed(SEED), *block(load, redraw=False)]
        cases.append(Plan(NAME, name, setting, inputs, tuple(commands)))
    return cases


def check(history: History, _ledger: Ledger) -> Verdict:
    """Compare the rows that two neighbouring batch sizes have in common, bit for bit."""
    reads = history.of("read")
    used = 0
    for small, large in pairwise(reads):
        rows = len(small["outputs"]["tokens"])
        for name, tensor in small["outputs"].items():
            other = large["outputs"][name][:rows]
            used += rows
            if not torch.equal(tensor.nan_to_num(), other.nan_to_num()):
                row = int((tensor != other).reshape(rows, -1).any(1).nonzero()[0])
                return violated(
                    f"{name} of row {row} differs between {small['inputs']} and "
                    f"{large['inputs']}, required: the same bits",
                    used,
                    unit="rows",
                )
    which = "greedy rows only" if history.setting["dialect"] == "race" else "sampled rows too"
    return holds("rows do not depend on their company", used, f"one changed bit; {which}", "rows")
