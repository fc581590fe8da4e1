"""Sizes of a draft sampler, declared and checked once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shapes:
    """The sizes that every buffer and stage follows.

    drafts              K, drafted tokens a block
    vocabulary          V, ids that may be drafted
    stored_columns      W >= V, rows that the output head stores; those past V are padding
    hidden              D, width of a hidden state
    rank                R, width of the Markov embedding; 0 without one
    buckets             row counts that are captured, ascending; the last is Bmax
    sample_from_anchor  True: row 0 of a block predicts draft 0. False: row 0 is dropped

    ValueError: a size that is out of range, with the size and the range.
    """

    drafts: int
    vocabulary: int
    stored_columns: int
    hidden: int
    rank: int
    buckets: tuple[int, ...]
    sample_from_anchor: bool = True

    def __post_init__(self) -> None:
        for name, least in (("drafts", 1), ("vocabulary", 1), ("hidden", 1), ("rank", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it should be at least {least}")
        if self.stored_columns < self.vocabulary:
            raise ValueError(
                f"the output head stores {self.stored_columns} rows; "
                f"it should store at least the vocabulary of {self.vocabulary}"
            )
        if not self.buckets or self.buckets[0] < 1:
            raise ValueError(f"buckets are {self.buckets}; at least one, of one row or more")
        if any(low >= high for low, high in zip(self.buckets, self.buckets[1:], strict=False)):
            raise ValueError(f"buckets are {self.buckets}; they should be strictly ascending")

    @property
    def query_rows(self) -> int:
        """Q, the rows of the draft input that one request occupies."""
        return self.drafts + self.first_query

    @property
    def first_query(self) -> int:
        """The row of a block that predicts draft 0."""
        return 0 if self.sample_from_anchor else 1

    @property
    def rows_max(self) -> int:
        """Bmax, the rows of the largest bucket."""
        return self.buckets[-1]

    def bucket_for(self, rows: int) -> int | None:
        """The smallest bucket that holds `rows` live rows, None when every bucket is too small.

        ValueError: no row at all.
        """
        if rows < 1:
            raise ValueError(f"a batch has {rows} rows; it should have at least 1")
        return next((bucket for bucket in self.buckets if bucket >= rows), None)
