"""Nights for tests: small chunks of the draft law, drawn without the command line."""

from typer.testing import CliRunner

from oracle.commands import app
from oracle.judge.evidence import Evidence
from oracle.judge.night import Night
from oracle.judge.protocol import Factory
from oracle.judge.significance import Counts
from oracle.judge.stream import KINDS, Stream
from oracle.judge.trial import Trial
from oracle.judge.verdict import Verdict

from .judging import FOLDED, context, probed

CASE = "draft_law, dspark/counter"
ONLY = ("--engine", "emulator", "--only", "dspark/counter")
DRAFT = KINDS[0]
EFFECT = 0.02
# An eighth of the rows that a chunk has outside tests.
ROWS = 256


def run(*words: str) -> tuple[int, str]:
    """Exit code and output of one command."""
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "300"})
    return result.exit_code, result.output


def counted(chunk: Evidence | Verdict) -> Counts:
    """The counts of one chunk, which must be evidence."""
    assert isinstance(chunk, Evidence), chunk
    return chunk.laws[0].counts


def stream_of(subject: Factory = FOLDED, effect: float = EFFECT, seed: int = 0) -> Stream:
    """The draft law of one subject."""
    base = probed(context(seed=seed), subject)
    return Stream(DRAFT, Trial(subject, base), base, "here", effect)


def night_of(effect: float = EFFECT, shard: int = 1, shards: int = 1) -> Night:
    """A run over the draft law alone."""
    run = {"seed": 0, "shard": shard, "shards": shards, "alpha": 1e-6, "effect": effect}
    return Night({**run, "bound": 1e-3, "cases": [CASE]}, {}, {})


def grown(source: Stream, night: Night, chunks: int) -> Night:
    """Up to a number of chunks more, fewer when it is decided."""
    for _ in range(chunks):
        if night.over():
            break
        night.grow(source)
    return night
