"""The draft block over buffers and stages: the function that is captured.

DSPARK: base logits once, then K times bias, step logits, noise, choice; each choice feeds the next
bias. DFLASH: base logits once, and the argmax of every position.
"""

from dataclasses import dataclass

from torch import Tensor

from .bias import MarkovHead
from .buffers import Buffers
from .logits import OutputHead
from .noise import Noise
from .shapes import Shapes
from .stages import Stages


@dataclass(frozen=True)
class DflashDraft:
    """A greedy block without a bias: every position on its own."""

    shapes: Shapes
    head: OutputHead

    @property
    def noise(self) -> Noise | None:
        """The noise state that a block moves: none."""
        return None

    def weights(self) -> dict[str, Tensor]:
        """The weights that a recording reads by address."""
        return {"head.weight": self.head.weight}

    def block(self, stages: Stages, buffers: Buffers, hidden: Tensor, anchor: Tensor) -> None:
        """Draft one block into the buffers `tokens` and `flags`.

        hidden [Bp * Q, D]: draft hidden states; anchor [Bp] int64: its rows count, not its values
        """
        rows = anchor.shape[0]
        tokens = buffers["tokens"][:rows]
        base = buffers["base_logits"][:rows]
        stages.logits(self.head, queries(self.shapes, hidden), base)
        stages.choice(base, None, None, None, tokens, buffers["flags"][:rows])
        tokens.add_(self.head.vocab_start)


@dataclass(frozen=True)
class DsparkDraft:
    """A block with a Markov bias, greedy and sampled rows mixed."""

    shapes: Shapes
    head: OutputHead
    markov: MarkovHead
    noise: Noise

    def __post_init__(self) -> None:
        wide, one, two = self.shapes.vocabulary, len(self.markov.w1), len(self.markov.w2)
        if one < wide or two != wide:
            raise ValueError(
                f"w1 has {one} rows and w2 {two}; they should have at least and exactly "
                f"the vocabulary of {wide}"
            )

    def weights(self) -> dict[str, Tensor]:
        """The weights that a recording reads by address."""
        weights = {"head.weight": self.head.weight}
        return weights | {"markov.w1": self.markov.w1, "markov.w2": self.markov.w2}

    def block(self, stages: Stages, buffers: Buffers, hidden: Tensor, anchor: Tensor) -> None:
        """Draft one block into the buffers `tokens`, `flags` and, when kept, `step_logits`.

        hidden [Bp * Q, D]: draft hidden states; anchor [Bp] int64: the tokens before the block
        """
        rows = anchor.shape[0]
        temperature, greedy = buffers["temperature"][:rows], buffers["greedy"][:rows]
        tokens, flags = buffers["tokens"][:rows], buffers["flags"][:rows]
        base = buffers["base_logits"][:rows]
        stages.logits(self.head, queries(self.shapes, hidden), base)
        previous = anchor
        for step in range(self.shapes.drafts):
            column = buffers.step_column(rows, step)
            stages.step(base[:, step], stages.bias(self.markov, previous), column)
            drawn = stages.noise(self.noise, rows, step, buffers.get("exp_noise"))
            stages.choice(column, temperature, greedy, drawn, tokens[:, step], flags[:, step])
            previous = tokens[:, step]
        stages.advance(self.noise)


Draft = DflashDraft | DsparkDraft


def queries(shapes: Shapes, hidden: Tensor) -> Tensor:
    """Return the rows that predict drafts, [Bp, K, D], of hidden states [Bp * Q, D]."""
    block = hidden.view(-1, shapes.query_rows, shapes.hidden)
    return block[:, shapes.first_query :]
