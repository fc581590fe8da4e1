"""The draft block over buffers and stages: the function that is captured.

DSPARK: base logits once, then K times bias, step logits, noise, choice; each choice feeds the next
bias. DFLASH: base logits once, and the argmax of every position. A confidence head looks at the
finished block: the hidden states before the muP division, and the token before each draft.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .bias import MarkovHead, embedded
from .buffers import Buffers
from .confidence import ConfidenceHead
from .logits import OutputHead
from .noise import Noise
from .shapes import Shapes
from .stages import Stages


@dataclass(frozen=True)
class DflashDraft:
    """A greedy block without a bias: every position on its own."""

    shapes: Shapes
    head: OutputHead
    confidence: ConfidenceHead | None = None

    def __post_init__(self) -> None:
        if self.confidence is not None:
            self.confidence.fit(self.shapes.drafts, self.shapes.hidden, 0)

    @property
    def greedy_draft(self) -> bool:
        """Every row drafts its argmax, whatever it asks for."""
        return True

    @property
    def dialect(self) -> str:
        """What the block draws: nothing."""
        return "none"

    @property
    def kind(self) -> str:
        """The Markov head: the stages have one, and it is never called."""
        return "vanilla"

    @property
    def noise(self) -> Noise | None:
        """The noise state that a block moves: none."""
        return None

    def weights(self) -> dict[str, Tensor]:
        """The weights that a recording reads by address."""
        return {"head.weight": self.head.weight, **_weights(self.confidence)}

    def block(self, stages: Stages, buffers: Buffers, hidden: Tensor, anchor: Tensor) -> None:
        """Draft one block into the buffers `tokens` and `flags`.

        hidden [Bp * Q, D]: draft hidden states; anchor [Bp] int64: its rows count, not its values
        """
        rows = anchor.shape[0]
        tokens = buffers["tokens"][:rows]
        base = buffers["base_logits"][:rows]
        asked = queries(self.shapes, hidden)
        flags = buffers["flags"][:rows]
        if stages.head is None:
            stages.logits(self.head, asked, base)
            stages.choice(base, None, None, None, tokens, flags)
        else:
            stages.head(self.head, asked, base, tokens, flags)
        tokens.add_(self.head.vocab_start)
        if self.confidence is not None:
            stages.rate(self.confidence, (asked,), *rated(buffers, rows))


@dataclass(frozen=True)
class DsparkDraft:
    """A block with a Markov bias, greedy and sampled rows mixed.

    noise         the state that sampled drafts move; a greedy draft leaves it alone
    greedy_draft  every row drafts its argmax, whatever it asks for
    """

    shapes: Shapes
    head: OutputHead
    markov: MarkovHead
    noise: Noise
    confidence: ConfidenceHead | None = None
    greedy_draft: bool = False

    def __post_init__(self) -> None:
        self.markov.fit(self.shapes.vocabulary, self.shapes.hidden)
        if self.confidence is not None:
            self.confidence.fit(self.shapes.drafts, self.shapes.hidden, self.markov.rank)

    @property
    def dialect(self) -> str:
        """What the block draws: the dialect of its noise, or 'none'."""
        return "none" if self.greedy_draft else self.noise.dialect

    @property
    def kind(self) -> str:
        """The kind of the Markov head."""
        return self.markov.kind

    def weights(self) -> dict[str, Tensor]:
        """The weights that a recording reads by address."""
        own = {"head.weight": self.head.weight}
        return {**own, **self.markov.weights(), **_weights(self.confidence)}

    def block(self, stages: Stages, buffers: Buffers, hidden: Tensor, anchor: Tensor) -> None:
        """Draft one block into the buffers `tokens`, `flags` and, when kept, `step_logits`.

        hidden [Bp * Q, D]: draft hidden states; anchor [Bp] int64: the tokens before the block
        """
        asked = queries(self.shapes, hidden)
        stages.logits(self.head, asked, buffers["base_logits"][: anchor.shape[0]])
        if stages.chain is None:
            self._step_by_step(stages, buffers, asked, anchor)
        else:
            stages.chain(self.markov, self.noise, buffers, anchor)
        self.rate(stages, buffers, asked, anchor)

    def _step_by_step(
        self, stages: Stages, buffers: Buffers, asked: Tensor, anchor: Tensor
    ) -> None:
        rows = anchor.shape[0]
        temperature, greedy = buffers["temperature"][:rows], buffers["greedy"][:rows]
        tokens, flags = buffers["tokens"][:rows], buffers["flags"][:rows]
        base = buffers["base_logits"][:rows]
        state = zeroed(buffers.get("markov_state"), rows)
        previous = anchor
        for step in range(self.shapes.drafts):
            column = buffers.step_column(rows, step)
            bias, after = stages.bias(self.markov, previous, asked[:, step], state)
            if state is not None and after is not None:
                state.copy_(after)
            stages.step(base[:, step], bias, column)
            drawn = stages.noise(self.noise, rows, step, buffers.get("exp_noise"))
            stages.choice(column, temperature, greedy, drawn, tokens[:, step], flags[:, step])
            previous = tokens[:, step]
        stages.advance(self.noise)

    def rate(self, stages: Stages, buffers: Buffers, asked: Tensor, anchor: Tensor) -> None:
        """Rate the drafts in the buffer `tokens`, when a confidence head is wanted.

        asked [Bp, K, D]: the hidden states they were drafted from; anchor [Bp] int64
        """
        if self.confidence is None:
            return
        rows = anchor.shape[0]
        tokens = buffers["tokens"][:rows]
        features = (asked, *self._embedded(self.confidence, anchor, tokens))
        stages.rate(self.confidence, features, *rated(buffers, rows))

    def _embedded(
        self, confidence: ConfidenceHead, anchor: Tensor, tokens: Tensor
    ) -> tuple[Tensor, ...]:
        if not confidence.takes_tokens(self.shapes.hidden):
            return ()
        before = torch.cat([anchor[:, None], tokens[:, :-1]], 1)
        return (embedded(self.markov, before),)


Draft = DflashDraft | DsparkDraft


def queries(shapes: Shapes, hidden: Tensor) -> Tensor:
    """Return the rows that predict drafts, [Bp, K, D], of hidden states [Bp * Q, D]."""
    block = hidden.view(-1, shapes.query_rows, shapes.hidden)
    return block[:, shapes.first_query :]


def _weights(confidence: ConfidenceHead | None) -> dict[str, Tensor]:
    return {} if confidence is None else confidence.weights()


def rated(buffers: Buffers, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return where a rating goes: raw, confidence and flags of the first rows."""
    raw, confidence = buffers["confidence_raw"][:rows], buffers["confidence"][:rows]
    return raw, confidence, buffers["confidence_flags"][:rows]


def zeroed(state: Tensor | None, rows: int) -> Tensor | None:
    """Zero the state of the first rows and return it; None without a state."""
    # Part of the recording: every block starts from zero, whatever the block before left here.
    return None if state is None else state[:rows].zero_()
