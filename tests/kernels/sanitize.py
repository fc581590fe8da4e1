"""Every kernel under compute-sanitizer, in a process of its own.

    python -m tests.kernels.sanitize [--tool memcheck] [--sanitizer PATH]

Status 0: every kernel ran and nothing was found. 1: errors. 3: there is no answer, because the
sanitizer is not there, refuses the device, or watched nothing. Memory of torch is then not cached:
in a cached block an access behind a tensor is one inside the block.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

LAUNCHED = "launched:"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SUMMARY = re.compile(r"=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards?)")
REFUSED = re.compile(
    r"not supported|Unable to|No attachable|Failed to|no CUDA device", re.IGNORECASE
)
PASS, FAIL, UNKNOWN = 0, 1, 3
SECONDS = 900
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Answer:
    """What came of a run: its status and why."""

    status: int
    why: str


def answer(text: str, status: int) -> Answer:
    """Read what a sanitizer and the process that it watched printed."""
    found = SUMMARY.findall(text)
    names = [line.split()[1:] for line in text.splitlines() if line.startswith(LAUNCHED)]
    refusal = next((line for line in text.splitlines() if REFUSED.search(line)), None)
    errors = sum(int(count) for count in found)
    if errors and (names or refusal is None):
        shown = [line for line in text.splitlines() if line.startswith("=========")]
        return Answer(FAIL, "\n".join([f"{errors} errors", *shown[:40]]))
    if not found:
        return Answer(UNKNOWN, f"no summary: {refusal or text[-500:] or 'nothing was printed'}")
    if not names or not names[0]:
        return Answer(UNKNOWN, f"no kernel ran: {refusal or text[-500:]}")
    if status:
        return Answer(FAIL, f"status {status} without an error of the sanitizer: {text[-500:]}")
    return Answer(PASS, f"{len(names[0])} kernels, no error: {' '.join(names[0])}")


def sanitized(tool: str, sanitizer: str = "compute-sanitizer", more: Sequence[str] = ()) -> Answer:
    """Run every kernel under a tool.

    more  arguments of `tests.kernels.launches`
    """
    found = which(sanitizer)
    if found is None:
        return Answer(UNKNOWN, f"{sanitizer} is not there")
    watched = [sys.executable, "-m", "tests.kernels.launches", *more]
    # Its variables are set by a command, so that nothing of this process's is read or changed.
    command = ["env", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", found, "--tool", tool, *watched]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        return Answer(UNKNOWN, f"no answer in {SECONDS} seconds")
    return answer(done.stdout + done.stderr, done.returncode)


def main() -> None:
    """Ask every tool that is named, and end with the worst status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", nargs="+", choices=TOOLS, default=["memcheck"])
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    chosen = parser.parse_args()
    statuses = []
    for tool in chosen.tool:
        found = sanitized(tool, chosen.sanitizer)
        word = {PASS: "pass", FAIL: "FAIL", UNKNOWN: "unknown"}[found.status]
        sys.stdout.write(f"{tool}: {word}: {found.why}\n")
        statuses.append(found.status)
    raise SystemExit(FAIL if FAIL in statuses else max(statuses))


if __name__ == "__main__":
    main()
