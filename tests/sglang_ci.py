"""Two modules of SGLang's CI out of its unpacked wheel: the rule that reruns, the parser of files.

DRAFTPROOF_SGLANG names the folder, as for the benchmarks. Nothing else of SGLang is imported: what
the two modules import beside each other is not used here, and stands in as an empty module.
"""

import importlib.util
import os
import sys
import types
from pathlib import Path

import pytest

from .benchmarks.wheel import VARIABLE, VERSION

UNUSED = {
    "sglang": (),
    "sglang.srt": (),
    "sglang.srt.debug_utils": ("cuda_coredump",),
    "sglang.srt.utils": (),
    "sglang.srt.utils.common": ("kill_process_tree",),
    "sglang.test": (),
    "sglang.test.ci": (),
}
FOLDER = os.environ.get(VARIABLE, "")  # noqa: TID251  (where it lies is the machine's)
HERE = bool(FOLDER) and (Path(FOLDER) / f"sglang-{VERSION}.dist-info").is_dir()
needs_wheel = pytest.mark.skipif(
    not HERE, reason=f"{VARIABLE} names no unpacked wheel of SGLang {VERSION}"
)


def ci_module(monkeypatch: pytest.MonkeyPatch, name: str) -> types.ModuleType:
    """The module sglang.test.ci.NAME, for as long as the test lasts."""
    for unused, attributes in UNUSED.items():
        made = types.ModuleType(unused)
        made.__path__ = []
        for attribute in attributes:
            setattr(made, attribute, None)
        monkeypatch.setitem(sys.modules, unused, made)
    for needed in ("ci_register", name):
        path = Path(FOLDER) / "sglang" / "test" / "ci" / f"{needed}.py"
        full = f"sglang.test.ci.{needed}"
        spec = importlib.util.spec_from_file_location(full, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, full, module)
        spec.loader.exec_module(module)
    return sys.modules[f"sglang.test.ci.{name}"]
