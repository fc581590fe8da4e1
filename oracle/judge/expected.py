"""Known deviations of a sampler, from a file: who, where, what it says, why, and where to read it.

A finding that an entry describes becomes *expected*, an outcome of its own that is never green. An
entry that could have met this run and met nothing is an error: the sampler no longer deviates, or
something else came first.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import jsonschema

from .trial import Result
from .verdict import Outcome

SCHEMA = Path(__file__).parents[1] / "schema" / "expectations.json"
SHIPPED = Path(__file__).parents[1] / "expectations"


@dataclass(frozen=True)
class Entry:
    """One known deviation; combination, case, device, profile and seed are shell patterns.

    subject: such patterns, one or more of which must fit, between them a blank.
    says: part of the reason that the check gives. why: the reason behind it. reference: a public
    address. verdict: what the check answers.
    """

    subject: str
    check: str
    says: str
    why: str
    reference: str
    combination: str = "*"
    case: str = "*"
    device: str = "*"
    profile: str = "*"
    seed: str = "*"
    verdict: str = "violated"

    def meets(self, result: Result) -> bool:
        """Whether a finding is this deviation."""
        return (
            self.check == result.check
            and fnmatchcase(result.combination, self.combination)
            and fnmatchcase(result.case, self.case)
            and result.verdict.outcome.value == self.verdict
            and self.says in result.verdict.reason
        )

    def named(self) -> str:
        """The entry as a phrase for a report."""
        return f"{self.subject}: {self.check}, {self.combination}, {self.case}, {self.says!r}"


def read(path: Path) -> list[Entry]:
    """The entries of a file; ValueError says what is wrong with it."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
        jsonschema.validate(found, json.loads(SCHEMA.read_text("utf-8")))
    except OSError as error:
        raise ValueError(f"expectations {path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"expectations {path} are no TOML: {error}") from error
    except jsonschema.ValidationError as error:
        where = ".".join(str(part) for part in error.absolute_path) or "the file"
        raise ValueError(f"expectations {path}: {where}: {error.message}") from error
    return [Entry(**entry) for entry in found["expected"]]


def named(name: str) -> list[Entry]:
    """The entries of a file, or with 'shipped' all that come with draftproof."""
    files = sorted(SHIPPED.glob("*.toml")) if name == "shipped" else [Path(name)]
    return [entry for file in files for entry in read(file)]


def in_reach(
    entries: Iterable[Entry], where: Mapping[str, Any], results: Sequence[Result]
) -> list[Entry]:
    """The entries about what this run judged.

    where: 'subject', 'device', 'profile' and 'seed' of the run. An entry is out of reach when its
    check was not run, or no case of its combination was.
    """
    return [
        entry
        for entry in entries
        if any(fnmatchcase(str(where["subject"]), name) for name in entry.subject.split())
        and fnmatchcase(str(where["device"]), entry.device)
        and fnmatchcase(str(where["profile"]), entry.profile)
        and fnmatchcase(str(where["seed"]), entry.seed)
        and any(
            entry.check == result.check
            and fnmatchcase(result.combination, entry.combination)
            and result.verdict.outcome is not Outcome.NOT_APPLICABLE
            for result in results
        )
    ]


def applied(
    entries: Iterable[Entry], where: Mapping[str, Any], results: Sequence[Result]
) -> tuple[list[Result], str]:
    """The results, those that an entry describes as expected, and a complaint.

    The complaint names the entries in reach that describe none of them; it is empty without any.
    """
    reach = in_reach(entries, where, results)
    idle = [entry for entry in reach if not any(entry.meets(result) for result in results)]
    told = "; ".join(entry.named() for entry in idle)
    complaint = f"expected, and not found: {told}" if idle else ""
    return [described(reach, result) for result in results], complaint


def described(entries: Iterable[Entry], result: Result) -> Result:
    """A result, expected if one of the entries describes it."""
    for entry in entries:
        if entry.meets(result):
            known = {"expected": entry.why, "reference": entry.reference}
            evidence = {**result.verdict.evidence, **known}
            verdict = replace(result.verdict, outcome=Outcome.EXPECTED, evidence=evidence)
            return replace(result, verdict=verdict)
    return result
