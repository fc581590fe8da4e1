"""Acceptor: one decision a verify step, folded or eager, and the commit that came of it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from . import gate
from .acceptance import Asked, Commit, select
from .claim import claimed_law
from .coins import Coins, draw_coins
from .epilogue import VerifyEpilogue
from .filters import target_law
from .gate import AcceptFacts, Decision
from .noise import Noise, RaceNoise
from .stages import Accepts
from .target import Refused, Target


@dataclass(frozen=True)
class Drafted:
    """The block to accept, as its buffers hold it; nothing is copied.

    anchor      [B] int64
    tokens      [B, K] int64
    step_logits [B, K, V] step dtype, None when none were kept
    flags       [B, K] uint8
    temperature [B] float32, clamped at admission
    greedy      [B] bool: rows that are accepted by argmax
    top_k       [B] int64, as requested
    sampled_rows  a host flag: some row is not greedy
    one_hot     no row drew its tokens, so that q is a point mass at each
    folded      the block came from a replay
    bucket      rows that it ran at
    marked      where the coins of the block are
    """

    anchor: Tensor
    tokens: Tensor
    step_logits: Tensor | None
    flags: Tensor
    temperature: Tensor
    greedy: Tensor
    top_k: Tensor
    sampled_rows: bool
    one_hot: bool
    folded: bool
    bucket: int
    marked: Noise


@dataclass(frozen=True)
class Committed:
    """What a verify step commits; every tensor is the reader's own.

    correct_len  [B] int64: accepted drafts after the cut, without the bonus token
    bonus        [B] int64: residual or bonus token; -1 when nothing is committed
    trim         [B] int64: accepted drafts that the cut dropped
    commit_len   [B] int64: committed tokens
    new_seq_len  [B] int64: prefix + commit
    out_tokens   [B, K + 1] int64: accepted drafts, bonus token, then -1
    accept_flags [B] uint8: 1 when a target row that decides has no law, and nothing is committed
    coins        [B, K + 1] float32: uniforms used, zeros when every row is greedy
    folded       True when the commit came from a replay
    reason       the row of the accept table that decided
    """

    correct_len: Tensor
    bonus: Tensor
    trim: Tensor
    commit_len: Tensor
    new_seq_len: Tensor
    out_tokens: Tensor
    accept_flags: Tensor
    coins: Tensor
    folded: bool
    reason: str

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}


class Acceptor:
    """Accepts blocks eagerly, or believes the recorded epilogue when the gate says so.

    vocabulary  V of the draft
    coins       where uniforms come from
    epilogue    the recorded greedy accept, None without one
    accepts     what accepts eagerly, as stages.py chose it
    """

    def __init__(
        self,
        vocabulary: int,
        coins: Coins,
        epilogue: VerifyEpilogue | None,
        accepts: Accepts,
    ) -> None:
        self.vocabulary = vocabulary
        self.coins = coins
        self.epilogue = epilogue
        self.accepts = accepts

    def decide(self, block: Drafted, target: Target) -> Decision:
        """Ask the gate whether the recorded accept will be believed."""
        rows = block.tokens.shape[0]
        return gate.accept(
            AcceptFacts(
                block_folded=block.folded,
                sampled_rows=block.sampled_rows,
                logit_adjustment=target.logit_adjustment,
                live_grammar=target.live_grammar,
                verify_replayed=self.epilogue is not None and self.epilogue.replayable(rows),
            )
        )

    def accept(self, block: Drafted, target: Target) -> Committed:
        """Accept a block; again on the next call, with the same coins where they are counted.

        Refused: what no accept here can honour, before anything is drawn or written.
        RuntimeError: the replay contradicts the decision.
        """
        rows, drafts = block.tokens.shape
        target.check(rows, drafts, self.vocabulary)
        if block.sampled_rows and block.step_logits is None and not block.one_hot:
            raise Refused(
                "no sampled accept", "the block kept no step logits, and sampled rows need theirs"
            )
        decision = self.decide(block, target)
        if decision.fold == "eager" or self.epilogue is None:
            coins = self._coins(block)
            commit = eager_accept(block, target, coins, self.accepts)
        else:
            bucket = self.epilogue.run(target)
            if bucket != block.bucket:
                raise RuntimeError(
                    f"the verify replayed bucket {bucket}; the block ran at {block.bucket}"
                )
            coins = self._coins(block)
            commit = self.epilogue.read(rows)
        return Committed(
            commit.correct_len,
            commit.bonus,
            commit.trim,
            commit.commit,
            commit.new_seq_lens,
            commit.out_tokens,
            commit.flags,
            coins,
            folded=decision.fold != "eager",
            reason=decision.reason,
        )

    def _coins(self, block: Drafted) -> Tensor:
        rows, wide = block.tokens.shape[0], block.tokens.shape[1] + 1
        # A generator moves by the same draws whatever the rows ask for.
        if not block.sampled_rows and not isinstance(block.marked, RaceNoise):
            return torch.zeros(rows, wide, dtype=torch.float32, device=block.tokens.device)
        coins = draw_coins(block.marked, rows, wide)
        return coins if block.sampled_rows else torch.zeros_like(coins)


def eager_accept(block: Drafted, target: Target, coins: Tensor, accepts: Accepts) -> Commit:
    """Accept a block with given coins: greedy rows by argmax, sampled ones by the rule.

    coins [B, K + 1] float32, not looked at in an all-greedy block
    """
    rows, drafts = block.tokens.shape
    candidates = torch.cat((block.anchor[:, None], block.tokens), 1)
    asked = Asked(candidates, target.verify_len, target.prefix_len)
    out = Commit.empty(rows, drafts, candidates.device)
    logits = target.logits.flatten(0, 1)
    accepts.greedy(candidates, logits, target.verify_len, target.prefix_len, out)
    if not block.sampled_rows:
        return out
    law = target_law(target.logits, block.temperature, block.top_k, target.top_p)
    # A greedy row did not draw its tokens either.
    points = torch.ones_like(block.greedy) if block.one_hot else block.greedy
    kept = None if block.one_hot else block.step_logits
    claim = claimed_law(block.tokens, kept, block.temperature, points, block.flags, law.shape[-1])
    sampled = Commit.empty(rows, drafts, candidates.device)
    accepts.rules[target.rule](asked, law, claim, coins, sampled)
    select(block.greedy, out, sampled, out)
    return out
