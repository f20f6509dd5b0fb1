"""The keys of items of pytest."""

import attrs


@attrs.frozen(order=True)
class RowKey:
    """A row by its permanent numbers."""

    task: str | None
    """The id of its task; None if the suite has only one."""
    test_idx: int
    prompt_idx: int


@attrs.frozen
class TaskKey:
    """A whole task whose rows are not known before it runs."""

    task: str | None


Key = RowKey | TaskKey
