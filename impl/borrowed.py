"""Borrowed results: views of static buffers, good until the next replay."""

from collections.abc import Callable, Mapping

from torch import Tensor


class Borrowed:
    """Views that know which replay wrote them.

    views   what that replay wrote, by name
    replay  its number, counted over all recordings of the buffers
    latest  returns the number of the last replay that has run
    """

    def __init__(self, views: Mapping[str, Tensor], replay: int, latest: Callable[[], int]) -> None:
        self.replay = replay
        self._views = dict(views)
        self._latest = latest

    def tensors(self) -> dict[str, Tensor]:
        """Return the views, not copies; ask again before each use, for only asking is checked.

        RuntimeError: a later replay has overwritten them.
        """
        latest = self._latest()
        if latest != self.replay:
            raise RuntimeError(
                f"results were borrowed from replay {self.replay}, and replay {latest} has run; "
                "borrowed results should be used before the next replay, read() gives copies"
            )
        return dict(self._views)
