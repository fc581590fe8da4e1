"""Draws of a subject in chunks, each from its own seed: what a sequential test adds up.

A chunk is known by its number. Its seed and its size are functions of that number alone, so the
chunks of several shards are the chunks of one long run, and one that is drawn again is the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..reference import law as laws
from . import exported
from .bank import log_values
from .checks import claim, draft_law, lossless
from .context import Context, Size
from .drive import Driver
from .environment import environment
from .evidence import Evidence, Law, digest_of, on_grid, same
from .history import History
from .loading import build, source_digest
from .script import Accept, Command, Load, Plan, Read, Replay, Reseed
from .seeds import seed_of
from .sequential import bank_of, spread
from .significance import Counts, Floats
from .trial import Trial, placed
from .verdict import Verdict, errored, violated

# Draws of a batch are rows times replays times drafts. Chunks grow, so that a long run has few.
ROWS, REPLAYS, GROWTH, LARGEST = 2048, 16, 8, 512
CANDIDATES = 64
VERSIONS = ("draftproof", "torch", "numpy", "scipy")


@dataclass(frozen=True, eq=False)
class Table:
    """A law by context: its logarithm [contexts, V], and each context's share of the draws."""

    log_law: Floats
    weights: Floats


@dataclass(frozen=True)
class Kind:
    """One law that chunks can be drawn from.

    check, needs  the check it belongs to, and the abilities without which it does not apply
    plan          inputs for a context
    run           the commands of one replay
    table         the law of a plan; counts: the observed cells, in the shape of that table
    fault         a sentence when something was drawn that no correct sampler draws, else ''
    exported      of laws that are known from the outputs alone, [draws, V] a read: their logarithm,
                  and the tokens [draws]; the bank is then read on them, not on the counts
    """

    check: str
    needs: tuple[str, ...]
    plan: Callable[[Context], Plan]
    run: tuple[Command, ...]
    table: Callable[[History], Table]
    counts: Callable[[History], Counts]
    fault: Callable[[History], str]
    exported: Callable[[History], Iterator[tuple[Floats, Counts]]] | None = None


def draft_plan(context: Context) -> Plan:
    """The case of draft_law, in rows of one batch."""
    return draft_law.plan(context, Size(ROWS, draft_law.DRAFTS, draft_law.VOCABULARY), REPLAYS)


def draft_table(history: History) -> Table:
    """Every step's law given the token before it, one context a step and token."""
    joint = np.concatenate(
        [joint for joint, _, _ in draft_law.laws(history.setting, history.inputs["x"])]
    )
    shares = joint.sum(axis=1)
    return Table(np.log(joint / shares[:, None]), shares / shares.sum())


def draft_counts(history: History) -> Counts:
    """Observed tokens by step and token before."""
    vocabulary = history.setting["vocabulary"]
    return np.concatenate([c.reshape(-1, vocabulary) for c in draft_law.counts(history, 1)])


def draft_fault(history: History) -> str:
    """Whether a token lies outside the vocabulary."""
    tokens = torch.cat([event["outputs"]["tokens"] for event in history.of("read")])
    outside = (tokens < 0) | (tokens >= history.setting["vocabulary"])
    return "tokens lie outside the vocabulary" if bool(outside.any()) else ""


def committed_plan(context: Context) -> Plan:
    """The chain case of lossless, in rows of one batch."""
    return lossless.plan(context, "chain", 1.0, (ROWS, REPLAYS))


def committed_table(history: History) -> Table:
    """The target's law given the token before; it is the same at every position."""
    steps = lossless.target_steps(history)
    anchor = int(history.inputs["x"]["anchor"][0])
    chain = steps.unsqueeze(0).expand(history.setting["drafts"] + 1, -1, -1)
    shares = np.sum([table.sum(1).numpy() for table in laws.pair_laws(chain, anchor)], axis=0)
    return Table(steps.log().numpy(), shares / shares.sum())


def committed_counts(history: History) -> Counts:
    """Tokens of all positions by the token before, every commit completed by reference draws."""
    seen = [table.counts for table in lossless.tables(history, 1)]
    return np.asarray(np.sum(seen, axis=0), dtype=np.int64)


def committed_fault(history: History) -> str:
    """Whether something was committed that no correct sampler commits."""
    commits = [event["commit"] for event in history.of("accept")]
    out = torch.cat([commit["out_tokens"] for commit in commits])
    if int(out.max()) >= history.setting["vocabulary"]:
        return f"token {int(out.max())} was committed, outside the vocabulary"
    if bool((torch.cat([commit["commit_len"] for commit in commits]) < 1).any()):
        return "a verified request committed nothing, required: one token or more"
    return ""


def claim_plan(context: Context) -> Plan:
    """The case of claim."""
    return claim.plans(context)[0]


def claim_table(history: History) -> Table:
    """The transform of a token under its exported law is uniform, whatever that law was."""
    del history
    return Table(np.full((1, claim.BINS), -np.log(claim.BINS)), np.ones(1))


def claim_fault(history: History) -> str:
    """Whether a token is no id, or one that its exported law excludes, or there is no law."""
    return draft_fault(history) or exported.fault(history)


BLOCK: tuple[Command, ...] = (Replay(redraw=False), Read())
KINDS = (
    Kind("draft_law", ("DRAWS",), draft_plan, BLOCK, draft_table, draft_counts, draft_fault),
    Kind(
        "lossless",
        ("DRAWS", "ACCEPTS"),
        committed_plan,
        (*BLOCK, Accept("target", "chain")),
        committed_table,
        committed_counts,
        committed_fault,
    ),
    Kind(
        "claim",
        ("DRAWS", "CLAIMS"),
        claim_plan,
        BLOCK,
        claim_table,
        exported.counts,
        claim_fault,
        exported.laws,
    ),
)


def batches_of(number: int) -> int:
    """How many batches chunk `number` holds."""
    return min(max(1, number // GROWTH), LARGEST)


def law_history(plan: Plan) -> History:
    """A history without events: what the tables of a plan are read from."""
    return History(plan.check, plan.case, plan.setting, plan.inputs, plan.notes, {}, {})


def widest(kind: Kind, context: Context, case: str) -> tuple[Plan, Table]:
    """Of some candidate inputs, those whose log p varies most: errors of T show soonest there."""
    found = []
    for number in range(CANDIDATES):
        seed = seed_of(kind.check, case, "logits", shard=number, run=context.seed)
        plan = kind.plan(replace(context, seed=seed))
        found.append((plan, kind.table(law_history(plan))))
    return max(found, key=lambda each: spread(each[1].log_law, each[1].weights))


class Stream:
    """The chunks of one case, by number."""

    def __init__(
        self, kind: Kind, trial: Trial, context: Context, name: str, effect: float
    ) -> None:
        """Choose inputs and bank. name: of the subject; context: probed, with its abilities."""
        self.kind, self.trial, self.context = kind, trial, context
        self.case = f"{kind.check}, {context.label}"
        self.plan, self.table = widest(kind, context, self.case)
        heat = float(self.plan.inputs["x"]["temperature"][0])
        log_law, self.effect = self.table.log_law, effect
        if kind.exported:
            # Rows differ in T, and names of members depend on V alone.
            vocabulary = self.plan.setting["vocabulary"]
            log_law, heat = np.full((1, vocabulary), -np.log(vocabulary)), 1.0
        self.bank = bank_of(log_law, heat, effect)
        self.members = tuple(member.name for member in self.bank)
        self.digest = digest_of(self.table.log_law)
        self.name = f"{name}, engine {context.engine} on {context.device}"
        found = environment(context.device)
        self.versions = {package: str(found[package]) for package in VERSIONS}
        self.versions["source"] = source_digest(trial.factory)
        self.subject: Any = None

    def seed(self, number: int) -> int:
        """The noise seed of a chunk."""
        return seed_of(self.kind.check, self.case, "subject", shard=number, run=self.context.seed)

    def refuse_foreign(self, piece: Evidence) -> None:
        """EvidenceError when stored evidence cannot have come from this stream."""
        same("subjects", piece.subject, self.name)
        same("versions", dict(piece.versions), self.versions)
        same("banks", piece.members, self.members)
        for law in piece.laws:
            if law.run == self.context.seed:
                same(f"digests of the law of run {law.run}", law.digest, self.digest)

    def placed_subject(self, seed: int) -> Any:
        """The subject, one recording for all chunks; rebuilt for each where it cannot reseed."""
        if self.subject is None or "NOISE" not in self.context.abilities:
            self.subject = build(self.trial.factory, placed({**self.plan.setting, "seed": seed}))
        return self.subject

    def along(self, history: History) -> Floats:
        """Log e-values of a batch, draw by draw, where each draw brings its own law."""
        found = np.zeros(len(self.bank))
        for log_law, tokens in self.kind.exported(history) if self.kind.exported else ():
            counts = np.zeros(log_law.shape, dtype=np.int64)
            counts[np.arange(len(tokens)), tokens] = 1
            found += log_values(counts, bank_of(log_law, 1.0, self.effect))
        return found

    def chunk(self, number: int) -> Evidence | Verdict:
        """Draw a chunk: its evidence, or the verdict when the subject raised or drew no id."""
        seed = self.seed(number)
        try:
            subject = self.placed_subject(seed)
        except Exception as error:  # noqa: BLE001 - whatever a subject raises is its verdict
            return errored(f"building it raised {type(error).__name__}: {error}")
        total = np.zeros(self.table.log_law.shape, dtype=np.int64)
        along = np.zeros(len(self.bank))
        commands: tuple[Command, ...] = (Reseed(seed), Load("x"))
        for batch in range(batches_of(number)):
            purpose = seed_of(
                self.kind.check, self.case, "completion", batch, number, self.context.seed
            )
            plan = replace(self.plan, notes={**self.plan.notes, "seeds": [purpose]})
            history = self.trial.opened(plan, subject, self.context)
            driver = Driver(subject, plan, history)
            self.trial.play(driver, history, commands + self.kind.run * REPLAYS)
            if history.error:
                return errored(history.error)
            wrong = self.kind.fault(history)
            if wrong:
                return violated(wrong, int(total.sum()), "draws")
            total += self.kind.counts(history)
            along += self.along(history)
            commands = (Load("x"),)
        law = Law(self.context.seed, self.digest, total)
        values = on_grid(along if self.kind.exported else log_values(total, self.bank))
        return Evidence(
            self.case, self.name, self.versions, self.members, values, (law,), frozenset({seed})
        )


def streams(trial: Trial, name: str, effect: float) -> list[Stream] | Verdict:
    """Every case that applies, settled before anything is drawn, or why none does."""
    found: list[Stream] = []
    reason: Verdict = errored("no combination was asked for")
    for family, dialect in trial.combinations:
        probed = trial.probe(replace(trial.context, family=family, dialect=dialect))
        if isinstance(probed, Verdict):
            reason = probed
            continue
        found += [
            Stream(kind, trial, probed, name, effect)
            for kind in KINDS
            if set(kind.needs) <= set(probed.abilities)
        ]
    return found or reason
