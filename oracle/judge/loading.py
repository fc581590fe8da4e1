"""From "package.module:factory" to a subject, saying whose mistake an error is."""

import hashlib
import importlib
import inspect
import sys
from pathlib import Path

from .protocol import ABILITIES, VERBS, Factory, Setting, Subject

# Names that `--subject` knows without a colon.
NAMED = {
    "folded": "impl.subject:factory",
    "reference": "oracle.subjects.reference:factory",
    "torch": "oracle.subjects.torch_ops:factory",
    "torch:race": "oracle.subjects.torch_ops:race",
    "torch:categorical": "oracle.subjects.torch_ops:categorical",
    "sglang": "oracle.subjects.sglang:factory",
    "sglang:sampler": "oracle.subjects.sglang:sampler",
    "sglang:edited": "oracle.subjects.sglang:edited",
    "sglang:accept": "oracle.subjects.sglang:accept",
    "sglang:step": "oracle.subjects.sglang:step",
    "sglang:kernel": "oracle.subjects.sglang:kernel",
    "sglang:dflash": "oracle.subjects.sglang:dflash",
    "vllm": "oracle.subjects.vllm:factory",
    "vllm:accept": "oracle.subjects.vllm:accept",
    "flashinfer": "oracle.subjects.flashinfer:factory",
    "flashinfer:probs": "oracle.subjects.flashinfer:probs",
    "flashinfer:accept": "oracle.subjects.flashinfer:accept",
}
ALWAYS = {"describe": 0, "load": 1, "replay": 0, "read": 0}
ARGUMENTS = {"gate": 1, "eager": 1, "reseed": 1, "accept": 1, "reweight": 1, "counts": 1}


class AdapterError(Exception):
    """The adapter, not the sampler behind it, is at fault."""


class CannotServeError(Exception):
    """The subject declines this setting; the text is its reason."""


def load_factory(name: str) -> Factory:
    """Import a factory by name or as module:attribute; AdapterError says what is wrong with it."""
    path = NAMED.get(name, name)
    module_name, colon, attribute = path.partition(":")
    if not colon or not attribute:
        raise AdapterError(
            f"subject {name!r} is not known, required: one of {sorted(NAMED)} or module:factory"
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.split(".")[0] == error.name.split(".")[0]:
            raise AdapterError(f"no module {error.name!r} is importable from here") from error
        raise CannotServeError(f"{module_name} needs {error.name!r}, not installed") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise AdapterError(f"{module_name} has no callable {attribute!r}")
    return factory  # type: ignore[no-any-return]


def source_digest(factory: Factory) -> str:
    """Sha256 of the Python files of the top-level package, or the one file, of a factory.

    It tells builds of a sampler apart; compiled parts and other packages are not in it.
    """
    name = getattr(factory, "__module__", type(factory).__module__).partition(".")[0]
    module = sys.modules[name]
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    if not folders and getattr(module, "__file__", None):
        files = [Path(str(module.__file__))]
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def check_verb(subject: object, verb: str, arguments: int) -> None:
    """Refuse a subject whose verb is missing or cannot be called with `arguments` values."""
    method = getattr(subject, verb, None)
    if not callable(method):
        raise AdapterError(f"{type(subject).__name__} has no verb {verb!r}, which it must have")
    try:
        inspect.signature(method).bind(*range(arguments))
    except TypeError as error:
        raise AdapterError(
            f"{type(subject).__name__}.{verb} cannot be called with {arguments} arguments: {error}"
        ) from error


def build(factory: Factory, setting: Setting) -> Subject:
    """Call a factory and check what it returned against its claimed abilities.

    Raises CannotServeError with the reason when the factory declines or its library is missing, and
    AdapterError for missing verbs or unknown abilities.
    """
    try:
        subject = factory(setting)
    except NotImplementedError as error:
        raise CannotServeError(str(error) or "declined without a reason") from error
    except ModuleNotFoundError as error:
        raise CannotServeError(f"needs {error.name!r}, not installed") from error
    for verb, arguments in ALWAYS.items():
        check_verb(subject, verb, arguments)
    claimed = tuple(subject.describe().get("abilities", ()))
    for ability in claimed:
        if ability not in ABILITIES:
            raise AdapterError(f"ability {ability!r} is not known, required: {sorted(ABILITIES)}")
        for verb in VERBS.get(ability, ()):
            check_verb(subject, verb, ARGUMENTS.get(verb, 0))
    return subject
