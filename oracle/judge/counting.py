"""How often each pair of tokens was drafted, counted by the judge from the tokens it reads."""

from collections.abc import Iterable

import torch

from .fields import MalformedError


def pairs(left: torch.Tensor, right: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Cells of two tokens, column by column: left, right [n, K]; returns int64 [K, V, V]."""
    drafts = left.shape[1]
    column = torch.arange(drafts, device=left.device) * vocabulary**2
    cells = (left * vocabulary + right + column).flatten()
    counts = torch.bincount(cells, minlength=drafts * vocabulary**2)
    return counts.view(drafts, vocabulary, vocabulary)


def tabulated(
    tokens: torch.Tensor, sooner: torch.Tensor | None, anchor: torch.Tensor, vocabulary: int
) -> dict[str, torch.Tensor]:
    """The tables of one block: tokens [B, K]; sooner: those of the replay before, if any."""
    before = torch.cat([anchor.unsqueeze(1), tokens[:, :-1]], 1)
    even = len(tokens) // 2 * 2
    found = {
        "steps": pairs(before, tokens, vocabulary),
        "rows": pairs(tokens[0:even:2], tokens[1:even:2], vocabulary),
    }
    found["replays"] = (
        torch.zeros_like(found["steps"]) if sooner is None else pairs(sooner, tokens, vocabulary)
    )
    return found


def counted(
    blocks: Iterable[torch.Tensor], anchor: torch.Tensor, vocabulary: int
) -> dict[str, torch.Tensor]:
    """The tables of the tokens of successive blocks, on the device they lie on.

    blocks [B, K] int64 each; anchor [B]. MalformedError: a token is no id.
    """
    total: dict[str, torch.Tensor] = {}
    sooner: torch.Tensor | None = None
    for tokens in blocks:
        if bool(((tokens < 0) | (tokens >= vocabulary)).any()):
            raise MalformedError(f"tokens {tokens.unique().tolist()} lie outside the vocabulary")
        found = tabulated(tokens, sooner, anchor, vocabulary)
        total = {name: found[name] + total[name] if total else found[name] for name in found}
        sooner = tokens
    return total
