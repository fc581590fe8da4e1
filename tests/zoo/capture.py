"""What a recording froze, or a recording that never runs."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from impl.assembly import Parts
from impl.runner import Runner, run_block
from impl.stages import Stages
from impl.subject import factory

from .specimen import Specimen

Setting = Mapping[str, Any]
COUNTER = ("dspark", "counter")


def frozen_noise(setting: Setting) -> Any:
    """Noise is drawn once, before the capture, and every replay reads it again."""
    drawn: dict[tuple[int, int], Tensor] = {}

    def broken(stages: Stages) -> Stages:
        def noise(state: Any, rows: int, step: int, buffer: Tensor | None) -> Tensor | None:
            if (rows, step) not in drawn:
                fresh = stages.noise(state, rows, step, buffer)
                drawn[rows, step] = fresh.clone() if fresh is not None else fresh
            return drawn[rows, step]

        return stages._replace(noise=noise)

    return factory(setting, stages=broken)


class RunsOutside(Runner):
    """Captures, and then runs every block outside the recordings."""

    def run(self, rows: int) -> int:
        """Run the block that a replay should have run."""
        bucket = self.shapes.bucket_for(rows)
        if bucket is None:
            raise RuntimeError(f"{rows} rows are more than the largest bucket holds")
        run_block(self.buffers, self.forward, self.hooks, bucket)
        return bucket


def never_replays(setting: Setting) -> Any:
    """Blocks are right, and called folded, but no recording ever runs."""
    return factory(setting, parts=Parts(runner=RunsOutside))


HERE = "tests.zoo.capture"
SPECIMENS = (
    Specimen(
        "frozen_noise",
        HERE,
        "The noise is drawn while the recording is prepared and reaches it as a constant. Each "
        "replay repeats it; each start of the server draws another one, so it looks flaky.",
        "NVIDIA/Megatron-LM#5697",
        COUNTER,
        "freshness",
        "spike",
        "two replays of one load",
    ),
    Specimen(
        "never_replays",
        HERE,
        "The recording is made, but the keys by which a step would find it are set up for other "
        "methods only, so it is called folded and never replayed. Tokens are right; the speed is "
        "not there.",
        "vllm-project/vllm#47460",
        COUNTER,
        "path",
        "equality",
        "one block",
    ),
)
