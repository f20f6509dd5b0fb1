"""Progress for programs: a JSON object on each line of stderr."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import trio

from trioeval.cli.progress.progress import RunProgress
from trioeval.cli.progress.streams import json_line, say_beneath
from trioeval.report.records import RowRecord
from trioeval.report.run_state import RunSnapshot

_EVERY = 1.0  # seconds between two objects about the state of the run


@attrs.define
class JsonProgress(RunProgress):
    """Progress as objects: rows, the state of the run now and then, and its end; other output is messages."""

    _rows: list[str] = attrs.field(factory=list)
    """Rows that are not written yet; a write for each would slow the run down."""

    def add(self, record: RowRecord) -> None:
        """Add a row; it is written within a second."""
        fact = {
            "type": "row",
            "task": record.task,
            "testIdx": record.test_idx,
            "promptIdx": record.prompt_idx,
            "status": record.status.value,
            "score": record.score,
            "row": record.number,
        }
        self._rows.append(json_line(fact))

    async def show(
        self, state: Callable[[], RunSnapshot], more: Callable[[], Sequence[str]], /
    ) -> None:
        """Write the state of the run until cancelled, and then once more."""
        try:
            while True:
                self._report(state(), more())
                await trio.sleep(_EVERY)
        finally:
            self._report(state(), more())

    def end(self, code: int, line: str) -> None:
        """Write the end of the run."""
        self._flush({"type": "end", "code": code, "line": line})

    def _report(self, state: RunSnapshot, more: Sequence[str]) -> None:
        notes = [line.strip() for line in more]
        self._flush({"type": "progress", **state.json(), "notes": notes})

    def _flush(self, fact: Mapping[str, Any]) -> None:
        lines, self._rows = [*self._rows, json_line(fact)], []
        say_beneath("\n".join(lines))
