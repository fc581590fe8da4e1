"""Starts ranks as processes of torchrun."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RANKS = 2
# Loopback only, and one thread a rank: the ranks share the cores of the test run.
SETTINGS = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def started(*command: str) -> "subprocess.Popen[str]":
    """Start a command on RANKS processes from the root of the checkout."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    environment = {**os.environ, **SETTINGS}  # noqa: TID251  (the ranks inherit the test's own)
    return subprocess.Popen(
        [sys.executable, *launch, *command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def torchrun(*command: str, patience: float) -> "subprocess.CompletedProcess[str]":
    """Run a command on RANKS processes to its end; patience in seconds."""
    with started(*command) as process:
        try:
            output, errors = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)
