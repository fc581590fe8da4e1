"""Where a fitted draft comes from: the user's cache, or a fit that is kept there.

A file is named by the digest of the model file and of the sources of the recipe, so another model
or another recipe is another draft. Chunks of answers are kept until the fit is done: a fit that was
interrupted goes on where it was.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from . import corpus, drafter, llama
from .corpus import Answers, answered, questions
from .drafter import (
    Examples,
    Fitted,
    Progress,
    agreement,
    descended,
    examples,
    heads_of,
    trunk_of,
)
from .smollm2 import Reading

CHUNK = 48  # answers that are written together
HELD_OUT = 6  # every sixth question stays out of the fit and measures it
SEED = 0


def silent(task: str, done: int, total: int) -> None:
    """Progress that nobody watches."""
    del task, done, total


def cache_folder() -> Path:
    """Where fitted drafts are kept, outside any checkout."""
    return Path.home() / ".cache" / "draftproof"


def recipe(model: Reading) -> str:
    """A name for what decides the fit: model file, sources, torch's version."""
    found = hashlib.sha256(f"{model.provenance} {torch.__version__} {CHUNK} {HELD_OUT}".encode())
    for module in (corpus, drafter, llama):
        found.update(Path(str(module.__file__)).read_bytes())
    return found.hexdigest()[:16]


def kept(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, part)
    part.replace(path)


def written(
    model: Reading, asked: Sequence[str], stem: Path, progress: Progress
) -> tuple[list[Path], list[Answers]]:
    """The answers to all questions, from kept chunks where there are some."""
    chunks = [asked[start : start + CHUNK] for start in range(0, len(asked), CHUNK)]
    paths = [stem.with_name(f"{stem.name}-answers-{n}.safetensors") for n in range(len(chunks))]
    found = []
    for number, (path, chunk) in enumerate(zip(paths, chunks, strict=True)):
        progress("letting the model write", number, len(chunks))
        if not path.is_file():
            kept(path, dict(vars(answered(model, chunk, SEED + number))))
        found.append(Answers(**load_file(path)))
    progress("letting the model write", len(chunks), len(chunks))
    return paths, found


def fit(model: Reading, answers: Sequence[Answers], progress: Progress = silent) -> Fitted:
    """Fit trunk and heads to answers, and measure them on those that were held out."""
    blocks, places, greedy = [], [], []
    for number, chunk in enumerate(answers):
        seen, row = examples(chunk)
        blocks.append(seen)
        places.append(row + number * CHUNK)
        greedy.append(chunk.greedy[row])
    together = Examples(
        *(torch.cat([getattr(one, name) for one in blocks]) for name in vars(blocks[0]))
    )
    # A form comes with every word, so that questions are held out word by word.
    held = torch.cat(places) // len(corpus.FORMS) % HELD_OUT == HELD_OUT - 1
    learned = together.of(~held)
    gain = model.network.base_model.norm.weight.detach()
    trunk = trunk_of(learned, model.head, gain, SEED)
    heads = heads_of(len(model.head), model.head.shape[1], SEED + 1)
    descended(trunk, heads, learned, model.head, SEED + 2, progress)
    measured = together.of(held & torch.cat(greedy))
    shares = agreement(trunk, heads, measured, model.head)
    return Fitted(trunk, heads, shares, len(measured.anchor))


def load_or_fit(model: Reading, folder: Path | None = None, progress: Progress = silent) -> Fitted:
    """The draft of this model and recipe, from the cache or fitted now and kept there.

    folder  the cache, by default the user's. progress(task, done, total) is called on the way.
    """
    where = cache_folder() if folder is None else folder
    stem = where / f"smollm2-draft-{recipe(model)}"
    path = stem.with_name(stem.name + ".safetensors")
    if not path.is_file():
        chunks, answers = written(model, questions(), stem, progress)
        kept(path, packed(fit(model, answers, progress)))
        for chunk in chunks:
            chunk.unlink()
    return unpacked(load_file(path))


def packed(draft: Fitted) -> dict[str, Tensor]:
    """A fitted draft as tensors by name."""
    parts = {f"trunk.{name}": part for name, part in draft.trunk.items()}
    for kind, weights in draft.markov.items():
        parts |= {f"{kind}.{name}": part for name, part in weights.items()}
    return parts | {"agreed": draft.agreed, "blocks": torch.tensor(draft.blocks)}


def unpacked(parts: dict[str, Tensor]) -> Fitted:
    """The fitted draft of tensors by name."""
    groups: dict[str, dict[str, Tensor]] = {}
    for name, part in parts.items():
        group, _, field = name.partition(".")
        if field:
            groups.setdefault(group, {})[field] = part
    trunk = groups.pop("trunk")
    return Fitted(trunk, groups, parts["agreed"], int(parts["blocks"]))
