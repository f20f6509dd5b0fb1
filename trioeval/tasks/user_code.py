"""Code of the user's that judges the output of one row, run in worker processes with limits.

That code fails is the test's own affair and a `ScriptError`; that it has to be given up because it takes too
long, or too much memory, says nothing of the output and is a `GradingError`. So is, as in promptfoo, that a
JavaScript file fails.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import GradingError, ScriptError
from trioeval.grading.script_kinds import NAMES
from trioeval.providers.programs.workers import Encoded
from trioeval.scripting.javascript import assertion_script
from trioeval.suite.sources.computed import JAVASCRIPT, RUBY
from trioeval.tasks.script_context import with_more
from trioeval.tasks.scripts import LIMIT, Scripts

FUNCTION = "get_assert"
"""The function of a Python or Ruby file that names none."""


@attrs.frozen
class UserCode:
    """Runs the code of one assertion of one row."""

    _scripts: Scripts
    _context: Callable[[], Encoded]
    """Makes what the code is told besides the output; asked only when some runs."""
    _limit: float = LIMIT
    """Seconds that the code may take, > 0."""

    async def _within_limits(self, answer: Awaitable[Any]) -> Any:
        try:
            return await answer
        except ScriptError as error:
            if error.at_limit:
                msg = f"the script hit a limit: {error.message}"
                raise GradingError(msg) from error
            if not error.timed_out:
                raise
            msg = f"the script did not end within {self._limit:g} seconds (SCRIPT_TIMEOUT_MS)"
            raise GradingError(msg) from error

    async def python(self, code: str, output: Any) -> Any:
        """What Python gives: an expression on one line, or several lines that return. A checkpoint.

        Raises:
            GradingError: It took too long, or too much memory.
            ScriptError: It failed.
        """
        return await self._within_limits(
            self._scripts.judge(code, output, self._context(), self._limit)
        )

    async def javascript(self, code: str, output: Any) -> Any:
        """What JavaScript gives, likewise. A checkpoint."""
        script = assertion_script(code, NAMES)
        arguments = [output, self._context()]
        return await self._within_limits(self._scripts.javascript(script, arguments, self._limit))

    async def ruby(self, code: str, output: Any) -> Any:
        """What Ruby gives, likewise. A checkpoint."""
        arguments = [code, output, self._context()]
        return await self._within_limits(self._scripts.ruby(None, "judge", arguments, self._limit))

    async def file(
        self, file: Path, function: str | None, output: Any, told: Mapping[str, Any] | None = None
    ) -> Any:
        """What a function of a file gives. A checkpoint.

        Args:
            file: Absolute.
            function: Its name; None takes what such a file is expected to have.
            output: JSON.
            told: What its context says besides.

        Raises:
            GradingError: It took too long or too much memory, or is JavaScript and failed.
            ScriptError: It failed.
        """
        arguments = [output, with_more(self._context(), told or {})]
        suffix = file.suffix.lower()
        if suffix in JAVASCRIPT:
            called = self._scripts.javascript_file(file, function, NAMES, arguments, self._limit)
            try:
                return await self._within_limits(called)
            except ScriptError as error:
                raise GradingError(f"{file.name}: {error.message}") from error
        run = self._scripts.ruby if suffix == RUBY else self._scripts.call
        return await self._within_limits(run(file, function or FUNCTION, arguments, self._limit))
