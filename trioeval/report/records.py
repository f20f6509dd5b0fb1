"""Records: rows as `row_json` made them, in memory or read back, and what may be shown of them."""

from collections.abc import Iterable, Mapping
from typing import Any

from trioeval.report.json_text import shallow
from trioeval.suite.strip import KEEP_ALL, Strip
from trioeval.tasks import Status

STRIPPED_PROMPT = "[prompt stripped]"
STRIPPED_OUTPUT = "[output stripped]"

_STATUSES = (Status.PASS, Status.FAIL, Status.ERROR)  # by failureReason


def status_of(record: Mapping[str, Any]) -> Status:
    """Whether a row passed, failed, or has no verdict.

    Example:
        >>> status_of({"failureReason": 2})
        <Status.ERROR: 'error'>
    """
    return _STATUSES[record["failureReason"]]


def own_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """What only trioeval knows of a row: its outcome, lane, attempts and waits."""
    found: Mapping[str, Any] = record["metadata"]["trioeval"]
    return found


def output_of(record: Mapping[str, Any]) -> Any:
    """What was answered, after all transforms; None where nothing was."""
    return None if record["response"] is None else record["response"]["output"]


def name_of_test(record: Mapping[str, Any]) -> str:
    """What people call the test of a row: its description, or else its variables. May be long.

    Example:
        >>> name_of_test({"testCase": {"description": None}, "vars": {"a": 1, "b": "x"}})
        'a=1, b=x'
    """
    variables = (f"{name}={shallow(value)}" for name, value in record["vars"].items())
    return record["testCase"]["description"] or ", ".join(variables)


def stripped(record: Mapping[str, Any], strip: Strip) -> Mapping[str, Any]:
    """A record without what is left out; the same object if that is nothing.

    Example:
        >>> bare = {"prompt": {"raw": "p", "label": "l"}, "vars": {"a": 1}}
        >>> stripped(bare, Strip(prompt_text=True))["prompt"]["raw"]
        '[prompt stripped]'
    """
    if strip == KEEP_ALL:
        return record
    found = dict(record)
    if strip.prompt_text:
        found["prompt"] = {**record["prompt"], **dict.fromkeys(("raw", "label"), STRIPPED_PROMPT)}
    if strip.test_vars:
        found["vars"] = {}
        found["testCase"] = {**record["testCase"], "vars": {}}
    if strip.response_output:
        _strip_output(found)
    if strip.grading_result:
        _strip_grading(found)
    if strip.metadata:
        found["testCase"] = {**found["testCase"], "metadata": {}}
        found["metadata"] = {"trioeval": own_of(found)}
        if found["response"] is not None:
            found["response"] = {**found["response"], "metadata": {}}
    return found


def _strip_output(found: dict[str, Any]) -> None:
    if found["response"] is not None:
        found["response"] = {**left(found["response"], {"raw"}), "output": STRIPPED_OUTPUT}
    found["metadata"] = {**found["metadata"], "trioeval": left(own_of(found), {"bodyExcerpt"})}


def _strip_grading(found: dict[str, Any]) -> None:
    own = left(own_of(found), {"gradingError", "componentResults"})
    found["metadata"] = {**found["metadata"], "trioeval": own}
    found["gradingResult"] = None
    if status_of(found) is Status.FAIL:
        found["error"] = None  # which is the reason of the verdict


def left(found: Mapping[str, Any], hidden: Iterable[str]) -> dict[str, Any]:
    """The same without some keys."""
    gone = set(hidden)
    return {key: part for key, part in found.items() if key not in gone}
