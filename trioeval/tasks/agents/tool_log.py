r"""What tools gave in one attempt of a model, in a file: one line of JSON for each call.

It is for people, and for a resumed run: where a reply is recalled instead of asked for, its calls were made
already, so what they gave is read here and nothing is done twice. That also keeps the conversation what it
was, and so the replies behind it are recalled as well. A call that was cut off is made again.
"""

import json
import os
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.agents.plain_files import read_plain, write_plain
from trioeval.tasks.tool_turns import ToolCall, ToolResult

_LARGEST = 128 * 1024 * 1024
"""Bytes that are read of an earlier execution; calls that stand behind them are made again."""


@attrs.define(eq=False)
class ToolLog:
    """What the tools of one attempt gave. To make one blocks on the file.

    A model that runs commands may have put anything in its place, which is then no log.
    """

    file: Path
    _earlier: list[dict[str, Any]] = attrs.field(init=False, repr=False)
    """Of an earlier execution, in order; what is not of this conversation is dropped when that shows."""
    _lines: list[str] = attrs.field(init=False, factory=list, repr=False)
    """Of this one, which are not written yet."""
    _is_own: bool = attrs.field(init=False, default=False, repr=False)
    """Whether the file holds what this execution knows, and nothing else."""

    @_earlier.default
    def _read(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        try:
            text = read_plain(self.file, _LARGEST).decode("utf-8", "replace")
        except OSError:
            return found
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):  # the last line of a program that was killed
                break
            if not isinstance(entry, dict) or "result" not in entry:
                break
            found.append(entry)
        return found

    def known(self, step: int, call: ToolCall) -> ToolResult | None:
        """What the next call gave in an earlier execution; None if it was not made.

        Args:
            step: Of the conversation, from 0; it was recalled.
            call: The call.
        """
        entry = self._earlier[0] if self._earlier else None
        if entry is None or any(entry.get(key) != part for key, part in _key(step, call).items()):
            self.forget()
            return None
        self._lines.append(json.dumps(self._earlier.pop(0)))
        return ToolResult(entry["result"], failed=entry.get("failed", False))

    def forget(self) -> None:
        """The conversation takes another course than in the earlier execution."""
        self._earlier.clear()

    async def add(self, step: int, call: ToolCall, result: ToolResult) -> None:
        """Write down what a call gave, also when it is cancelled: a call that was made is known.

        Raises:
            OSError: It cannot be written.
        """
        self.forget()
        entry = {**_key(step, call), "result": result.value, "failed": result.failed}
        self._lines.append(json.dumps(entry))
        lines = "".join(f"{line}\n" for line in self._lines).encode()
        self._lines.clear()
        with trio.CancelScope(shield=True):  # as long as a disk takes
            await trio.to_thread.run_sync(self._write, lines)

    def _write(self, lines: bytes) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if self._is_own:
            write_plain(self.file, lines, os.O_APPEND)
            return
        whole = self.file.with_suffix(".new")
        whole.unlink(missing_ok=True)
        write_plain(whole, lines, os.O_EXCL)
        whole.replace(self.file)
        self._is_own = True


def _key(step: int, call: ToolCall) -> dict[str, Any]:
    return {"step": step, "id": call.id, "tool": call.name, "arguments": call.arguments}
