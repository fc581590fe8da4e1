"""Entry of the command line: a run that is shared out starts its processes before anything else."""

import sys

from .judge.crew import start


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:2] == ["verify"]:
        start()
    # Torch and scipy load here, while the processes that judge load them too.
    from .commands import app

    app()


if __name__ == "__main__":
    main()
