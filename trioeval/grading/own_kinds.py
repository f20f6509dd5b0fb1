"""Assertion types that a suite brings: functions of files, which judge as a `python` assertion does."""

from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import ScriptError
from trioeval.grading.kind import Asking, Finding, Kind
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Outside
from trioeval.grading.script_results import failed, read_result
from trioeval.grading.subject import Subject


@attrs.frozen
class _OwnJudge:
    file: Path
    function: str

    async def __call__(
        self, subject: Subject, value: Any, assertion: Assertion, outside: Outside
    ) -> Finding:
        try:
            answer = await outside.code.file(
                self.file, self.function, subject.output, {"value": value}
            )
        except ScriptError as error:  # its failure is the test's, as for any script
            return failed(error.message)
        return read_result(answer, assertion.threshold)


def own_kind(file: Path, function: str) -> Kind:
    """The type whose judge is a function of a Python or JavaScript file.

    The function is called with the output and a context that has, besides what every script is told, the
    rendered value of the assertion as `value`. What it gives means what the result of a `python` assertion
    means.

    Args:
        file: Absolute.
        function: Its name.

    Example:
        >>> here = Path("/suite/checks.py")
        >>> own_kind(here, "is_polite") == own_kind(here, "is_polite")
        True
    """
    return Kind("any value", _anything, Asking(_OwnJudge(file, function)), bare=True)


def _anything(_value: Any) -> bool:
    return True
