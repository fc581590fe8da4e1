"""What is written down about one deliberate bug, and a wrapper that passes every verb on."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Specimen:
    """One deliberate bug.

    id: also the name of its factory in `module`. story: what went wrong somewhere, in a paragraph.
    imitates: public reports of the same class, owner/repository#number. combination: family and
    dialect at which it shows. killed_by: the check that must kill it. blind_to: a check that holds
    in its presence. smallest: the smallest size at which it shows.
    """

    id: str
    module: str
    story: str
    imitates: str
    combination: tuple[str, str]
    killed_by: str
    blind_to: str
    smallest: str

    @property
    def subject(self) -> str:
        """The name to give to --subject."""
        return f"{self.module}:{self.id}"


class Wrapped:
    """A subject that answers as the one inside it, but for the verbs a subclass overrides."""

    def __init__(self, inside: Any) -> None:
        """Wrap a subject."""
        self.inside = inside

    def __getattr__(self, verb: str) -> Any:
        """Pass every other verb on."""
        return getattr(self.inside, verb)


class Modest(Wrapped):
    """A subject that claims less than the one inside it."""

    def __init__(self, inside: Any, *unclaimed: str) -> None:
        """Wrap a subject; unclaimed: abilities that are left out."""
        super().__init__(inside)
        self.unclaimed = unclaimed

    def describe(self) -> dict[str, Any]:
        """As the subject inside, but for the abilities left out."""
        told = self.inside.describe()
        abilities = tuple(name for name in told["abilities"] if name not in self.unclaimed)
        return {**told, "abilities": abilities}
