"""Text that a draft is fitted on: the model's own answers to short questions, with its states.

Questions are forms filled with words, put in the model's chat format. Half of the answers are
greedy, half are sampled at T = 1. A chunk of answers is drawn from a seed of its own, so that a
chunk that is stored need not be written again.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .llama import Slots
from .smollm2 import INSTALL, LIBRARIES, MissingError, Reading, find_gguf, open_model

WORDS = (
    *("harbour", "volcano", "library", "honey", "garden", "train"),
    *("moon", "letter", "bicycle", "forest", "doctor", "coffee"),
)
FORMS = (
    "Write a short story about a {}.",
    "Explain what a {} is to a child.",
    "List five facts about the word {}.",
    "Why do people like the {}?",
    "Describe a {} in three sentences.",
    "Give me advice on how to draw a {}.",
    "What would happen if the {} disappeared?",
    "Write a poem about a {}.",
    "How does a {} work?",
    "Who was the first to write of a {}?",
    "Compare a {} with a stone.",
    "Say {} in French and use it in a sentence.",
    "Write an email in which someone asks for a {}.",
    "What do I need to make a {}?",
    "Where would I find a {}?",
    "Tell me a joke about a {}.",
)
ANSWER = 40  # tokens of an answer
END = (0, 2)  # <|endoftext|> and <|im_end|> end an answer


@dataclass(frozen=True)
class Answers:
    """Answers of one chunk, padded to one length.

    tokens [N, n] int64: question and answer. states [N, n, D] float32: the hidden states after each
    begun [N] int64: where the answer begins; it ends with the row. greedy [N] bool
    """

    tokens: Tensor
    states: Tensor
    begun: Tensor
    greedy: Tensor


def opened() -> Reading:
    """The opened model. Raises what find_gguf does, and MissingError without a library."""
    place = find_gguf()
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"{missing[0]} is not installed, but should be: {INSTALL}")
    return open_model(*place)


def chat(model: Reading, question: str) -> list[int]:
    """The token ids of a question in the model's chat format, up to where its answer begins."""
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    found: list[int] = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    return found


def questions() -> list[str]:
    """Every form with every word; neighbours differ in their form."""
    return [form.format(word) for word in WORDS for form in FORMS]


@torch.no_grad()
def answered(model: Reading, asked: Sequence[str], seed: int) -> Answers:
    """Let the model answer, every other question greedily; ANSWER tokens each, none left out."""
    prompts = [torch.tensor(chat(model, question)) for question in asked]
    begun = torch.tensor([len(prompt) for prompt in prompts])
    rows, top = len(prompts), int(begun.max())
    network = Slots(model.network, rows, top + ANSWER)
    source, slots = torch.Generator().manual_seed(seed), torch.arange(rows)
    tokens = torch.zeros(rows, top + ANSWER, dtype=torch.int64)
    tokens[:, :top] = torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True)
    states = torch.zeros(rows, top + ANSWER, network.head.shape[1])
    states[:, :top] = network.extend(slots, tokens[:, :top], torch.zeros_like(begun))
    greedy = slots % 2 == 0
    for place in range(ANSWER):
        logits = network.logits(states[slots, begun + place - 1])
        noise = torch.empty_like(logits).exponential_(generator=source)
        chosen = torch.where(greedy[:, None], logits, logits - noise.log()).argmax(-1)
        tokens[slots, begun + place] = chosen
        read = network.extend(slots, chosen[:, None], begun + place)
        states[slots, begun + place] = read[:, 0]
    return Answers(tokens, states, begun, greedy)
