"""What an adapter author reads: how a sampler is put under test.

A *subject* is any draft sampler behind four verbs. Plain mappings of tensors cross the border, not
classes of ours, so an adapter imports nothing from draftproof. Dimension letters: B live rows, Bp
the captured bucket (Bp >= B), K drafts a block, Q query rows a request (K, or K + 1 when the anchor
row is dropped), V real vocabulary, W stored head rows (W >= V; only V may win), D hidden size,
R Markov width.

    factory(setting) -> subject     raise NotImplementedError(reason) for a setting you cannot serve
    subject.describe() -> mapping   name, abilities, and what is listed in DESCRIPTION
    subject.load(inputs)            copy INPUTS into the sampler's own buffers
    subject.replay()                run one block
    subject.read() -> mapping       OUTPUTS of that block

A claimed ability adds the verbs that ABILITIES names for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch

Tensors: TypeAlias = Mapping[str, torch.Tensor]
Setting: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """One named tensor that crosses the border: dimension letters, dtype and meaning."""

    shape: str
    dtype: str
    meaning: str


SETTING = {
    "family": "'dflash' (no bias, greedy) or 'dspark' (Markov bias, greedy and sampled rows mixed)",
    "dialect": "'none' (dflash), 'race' or 'counter': where the noise of sampled rows comes from",
    "forward": "'given' (hidden states are an input) or 'backbone' (the subject's own draft model)",
    "buckets": "tuple of row counts to capture, ascending; the largest is Bmax",
    "drafts": "K",
    "vocabulary": "V",
    "sample_from_anchor": "True: Q = K and row 0 predicts draft 0; False: Q = K + 1, row 0 dropped",
    "step_dtype": "dtype name of the step logits, the ones that tokens are picked from",
    "head": "tensor [W, D], fp16, bf16 or fp32: the borrowed lm_head; rows past V are padding",
    "w1": "tensor [V, R], dspark only: Markov embedding of the previous token",
    "w2": "tensor [V, R], dspark only: Markov projection, bias = w1[previous] @ w2.T",
    "markov": "'vanilla', 'gated' or 'rnn', dspark; vanilla when absent",
    "w3": "tensor, gated [R, D + R], rnn [3 R, 2 R + D]: see README, Markov heads",
    "b3": "tensor, gated [R], rnn [3 R]",
    "mup": "float: hidden states are divided by it once, before the head; 1.0 when absent",
    "confidence_weight": "tensor [1, D] or [1, D + R] float32, when a confidence head is wanted",
    "confidence_bias": "tensor [1] float32",
    "confidence_sts": "tensor [K] float32, all > 0: sequential temperature scaling",
    "shard_ranges": "with RANKS: ((start, end), ...), ids of each process; weights come whole",
    "greedy_draft": "bool: every row drafts its argmax and is accepted as one-hot; else False",
    "device": "'cpu' or 'cuda'",
    "engine": "'emulator', 'cuda' or 'eager': what captures and replays",
    "seed": "int: the noise seed",
}

INPUTS = {
    "hidden": Field("B Q D", "head", "draft hidden states; present when forward is 'given'"),
    "context": Field("B D", "head", "target features; present when forward is 'backbone'"),
    "anchor": Field("B", "int64", "last committed token, in [0, V)"),
    "temperature": Field("B", "float32", "as requested: finite, >= 0; clamped once by the subject"),
    "top_k": Field("B", "int64", "top_k <= 1 or temperature < 1e-6 makes the row greedy"),
}

OUTPUTS = {
    "tokens": Field("B K", "int64", "the drafted block; always present"),
    "flags": Field("B K", "uint8", "0 sound, 1 NaN in the step logits, 2 no finite logit"),
    "hidden": Field("B Q D", "head", "with FORWARD: the hidden states that were sampled from"),
    "step_logits": Field("B K V", "step", "with CLAIMS: kept corrected logits, bit for bit"),
    "temperature": Field("B", "float32", "with CLAIMS: the clamped value that drew the token"),
    "greedy": Field("B", "bool", "with CLAIMS: rows that took the argmax"),
    "confidence": Field("B K", "float32", "with CONFIDENCE: squashed, calibrated, in [0, 1]"),
    "confidence_raw": Field("B K", "float32", "with CONFIDENCE: before scaling and squashing"),
    "confidence_flags": Field("B K", "uint8", "with CONFIDENCE: 1 where confidence is NaN"),
}

TARGET = {
    "target_logits": Field("B K+1 V", "float32", "row t is the law after candidate t"),
    "top_p": Field("B", "float32", "in (0, 1]; 1 keeps everything"),
    "verify_len": Field("B", "int64", "rows verified, in [0, K + 1]; 0 commits nothing"),
    "prefix_len": Field("B", "int64", "committed length before the block"),
}

COMMIT = {
    "correct_len": Field("B", "int64", "accepted drafts after the cut, without the bonus token"),
    "bonus": Field("B", "int64", "residual or bonus token; -1 when nothing is committed"),
    "trim": Field("B", "int64", "accepted drafts that the cut dropped"),
    "commit_len": Field("B", "int64", "committed tokens"),
    "new_seq_len": Field("B", "int64", "prefix + commit"),
    "out_tokens": Field("B K+1", "int64", "accepted drafts, bonus token, then -1"),
    "accept_flags": Field("B", "uint8", "1: NaN in a target row that decides, nothing committed"),
    "coins": Field(
        "B K+1",
        "float32",
        "uniforms used: K accept coins, then the final draw; NaN where the subject cannot show"
        " them: then no check speaks of the rule coin by coin",
    ),
}

COUNTED = {
    "steps": Field("K V V", "int64", "[k, a, b]: draft k was b after a, the anchor at k = 0"),
    "rows": Field("K V V", "int64", "[k, a, b]: draft k of row 2 r was a, that of row 2 r + 1 b"),
    "replays": Field("K V V", "int64", "[k, a, b]: draft k of a row was a, one replay later b"),
}

DESCRIPTION = {
    "name": "str, as printed",
    "abilities": "tuple of names in ABILITIES",
    "rules": "tuple, optional, with ACCEPTS: the rules that accept serves; default both",
    "stages": "str, optional: the arithmetic, a key of margin.ARITHMETIC; default 'torch-<device>'",
    "blind": "tuple of str, optional: what its engine cannot show; printed with the verdict",
}

ABILITIES = {
    "DRAWS": "sampled rows follow their temperature (without it every row is greedy)",
    "CLAIMS": "read() returns step_logits, temperature and greedy",
    "FLAGS": "read() returns flags",
    "FORWARD": "serves forward='backbone' and then returns hidden",
    "REPLAYS": "path() -> {folded: bool, reason: str, replays: int, bucket: int, kernels: tuple};"
    " before the first block: folded False, replays 0, bucket 0",
    "BUFFERS": "buffers() -> {name: {tensor, role, pad, rows}}, see ROLES and PADS",
    "NOISE": "noise_state() -> see NOISE_STATE; reseed(seed: int)",
    "COUNTS": "counts(replays) -> COUNTED, with NOISE: so many blocks of what is loaded, like as"
    " many replay()s, and how often each pair of tokens came up in the live rows of this call",
    "EAGER": "eager(inputs) -> OUTPUTS: a block outside the recording; what was loaded stays",
    "WEIGHTS": "reweight(weights: {'head', 'w1', ...: tensor}): copied into the weights in use",
    "HEADS": "serves markov 'gated' and 'rnn', and mup",
    "CONFIDENCE": "serves confidence_weight and then returns the confidence fields",
    "ACCEPTS": "accept(target) -> COMMIT for the block just run; target holds TARGET and"
    " rule: 'chain' or 'block' (block verification); what it cannot honour it refuses by name",
    "RANKS": "serves shard_ranges over torchrun's processes; all ask gate(facts) at once",
    "GATES": "gate(facts) -> {fold: 'eager' | 'greedy' | 'sampled', reason: str}, see FACTS",
}

VERBS = {
    "REPLAYS": ("path",),
    "BUFFERS": ("buffers",),
    "NOISE": ("noise_state", "reseed"),
    "COUNTS": ("counts",),
    "EAGER": ("eager",),
    "WEIGHTS": ("reweight",),
    "ACCEPTS": ("accept",),
    "GATES": ("gate",),
}

# input, parameter: written by load. noise: redrawn in the recording. scratch: used within a replay.
# output: written by the replay, then read. state: carried on (a counter); never poisoned.
ROLES = ("input", "parameter", "noise", "scratch", "output", "state")

# What pad rows (B <= row < Bp) hold after a load and a replay. neutral: the value in NEUTRAL,
# whatever was there before. undefined: nothing is claimed about them.
PADS = ("neutral", "undefined")
NEUTRAL = {"anchor": 0, "temperature": 1.0, "greedy": True, "hidden": 0.0, "context": 0.0}

NOISE_STATE = {
    "counter": "{dialect, seed_key: int (64 bits), block: int (blocks drawn so far)}",
    "counter-unbounded": "the same words with u = (float32(bits) + 1/2) 2^-32: the largest 128 of"
    " them give u = 1 and E = inf, so that an id at -inf may win; serves the dialect counter",
    "race": "{dialect, generator: uint8 tensor, torch.Generator state of the next draw}",
}

# What a gate is asked about: facts['table'] names the table, the others are plain values.
FACTS = {
    "build": {
        "family": "'dflash' or 'dspark'",
        "switched_off": "bool: folding is disabled by the operator",
        "engine_available": "bool: something can capture",
        "drafts": "int: K",
        "has_head": "bool: there is an lm_head to borrow",
        "vocabulary": "int: V",
        "has_weight": "bool: the head has a dense weight",
        "weight_dtype": "dtype name of that weight",
        "stored_rows": "int: W",
        "added_vocabulary": "int: added ids, outside the base vocabulary",
        "ranks": "int: tensor-parallel processes",
        "has_shard_ranges": "bool: the sharded head says which ids it holds",
        "sharded_dflash": "'fold' or 'eager': the operator's rule for dflash over ranks",
        "has_base_logits": "bool, dspark: the draft model offers its base logits",
        "has_markov_head": "bool, dspark",
        "mode": "'off', 'auto' or 'force': folding of sampling",
        "free_bytes": "int, or None where no device memory can run out",
        "need_bytes": "int: bytes of all static sampler tensors",
    },
    "step": {
        "tail": "'eager' (no sampler), 'greedy' or 'sampled': what build answered",
        "recording_ran": "bool",
        "sampled_rows": "bool: some row samples",
    },
    "accept": {
        "block_folded": "bool",
        "sampled_rows": "bool",
        "logit_adjustment": "bool: penalties, bias or a processor change the target logits",
        "live_grammar": "bool",
        "verify_replayed": "bool",
    },
}


@runtime_checkable
class Subject(Protocol):
    """The four verbs every subject has; see the module docstring and ABILITIES for the others."""

    def describe(self) -> Mapping[str, Any]: ...

    def load(self, inputs: Tensors) -> None: ...

    def replay(self) -> None: ...

    def read(self) -> Tensors: ...


Factory: TypeAlias = Callable[[Setting], Subject]
