"""Records: rows as `row_json` made them, in memory or read back, and what may be shown of them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trioeval.evaluation.reconcile import has_ended
from trioeval.report.formats.json import shallow
from trioeval.run import Status
from trioeval.suite.tests import KEEP_ALL, Strip

STRIPPED_PROMPT = "[prompt stripped]"
STRIPPED_OUTPUT = "[output stripped]"

_ASKED = ("question", "answers", "correctAnswers")
_SAID = ("agentAnswer", "parseError")
"""Of what became of a question: what was asked, and what a model said."""
_TOLD = ("answer", "message", "error")
"""Of what happened to a question: what may repeat what a model said."""
_JUDGED = frozenset({"correct", "incorrect", "parse_error"})
"""Outcomes whose reason names the answer that is right, or the one that was given."""
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/'\"]+/)+")
"""Of absolute paths in a sentence."""
_NO_WORD = re.compile(r"[\W_]+")
_STATUSES = (Status.PASS, Status.FAIL, Status.ERROR)  # by failureReason


def status_of(record: Mapping[str, Any]) -> Status:
    """Whether a row passed, failed, has no verdict, or was not run to its end.

    Example:
        >>> status_of({"failureReason": 2})
        <Status.ERROR: 'error'>
        >>> status_of({"failureReason": 2, "metadata": {"trioeval": {"outcome": "not_run"}}})
        <Status.NOT_RUN: 'not_run'>
    """
    return _STATUSES[record["failureReason"]] if is_ended(record) else Status.NOT_RUN


def own_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """What only trioeval knows of a row: its outcome, lane, attempts and waits."""
    found: Mapping[str, Any] = record["metadata"]["trioeval"]
    return found


def is_ended(record: Mapping[str, Any]) -> bool:
    """Whether a row came to an end; not if its run was stopped before, or what it depends on failed.

    Example:
        >>> is_ended({"metadata": {"trioeval": {"outcome": "not_run"}}})
        False
    """
    match record.get("metadata"):
        case {"trioeval": {"outcome": str(outcome)}}:
            return has_ended(outcome)
        case _:
            return True


def is_from_cache(record: Mapping[str, Any]) -> bool:
    """Whether nobody was asked for a row: what was used for it, and how long that took, was at another time.

    Example:
        >>> is_from_cache({"response": {"cached": True}, "tokenUsage": {"numRequests": 0}})
        True
    """
    response = record["response"]
    return bool(response and response["cached"]) and not record["tokenUsage"]["numRequests"]


def output_of(record: Mapping[str, Any]) -> Any:
    """What was answered, after all transforms; None where nothing was."""
    return None if record["response"] is None else record["response"]["output"]


def shown_of(record: Mapping[str, Any]) -> Any:
    """What stands for a row where there is little room: what was answered, or why nothing was.

    Of a question that is the answer that was chosen, and not the reply that it stands in; of an agent that
    was given up it is why. May be long.

    Example:
        >>> shown_of({"failureReason": 1, "question": {"parseError": {"kind": "missing_answer"}}})
        'no answer: missing_answer'
    """
    status = status_of(record)
    if status is Status.NOT_RUN:
        return (record["error"] or "").removeprefix("not run: ")
    if status is Status.ERROR:
        return record["error"]
    match record.get("question"):
        case {"agentAnswer": answer}:
            return answer
        case {"parseError": {"kind": kind}}:
            return f"no answer: {kind}"
        case {"outcome": "budget_exceeded", "runError": {"message": message}}:
            return f"budget exceeded: {message}"
        case _:
            return _given_up(record) or output_of(record)


def _given_up(record: Mapping[str, Any]) -> str | None:
    """Why an agent was given up, with the names of files alone in place of their paths."""
    match record["response"]:
        case {"metadata": {"agent": {"gaveUp": str(), "message": str(message)}}}:
            return _FOLDERS.sub("", message)
        case _:
            return None


def title_of_test(record: Mapping[str, Any]) -> str | None:
    """What its suite calls the test of a row: its case, and how that is described; None if nothing is said.

    Example:
        >>> title_of_test({"testCase": {"case": "calc", "description": "Repairs a sum"}})
        'calc: Repairs a sum'
    """
    case, description = record["testCase"].get("case"), record["testCase"]["description"]
    if not isinstance(case, str):  # others call something else so
        return description or None
    if not description:
        return case
    # It may be named after its description.
    is_same = _NO_WORD.sub("", case).lower() == _NO_WORD.sub("", description).lower()
    return case if is_same else f"{case}: {description}"


def name_of_test(record: Mapping[str, Any]) -> str:
    """What people call the test of a row: its title, its question, or its variables. May be long.

    Example:
        >>> name_of_test({"testCase": {"description": None}, "vars": {"a": 1, "b": "x"}})
        'a=1, b=x'
    """
    variables = (f"{name}={shallow(value)}" for name, value in record["vars"].items())
    question = record.get("question", {}).get("question")
    return title_of_test(record) or question or ", ".join(variables)


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
        _hide_in_question(found, _ASKED)
    if strip.response_output:
        _strip_output(found)
    if strip.test_vars or strip.response_output:
        _strip_answers(found)
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
    _hide_in_question(found, _SAID)
    if (events := found.get("question", {}).get("events")) is not None:
        hidden = [left(event, _TOLD) for event in events]
        found["question"] = {**found["question"], "events": hidden}


def _strip_answers(found: dict[str, Any]) -> None:
    """Say of a question how it ended, and not by which answer."""
    outcome = found.get("question", {}).get("outcome")
    if outcome not in _JUDGED:
        return
    if found["gradingResult"] is not None:
        found["gradingResult"] = {**found["gradingResult"], "reason": outcome}
    if status_of(found) is Status.FAIL:
        found["error"] = outcome  # which is the reason of the verdict


def _hide_in_question(found: dict[str, Any], hidden: Iterable[str]) -> None:
    if "question" in found:
        found["question"] = left(found["question"], hidden)


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
