"""What items of pytest stand for."""

import attrs


@attrs.frozen(order=True)
class RowKey:
    """A row, by what names it for ever."""

    task: str | None
    """The id of its task; None where the suite has no tasks but is one."""
    test_idx: int
    prompt_idx: int


@attrs.frozen
class TaskKey:
    """A task as a whole, whose rows are not known before it is run."""

    task: str | None


Key = RowKey | TaskKey
