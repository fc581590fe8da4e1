"""The whole block: the fold, run eagerly, equals the reference on the same noise."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from impl.bias import MarkovHead
from impl.buffers import Buffers, Layout
from impl.draft import DflashDraft, DsparkDraft
from impl.logits import OutputHead
from impl.noise import CounterNoise
from impl.sampler import admit
from impl.shapes import Shapes
from impl.stages import stages_for
from oracle.reference import choice, draft, logits, noise

from .strategies import Shape, grid, parameters, shapes, source

CPU = torch.device("cpu")


def layout(shape: Shape, family: str) -> Layout:
    """Buffers for exactly one bucket of the drawn rows."""
    sizes = Shapes(
        drafts=shape.drafts,
        vocabulary=shape.vocabulary,
        stored_columns=shape.stored,
        hidden=shape.hidden,
        rank=shape.rank if family == "dspark" else 0,
        buckets=(shape.rows,),
        sample_from_anchor=shape.dropped == 0,
    )
    fold = "sampled" if family == "dspark" else "greedy"
    dialect = "counter" if family == "dspark" else "none"
    step = shape.step_dtype if family == "dspark" else shape.dtype
    return Layout(sizes, family, dialect, fold, "given", shape.dtype, step)


@given(shapes(), st.integers(0, 2**33))
def test_a_dspark_block_equals_the_reference(shape: Shape, block: int) -> None:
    """Tokens, kept logits and flags of mixed batches, wherever no two keys nearly tie."""
    draw = source(shape.seed)
    weight = grid(draw, shape.stored, shape.hidden).to(shape.dtype)
    w1, w2 = (grid(draw, shape.vocabulary, shape.rank).to(shape.dtype) for _ in range(2))
    hidden = grid(draw, shape.rows, shape.drafts + shape.dropped, shape.hidden).to(shape.dtype)
    anchor = torch.randint(0, shape.vocabulary, (shape.rows,), generator=draw)
    heat, top_k = parameters(draw, shape.rows)
    state = CounterNoise.seeded(shape.vocabulary, shape.seed, CPU)
    state.block.fill_(block)
    buffers = Buffers(layout(shape, "dspark"), CPU, state.state)
    admitted = admit(heat, top_k)
    buffers.load("temperature", admitted.temperature, shape.rows)
    buffers.load("greedy", admitted.greedy, shape.rows)
    head = OutputHead(weight, shape.vocabulary)
    folded = DsparkDraft(buffers.layout.shapes, head, MarkovHead(w1, w2), state)
    stages = stages_for("torch", "counter", "sampled")
    folded.block(stages, buffers, hidden.flatten(0, 1), anchor)
    e = noise.counter_noise(shape.rows, shape.drafts, shape.vocabulary, block, shape.seed)
    base = logits.base_logits(logits.draft_rows(hidden, shape.drafts), weight, shape.vocabulary)
    bias, clamped = draft.vanilla(w1, w2), choice.clamped(heat)
    greedy = choice.is_greedy(heat, top_k)
    tokens, kept, flags = draft.markov_block(
        base, anchor, bias, clamped, greedy, e, "counter", shape.step_dtype
    )
    keys = choice.keys(kept, clamped[:, None].expand(-1, shape.drafts), e, "counter")
    top = keys.topk(2, dim=-1).values
    near = ((top[..., 0] - top[..., 1]) < 1e-4 * (1 + top[..., 0].abs())).any(1) & ~greedy
    assert torch.equal(buffers["tokens"][~near], tokens[~near])
    assert torch.equal(buffers["step_logits"][~near].double(), kept[~near])
    assert torch.equal(buffers["flags"], flags)
    assert int(state.block) == block + 1


@given(shapes(), st.integers(0, 1000))
def test_a_dflash_block_equals_the_reference(shape: Shape, vocab_start: int) -> None:
    """Argmax in the head's dtype, ties to the lowest id, as global ids."""
    draw = source(shape.seed)
    weight = grid(draw, shape.stored, shape.hidden).to(shape.dtype)
    hidden = grid(draw, shape.rows, shape.drafts + shape.dropped, shape.hidden).to(shape.dtype)
    buffers = Buffers(layout(shape, "dflash"), CPU, {})
    head = OutputHead(weight, shape.vocabulary, vocab_start)
    folded = DflashDraft(buffers.layout.shapes, head)
    stages = stages_for("torch", "none", "greedy")
    folded.block(stages, buffers, hidden.flatten(0, 1), torch.zeros(shape.rows, dtype=torch.int64))
    base = logits.base_logits(logits.draft_rows(hidden, shape.drafts), weight, shape.vocabulary)
    assert torch.equal(buffers["tokens"], draft.greedy_block(base, vocab_start))


@given(shapes(vocabulary_max=20))
def test_the_walk_gives_back_the_logits_of_the_block(shape: Shape) -> None:
    """Walking a block along its own tokens repeats every step's logits."""
    draw = source(shape.seed)
    base = grid(draw, shape.rows, shape.drafts, shape.vocabulary).double()
    bias = draft.vanilla(grid(draw, shape.vocabulary, 2), grid(draw, shape.vocabulary, 2))
    anchor = torch.randint(0, shape.vocabulary, (shape.rows,), generator=draw)
    heat = torch.full((shape.rows,), 0.9, dtype=torch.float64)
    greedy = torch.zeros(shape.rows, dtype=torch.bool)
    e = noise.counter_noise(shape.rows, shape.drafts, shape.vocabulary, 0, shape.seed)
    tokens, kept, _ = draft.markov_block(
        base, anchor, bias, heat, greedy, e, "race", torch.bfloat16
    )
    assert torch.equal(kept, draft.walked_logits(base, anchor, tokens, bias, torch.bfloat16))
