"""Single modules of a third-party package, run as they were shipped, without the package around.

Engines import a server, weights loaders and kernels for the GPU along with one sampler. Here the
modules that a subject names are the genuine files; every other module of the same package is an
inert stand-in, whose attributes are empty classes. A package that is imported already is used as it
is. The folder comes from a variable, else from the installed distribution.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Shipped:
    """A package as it was published: import name, distribution, version, variable of its folder."""

    package: str
    distribution: str
    version: str
    variable: str


SHIPPED = {
    "sglang": Shipped("sglang", "sglang", "0.5.23", "DRAFTPROOF_SGLANG"),
    "vllm": Shipped("vllm", "vllm", "0.33.0", "DRAFTPROOF_VLLM"),
    "flashinfer": Shipped("flashinfer", "flashinfer_python", "0.7.4", "DRAFTPROOF_FLASHINFER"),
}


def folder_of(name: str) -> Path:
    """The folder that holds the package; NotImplementedError says why there is none."""
    asked = SHIPPED[name]
    value = os.environ.get(asked.variable)
    if value is None:
        try:
            found = metadata.distribution(asked.distribution)
        except metadata.PackageNotFoundError:
            raise NotImplementedError(
                f"{asked.package} is not installed, and {asked.variable} names no folder with "
                f"{asked.package} {asked.version}"
            ) from None
        if found.version != asked.version:
            raise NotImplementedError(
                f"{asked.package} {found.version} is installed, required: {asked.version}"
            )
        return Path(str(found.locate_file("")))
    mark = f"{asked.distribution}-{asked.version}.dist-info"
    if not (Path(value) / mark).is_dir() or not (Path(value) / asked.package).is_dir():
        raise NotImplementedError(
            f"{asked.variable} is {value!r}, required: a folder with {asked.package} and {mark}"
        )
    return Path(value)


class Empty(type):
    """A class that serves as base, decorator, callable, member of an enumeration or key."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = empty(name)
        type.__setattr__(cls, name, made)
        return made

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __getitem__(cls, other: Any) -> Any:
        return cls

    def __bool__(cls) -> bool:
        return False


def empty(name: str) -> Any:
    """An empty class of that name, which takes any arguments."""
    return Empty(name, (), {"__init__": lambda *_, **__: None})


class StandIn(types.ModuleType):
    """A module whose every attribute is an empty class; a question (is_...) is answered no.

    _genuine: patterns of modules that are genuine below it.
    """

    _genuine: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        below = f"{self.__name__}.{name}"
        if any(fnmatchcase(below, pattern) for pattern in self._genuine):
            return importlib.import_module(below)
        made = (lambda *_, **__: False) if name.startswith("is_") else empty(name)
        setattr(self, name, made)
        return made


@dataclass
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds genuine modules of a package in its folder, and stand-ins for all others.

    genuine: patterns of module names. given: attributes of stand-ins by module name. absent: other
    packages that get a stand-in where they are not installed.
    """

    package: str
    folder: Path
    genuine: Sequence[str]
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A module of the package, or a stand-in; None for what others find."""
        del path, target
        top = fullname.partition(".")[0]
        if top == self.package:
            if not any(fnmatchcase(fullname, pattern) for pattern in self.genuine):
                return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
            file = self.folder.joinpath(*fullname.split("."))
            if file.is_dir():
                inside = [str(file)]
                return importlib.util.spec_from_file_location(
                    fullname, file / "__init__.py", submodule_search_locations=inside
                )
            return importlib.util.spec_from_file_location(fullname, file.with_suffix(".py"))
        if top in self.absent:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """A stand-in."""
        made = StandIn(spec.name)
        made.__path__ = []
        vars(made)["_genuine"] = self.genuine
        for name, value in self.given.get(spec.name, {}).items():
            setattr(made, name, value)
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        """A stand-in has nothing to run."""


def load(
    name: str,
    modules: Iterable[str],
    genuine: Sequence[str],
    given: Mapping[str, Mapping[str, Any]],
    others: Iterable[str] = (),
) -> dict[str, types.ModuleType]:
    """Import modules of a shipped package; the first call decides what is genuine.

    others: third parties that the modules name and that need not be there. Returns modules by their
    full names. NotImplementedError: the package is not here.
    """
    if name not in sys.modules:
        absent = {other for other in others if not present(other)}
        finder = Finder(name, folder_of(name), genuine, given, frozenset(absent))
        sys.meta_path.insert(0, finder)
        try:
            return {module: importlib.import_module(module) for module in modules}
        finally:
            # Whoever asks later whether these are installed must not be told so.
            for found in [m for m in sys.modules if m.partition(".")[0] in absent]:
                del sys.modules[found]
            finder.absent = frozenset()
    return {module: importlib.import_module(module) for module in modules}


def present(name: str) -> bool:
    """Whether a package can be imported."""
    return name in sys.modules or importlib.util.find_spec(name) is not None


class Record:
    """Stands for msgspec.Struct: fields by keyword, defaults from the class."""

    def __init_subclass__(cls, **_: Any) -> None:
        """Take any options."""

    def __init__(self, **fields: Any) -> None:
        """Set the fields."""
        vars(self).update(fields)


class Constant:
    """Stands for triton.language.constexpr where there is no Triton."""

    def __init__(self, value: Any) -> None:
        """Hold a value."""
        self.value = value


def undecorated(function: Any = None, **_: Any) -> Any:
    """A decorator that leaves a kernel as it is: nothing can launch it."""
    keep: Callable[[Any], Any] = lambda given: given  # noqa: E731
    return keep if function is None else function


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below a positive number."""
    return 1 << (max(number, 1) - 1).bit_length()


THIRD_PARTIES: Mapping[str, Mapping[str, Any]] = {
    "msgspec": {"Struct": Record},
    "triton": {
        "jit": undecorated,
        "cdiv": lambda number, by: -(-number // by),
        "next_power_of_2": power_of_two,
    },
    "triton.language": {"constexpr": Constant},
}


def interpreted(kernel: object) -> bool:
    """Whether a kernel runs in Triton's interpreter, and so on the CPU."""
    return type(kernel).__module__ == "triton.runtime.interpreter"


def launchable(kernel: object, device: str) -> None:
    """NotImplementedError where nothing can run a Triton kernel on that device."""
    if isinstance(kernel, types.FunctionType):
        raise NotImplementedError("triton is not installed")
    if device == "cpu" and not interpreted(kernel):
        raise NotImplementedError("on a CPU it runs in Triton's interpreter: TRITON_INTERPRET=1")
