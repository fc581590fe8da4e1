"""Every DRAFTPROOF_ variable: default, each allowed value, a bad value, an unknown name."""

import dataclasses
import re
from pathlib import Path

import pytest

from impl.config import CHOICES, FOREIGN, Config

FIELDS = {name: name.removeprefix("DRAFTPROOF_").lower() for name in CHOICES}
EACH = [(name, value) for name, allowed in CHOICES.items() for value in allowed]


def parsed(name: str, value: str) -> object:
    """Return the field that one variable sets, parsed from an environment of that variable."""
    return getattr(Config.from_environment({name: value}), FIELDS[name])


def test_the_defaults_are_the_first_choices() -> None:
    """An empty environment gives the record that is built without arguments."""
    assert Config.from_environment({}) == Config()
    for name, allowed in CHOICES.items():
        assert parsed(name, allowed[0]) == getattr(Config(), FIELDS[name])


@pytest.mark.parametrize(("name", "value"), EACH)
def test_each_allowed_value_reaches_its_field_and_no_other(name: str, value: str) -> None:
    """A word stays the word, 1 and 0 become True and False, other fields keep their default."""
    wanted = value == "1" if CHOICES[name][0] in ("0", "1") else value
    changed = Config(**{**vars(Config()), FIELDS[name]: wanted})
    assert Config.from_environment({name: value}) == changed


def test_every_field_has_a_variable() -> None:
    """No field of the record can be set in another way."""
    assert {field.name for field in dataclasses.fields(Config)} == set(FIELDS.values())


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("value", ["", "AUTO", "yes", " 1"])
def test_a_bad_value_names_the_good_ones(name: str, value: str) -> None:
    """The message has the variable, what it was, and every allowed value."""
    with pytest.raises(ValueError, match=f"^{name} is {value!r}; it should be one of ") as caught:
        Config.from_environment({name: value})
    assert str(caught.value).endswith(", ".join(CHOICES[name]))


@pytest.mark.parametrize("name", ["DRAFTPROOF_", "DRAFTPROOF_ENGIN", "DRAFTPROOF_GREEDY"])
def test_an_unknown_name_is_refused(name: str) -> None:
    """A misspelt variable is an error that lists the known ones."""
    with pytest.raises(ValueError, match=f"^{name} is no variable of draftproof") as caught:
        Config.from_environment({name: "1"})
    assert all(known in str(caught.value) for known in (*CHOICES, *FOREIGN))


@pytest.mark.parametrize("name", [*FOREIGN, "PATH", "draftproof_engine"])
def test_the_names_of_others_are_left_alone(name: str) -> None:
    """A variable of the judge, or of another program, changes nothing whatever it holds."""
    assert Config.from_environment({name: "anything"}) == Config()


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mapping the variables of the process are read."""
    monkeypatch.setenv("DRAFTPROOF_STRICT", "1")
    assert Config.from_environment().strict


def test_a_record_cannot_be_changed() -> None:
    """A parsed environment is frozen."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(Config(), "noise", "race")  # noqa: B010  (an assignment is a type error)


@pytest.mark.parametrize("name", CHOICES)
def test_the_readme_lists_the_values(name: str) -> None:
    """Every variable has its row, with the allowed values in order, the default first."""
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| `{name}` \| (?P<values>[^|:]*?)(:.*)? \|$", text, re.MULTILINE)
    assert row is not None
    assert tuple(row["values"].split(", ")) == CHOICES[name]
