"""Rows of a task as later tasks use them: as seeds, tests or questions."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.evaluation.row import Row, Status


@attrs.define(eq=False)
class RowsLeft:
    """The rows of one task that others are made of.

    Those of a dataset are its columns. Those of other tasks are `vars`, `prompt`, `output`, `provider`,
    `pass`, `score` and `error`.
    """

    is_complete: bool = False
    """Whether the task is over and nothing of it is missing."""
    _by_index: dict[int, Mapping[str, Any]] = attrs.field(init=False, factory=dict, repr=False)
    _whole: Sequence[Mapping[str, Any]] | None = attrs.field(init=False, default=None, repr=False)

    def add(self, row: Row) -> None:
        """Take a row that is over."""
        self._by_index[row.index] = {
            "vars": dict(row.vars),
            "prompt": row.prompt,
            "output": row.output,
            "provider": row.label,
            "pass": row.status is Status.PASS,
            "score": row.score,
            "error": row.error,
        }

    def add_record(self, index: int, record: Mapping[str, Any]) -> None:
        """Take a row that an earlier execution has left."""
        response, prompt, provider = (
            record.get(key) or {} for key in ("response", "prompt", "provider")
        )
        self._by_index[index] = {
            "vars": record.get("vars") or {},
            "prompt": prompt.get("raw"),
            "output": response.get("output"),
            "provider": provider.get("label") or provider.get("id"),
            "pass": record.get("success"),
            "score": record.get("score"),
            "error": record.get("error"),
        }

    def put(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take all rows of a dataset."""
        self._whole = rows

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """All of them, in their order."""
        if self._whole is not None:
            return self._whole
        return [self._by_index[index] for index in sorted(self._by_index)]
