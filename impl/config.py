"""Every DRAFTPROOF_ variable, parsed once into a frozen record."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "DRAFTPROOF_"

# variable -> allowed values, default first
CHOICES = {
    "DRAFTPROOF_ENGINE": ("auto", "cuda", "emulator"),
    "DRAFTPROOF_STAGES": ("auto", "torch", "triton"),
    "DRAFTPROOF_NOISE": ("counter", "race"),
    "DRAFTPROOF_FOLDED_PROPOSAL": ("1", "0"),
    "DRAFTPROOF_FOLDED_SAMPLING": ("auto", "off", "force"),
    "DRAFTPROOF_GREEDY_DRAFT": ("0", "1"),
    "DRAFTPROOF_EAGER_DRAFT": ("0", "1"),
    "DRAFTPROOF_SHARDED_DFLASH": ("fold", "eager"),
    "DRAFTPROOF_STRICT": ("0", "1"),
}

# Read by the judge and by its subjects; known here so that a misspelt name is still an error.
FOREIGN = (
    "DRAFTPROOF_SUBJECT",
    "DRAFTPROOF_SMOLLM2",
    "DRAFTPROOF_SGLANG",
    "DRAFTPROOF_VLLM",
    "DRAFTPROOF_FLASHINFER",
    "DRAFTPROOF_REQUIRE_REALMODEL",
    "DRAFTPROOF_REQUIRE_SHIPPED",
)


@dataclass(frozen=True)
class Config:
    """What the environment asks for.

    engine            'auto', 'cuda' or 'emulator': what captures and replays
    stages            'auto', 'torch' or 'triton': the implementation of the arrows
    noise             'counter' or 'race': the dialect of a DSPARK sampler
    folded_proposal   False switches the folded DSPARK tail off
    folded_sampling   'auto', 'off' or 'force': may the tail hold the sampling buffers
    greedy_draft      True makes every DSPARK row draft its argmax, whatever it asks for
    eager_draft       True switches the folded DFLASH tail off
    sharded_dflash    'fold' or 'eager': is the DFLASH tail folded over ranks
    strict            True compares the addresses of all static buffers before every replay
    """

    engine: str = "auto"
    stages: str = "auto"
    noise: str = "counter"
    folded_proposal: bool = True
    folded_sampling: str = "auto"
    greedy_draft: bool = False
    eager_draft: bool = False
    sharded_dflash: str = "fold"
    strict: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> "Config":
        """Parse the variables of `environ`, by default those of the process.

        Returns the record. ValueError: an unknown DRAFTPROOF_ name, or a value that is not allowed.
        """
        found = os.environ if environ is None else environ
        _refuse_unknown(found)
        value = {name: _value(name, found) for name in CHOICES}
        return cls(
            engine=value["DRAFTPROOF_ENGINE"],
            stages=value["DRAFTPROOF_STAGES"],
            noise=value["DRAFTPROOF_NOISE"],
            folded_proposal=value["DRAFTPROOF_FOLDED_PROPOSAL"] == "1",
            folded_sampling=value["DRAFTPROOF_FOLDED_SAMPLING"],
            greedy_draft=value["DRAFTPROOF_GREEDY_DRAFT"] == "1",
            eager_draft=value["DRAFTPROOF_EAGER_DRAFT"] == "1",
            sharded_dflash=value["DRAFTPROOF_SHARDED_DFLASH"],
            strict=value["DRAFTPROOF_STRICT"] == "1",
        )


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    known = (*CHOICES, *FOREIGN)
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            raise ValueError(f"{name} is no variable of draftproof; known are {', '.join(known)}")


def _value(name: str, environ: Mapping[str, str]) -> str:
    allowed = CHOICES[name]
    value = environ.get(name, allowed[0])
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; it should be one of {', '.join(allowed)}")
    return value
