"""What is right, and who decides.

reference  the sampler pipeline in plain torch, float64
judge      plans, plays and decides: protocol, script, drive, history, checks, verdict, report
subjects   samplers under test that are not ours
workloads  where inputs come from
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "History": ".judge.history",
    "Plan": ".judge.script",
    "Subject": ".judge.protocol",
    "Verdict": ".judge.verdict",
    "ViolationRuntimeError": ".judge.verdict",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a re-exported name on first use, so that `import oracle` stays light."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
