"""A process of `draftproof deep` under torchrun, with small chunks; it leaves its pid in a folder.

torchrun -m tests.distributed.campaign_worker FOLDER ROWS deep ...
"""

import os
import sys
from pathlib import Path

from torch import distributed

from oracle.commands import app
from oracle.judge import stream

if __name__ == "__main__":
    folder, rows, *words = sys.argv[1:]
    stream.ROWS = int(rows)
    rank = distributed.get_node_local_rank()
    (Path(folder) / f"{rank}.pid").write_text(str(os.getpid()))
    app(words, prog_name="draftproof")
