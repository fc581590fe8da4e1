"""Where the processes that judge come from: one server that has loaded everything forks them."""

import multiprocessing
from multiprocessing import forkserver
from multiprocessing.context import BaseContext

# The compiler of torch is what shape functions of some ops ask for; one import is enough.
LOADED = ["oracle.judge.jobs", "scipy.stats", "torch._dynamo"]


def way() -> BaseContext:
    """The start method: forked by a server that has loaded everything, or spawned."""
    known = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in known else "spawn")
    context.set_forkserver_preload(LOADED)
    return context


def start() -> None:
    """Start the server, which loads what a judge needs while its caller goes on."""
    if way().get_start_method() == "forkserver":
        forkserver.ensure_running()
