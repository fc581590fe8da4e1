"""The law of a block given its context: requests that differ, vocabularies small and large."""

import math

import numpy as np
import torch

from .. import prefix_law, sums
from ..bank import Member, log_values, mean_log, members, rejects
from ..binomial import MISS
from ..budget import ALPHA, SHARES, Ledger
from ..chain import (
    Chain,
    blocks_for,
    chain,
    counted,
    foreign_base,
    foreign_token,
    joint,
    late_tilt,
    of_every_step,
    own_faults,
    smallest,
)
from ..context import Context, Material, as_inputs, constant, query_rows
from ..history import History
from ..scan import Finding, scan, smallest_mass
from ..script import Command, Load, Plan, Read, Replay, repeated
from ..seeds import seed_of
from ..significance import CASE_ALARM, STAGES, Counts
from ..verdict import Pending, Verdict, holds, unknown, violated
from .sampling import head_weights

NAME = "block_law"
TITLE = "block law: each step given what came before it, row by row"
CLAIM = "A block follows the chain of laws of its own row: no neighbour, no stale previous token."
NEEDS = ("DRAWS",)
LEDGER = "block law"

VOCABULARY, DRAFTS, TYPES, TEMPERATURE, EVERY_ID = 8, 3, 8, 1.0, 2**30
# Powers of two: sums stay exact. A recurrent head squashes what w1 holds.
STRENGTH = {"vanilla": 2.0, "gated": 2.0, "rnn": 4.0}
ROWS_MIN, REPLAYS_MIN = 512, 64
# Both dialects, each with a vanilla and a recurrent head; they have half of the ledger line.
CASES = 4
# A vocabulary that is too large to count. Both dialects, each with a vanilla head and another one.
WIDE, WIDE_DRAFTS, WIDE_ROWS, WIDE_CASES = 1024, 4, 128, 4
WIDE_OTHER = {"race": "gated", "counter": "rnn"}
REAL_ROWS, HEATS = 32, (0.5, 0.8, 1.0, 1.6)
# A profile that looks for no smaller a share has seconds: its dialects share wide cases out.
SPARING = 0.02
TURNS = (1, -1)
COMMON = 0.1
# Steps that read a draft before them.
LINKED = DRAFTS - 1
# Sums of variances are kept in such steps.
UNIT = 2.0**-20


def setting_of(context: Context, markov: str) -> tuple[Material, dict[str, object]]:
    """Laws that depend on the token before: the bias outweighs the base logits."""
    source = context.workload.material(context.seed, VOCABULARY, torch.float32)
    material = Material(source.head * 0.5, source.w1, source.w2 * STRENGTH[markov], VOCABULARY)
    setting = context.setting(material, drafts=DRAFTS, buckets=(ROWS_MIN,))
    return material, setting | head_weights(context.seed, markov, setting)


def plan(context: Context, markov: str) -> Plan:
    """TYPES requests, one after another and over again, so that every neighbour is another one."""
    material, setting = setting_of(context, markov)
    heat, top_k = constant(TYPES, TEMPERATURE, EVERY_ID)
    rows = context.workload.rows(context.seed, material, TYPES, query_rows(setting), sharpen=False)
    few = as_inputs(setting, *rows, heat, top_k)
    laws, share = chain(setting, few, TYPES), context.profile.share
    blocks = context.part(blocks_needed(laws, share, number(laws, share), ALPHA))
    copies = max(ROWS_MIN // TYPES, math.ceil(blocks / REPLAYS_MIN / TYPES))
    copies = min(copies, context.profile.rows_max // TYPES)
    replays = max(REPLAYS_MIN, math.ceil(blocks / (copies * TYPES)))
    inputs = {"x": {name: torch.cat([value] * copies) for name, value in few.items()}}
    setting["buckets"] = (copies * TYPES,)
    case = f"{markov} head, V = {VOCABULARY}"
    notes = {"share": share}
    return Plan(NAME, case, setting, inputs, (Load("x"), *repeated(replays)), notes=notes)


def wide_plan(context: Context, markov: str) -> Plan:
    """No two rows alike, over a vocabulary that is too large to count; stage two draws afresh."""
    real = context.workload.real
    rows = REAL_ROWS if real else WIDE_ROWS
    material = context.workload.material(context.seed, WIDE, torch.float32)
    if not real:
        w2 = material.w2 * STRENGTH[markov]
        material = Material(material.head, material.w1, w2, material.vocabulary)
    setting = context.setting(material, drafts=WIDE_DRAFTS, buckets=(rows,))
    setting |= head_weights(context.seed, markov, setting)
    every = context.workload.rows(context.seed, material, rows, query_rows(setting), sharpen=False)
    heat = torch.tensor(HEATS).repeat(rows // len(HEATS))
    inputs = {"x": as_inputs(setting, *every, heat, torch.full((rows,), EVERY_ID))}
    case = f"{markov} head, V = {material.vocabulary}"
    name = f"{context.label}: {case}"
    seeds = [
        seed_of(NAME, name, "transform", stage, context.shard, context.seed) for stage in (1, 2)
    ]
    one: tuple[Command, ...] = (Replay(redraw=False), Read(only=("tokens",)))
    run = one * context.part(2 * context.profile.blocks)
    return Plan(NAME, case, setting, inputs, (Load("x"), *run), run, {"seeds": seeds})


def plans(context: Context) -> list[Plan]:
    """Requests that differ from row to row: over 8 ids, and over many; with HEADS, other heads."""
    if context.workload.real:
        return [wide_plan(context, "vanilla")]
    if "HEADS" not in context.abilities:
        return [plan(context, "vanilla"), wide_plan(context, "vanilla")]
    small = [plan(context, markov) for markov in ("vanilla", "rnn")]
    kinds = ["vanilla", WIDE_OTHER[context.dialect]]
    if context.profile.share > SPARING:
        kinds = kinds[1:] if context.dialect == "race" else kinds[:1]
    return small + [wide_plan(context, markov) for markov in kinds]


def bank_of(laws: Chain, share: float) -> list[tuple[int, tuple[Member, ...]]]:
    """All members by the counts they are read on: of the row alone, or beside a neighbour."""
    general = members(of_every_step(laws, laws.true))
    shares = (share, COMMON)
    bases = tuple(foreign_base(laws, turn, part) for turn in TURNS for part in shares)
    beside = [(turn, tuple(foreign_token(laws, turn, part) for part in shares)) for turn in TURNS]
    return [(0, general + own_faults(laws) + bases), *beside]


def alarm_of(alpha: float) -> float:
    """Half of what one small case may spend: the bank has one half, the scans the other."""
    return SHARES[LEDGER] / 2 * alpha / CASES / 2


def wide_alarm_of(alpha: float) -> float:
    """What bank and scans of a wide case spend together, half each; as much is left for G."""
    return SHARES[LEDGER] / 2 * alpha / WIDE_CASES / 2


def number(laws: Chain, share: float) -> int:
    """How many members are averaged."""
    return sum(len(group) for _, group in bank_of(laws, share))


def blocks_needed(laws: Chain, share: float, how_many: int, alpha: float) -> int:
    """Blocks at which a neighbour's previous token in `share` of the blocks is found.

    how_many members are averaged.
    """
    alarm = alarm_of(alpha)
    return max(
        blocks_for(foreign_token(laws, turn, share), joint(laws, turn), how_many, alarm, LINKED)
        for turn in TURNS
    )


def effect_of(laws: Chain, blocks: int, share: float, alpha: float) -> tuple[float, float, float]:
    """Smallest share of blocks, temperature error of the last step and lost mass of a block."""
    law = joint(laws)
    how_many, alarm = number(laws, share), alarm_of(alpha)

    def late(tilt: float) -> int:
        both = [late_tilt(laws, sign * tilt) for sign in (1, -0.999)]
        return max(blocks_for(one, law, how_many, alarm, LINKED) for one in both)

    shares = smallest(lambda part: blocks_needed(laws, part, how_many, alpha), blocks)
    block = law[: laws.vocabulary ** len(laws.steps) // laws.vocabulary]
    mass = smallest_mass(block, blocks // laws.types, alarm / looks(laws), MISS)
    return shares, smallest(late, blocks), mass


def looks(laws: Chain) -> int:
    """How many scans share the alarm: a block of each type, and each row of steps 0 and 1."""
    return laws.types * (2 + laws.vocabulary)


def scanned(laws: Chain, counts: Counts, alarm: float) -> tuple[str, Finding] | None:
    """The first scan that rejects, and what it scanned: whole blocks, then single rows."""
    each = alarm / looks(laws)
    truth = np.exp(of_every_step(laws, laws.true))
    sizes = [laws.types * laws.vocabulary**k for k in range(len(laws.steps))]
    blocks = (joint(laws)[-sizes[-1] :]).reshape(laws.types, -1)
    drawn = counts[-sizes[-1] :].reshape(laws.types, -1)
    tables = [(f"blocks of request {i}", blocks[i], drawn[i]) for i in range(laws.types)]
    rows = range(sizes[0] + sizes[1])
    tables += [(f"tokens after context {i}", truth[i], counts[i]) for i in rows]
    for name, law, seen in tables:
        if seen.sum() and (found := scan(law, seen, each)).rejects:
            return name, found
    return None


def gathered(history: History) -> sums.Sums | Verdict:
    """Counts of every context, or what is learned along the draws, of the last stage."""
    tokens = np.stack([event["outputs"]["tokens"].numpy() for event in history.of("read")])
    if ((tokens < 0) | (tokens >= history.setting["vocabulary"])).any():
        used = tokens.shape[0] * tokens.shape[1]
        return violated("tokens lie outside the vocabulary", used, unit="blocks")
    if "seeds" in history.notes:
        half = len(tokens) // history.stages
        return gathered_wide(history, tokens[-half:])
    laws = chain(history.setting, history.inputs["x"], TYPES)
    found = []
    for turn, bank in bank_of(laws, history.notes["share"]):
        counts = counted(laws, tokens, turn)
        log_e = sums.valued(bank, log_values(counts, bank))
        if turn == 0:
            truth, what = of_every_step(laws, laws.true), "[request and prefix, token], all steps"
            found.append(sums.Sum("own tokens", what, sums.digest(np.exp(truth)), counts, log_e))
        else:
            blocks = np.array([tokens.shape[0] * tokens.shape[1]])
            found.append(sums.Sum(f"beside row {turn:+d}", "[blocks]", "", blocks, log_e))
    return tuple(found)


def gathered_wide(history: History, tokens: Counts) -> sums.Sums:
    """Log e-values and their spread, fine bins, and cells of consecutive steps."""
    seed = history.notes["seeds"][history.stages - 1]
    seen = prefix_law.along(history.setting, history.inputs["x"], tokens, seed)
    drawn = np.array([tokens.shape[0] * tokens.shape[1], tokens.size, round(seen.spread / UNIT)])
    what = f"[blocks, draws, sum of variances of l / T in steps of {UNIT}]"
    values = sums.valued(prefix_law.MEMBERS, seen.values)
    bins = [
        sums.table(name, "[bin of the transform]", np.full(len(counts), 1 / len(counts)), counts)
        for name, counts in seen.bins.items()
    ]
    return (sums.Sum("chain of laws", what, "", drawn, values), *bins)


def check(history: History, ledger: Ledger) -> Verdict | Pending:
    """No id outside the vocabulary; then by counts, or draw by draw where there are too many."""
    seen = gathered(history)
    return seen if isinstance(seen, Verdict) else decided(history, seen, ledger)


def decided(history: History, seen: sums.Sums, ledger: Ledger) -> Verdict | Pending:
    """The answer to counts, wherever they were drawn."""
    if "seeds" in history.notes:
        return decided_wide(history, seen, ledger)
    return decided_counted(history, seen, ledger)


def decided_wide(history: History, seen: sums.Sums, ledger: Ledger) -> Verdict | Pending:
    """Likelihood ratios and fine bins, exact; then G, at 1e-3 and on fresh draws at 1e-6."""
    stage, alarm = history.stages, wide_alarm_of(ledger.alpha)
    used, draws, spread = seen[0].counts.tolist()
    bins = {one.law: one.counts for one in seen[1:]}
    if stage == 1:
        ledger.take(LEDGER, alarm + prefix_law.FITS * CASE_ALARM)
        reason = prefix_law.complaint(np.array(list(seen[0].log_e.values())), bins, alarm)
        if reason:
            return violated(reason, used, unit="blocks")
    found = prefix_law.fits(bins, STAGES[stage - 1])
    for name, fit in found:
        text = f"{name}: G = {fit.value:.6g} on {fit.degrees} degrees, p = {fit.p_value:.2g}"
        if fit.rejects and stage == 1:
            return Pending(f"{text} below {fit.level}")
        if fit.rejects:
            return violated(f"{text} on fresh draws, required >= {fit.level}", used, unit="blocks")
    share = prefix_law.smallest_share(found, draws)
    tilt = prefix_law.smallest_tilt(spread * UNIT, alarm)
    effect = (
        f"V = {history.setting['vocabulary']}: {100 * share:.2g} % of draws moved into one of "
        f"{found[0][1].degrees + 1} bins of their law, T off by {100 * tilt:.2g} % (97.5 %)"
    )
    return holds("each draw follows its law given what came before it", used, effect, "blocks")


def decided_counted(history: History, seen: sums.Sums, ledger: Ledger) -> Verdict:
    """Likelihood ratios of faults, on tokens and neighbours; scans of blocks and rows; exact."""
    laws, share = chain(history.setting, history.inputs["x"], TYPES), history.notes["share"]
    alarm, used = alarm_of(ledger.alpha), int(seen[-1].counts[0])
    ledger.take(LEDGER, 2 * alarm)
    log_e = [pair for one in seen for pair in one.log_e.items()]
    values = np.array([value for _, value in log_e])
    if rejects(values, alarm):
        return violated(
            f"blocks do not follow the chain of laws: likelihood ratio exp({mean_log(values):.4g}) "
            f"over the bank, required below {1 / alarm:.2g}; likest fault: "
            f"{log_e[int(values.argmax())][0]}",
            used,
            unit="blocks",
        )
    if strange := scanned(laws, seen[0].counts, alarm):
        name, found = strange
        return violated(
            f"{name}: {found.observed} in cells {list(found.cells[:4])} by {found.order}, expected "
            f"{found.expected:.1f}, p = {found.adjusted:.2g}, required > {alarm / looks(laws):.2g}",
            used,
            unit="blocks",
        )
    part, tilt, mass = effect_of(laws, used, share, ledger.alpha)
    if not math.isfinite(part):
        return unknown("no share of foreign previous tokens would have been seen", used)
    effect = (
        f"a neighbour's previous token in {100 * part:.2g} % of blocks, T off by {100 * tilt:.2g} "
        f"% at the last step, blocks of mass {mass:.2g} lost (95 %)"
    )
    return holds("blocks follow the laws of their own rows", used, effect, "blocks")
