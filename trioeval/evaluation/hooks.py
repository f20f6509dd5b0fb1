"""Extensions during a run: the events that they get, and their changes to rows.

They run in their own processes and hold no slot. An extension that runs before a row is part of the row: if
it fails, so does the row. One that runs afterwards adds to an existing result: if it fails, a warning is
logged and the result stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import cattrs

from trioeval.documents.mistakes import MistakenError
from trioeval.errors import InputError, ScriptError
from trioeval.evaluation.row import Row
from trioeval.grading import Verdict
from trioeval.providers import Reply
from trioeval.suite.expand import Step
from trioeval.suite.extensions import Event, Extension, read_returned_test
from trioeval.suite.model import Suite
from trioeval.suite.plain import plain_prompt, plain_whole_test, suite_for_hooks

if TYPE_CHECKING:
    from trioeval.evaluation.scripts import Scripts

_STORE = b"storeOutputAs"
_OF_RECORDS = (
    *("testIdx", "promptIdx", "promptId", "provider", "prompt", "vars", "testCase", "response"),
    *("success", "score", "namedScores", "failureReason", "error", "gradingResult", "latencyMs"),
    *("cost", "metadata"),
)
_PARTS_OF_RECORDS = {
    "prompt": ("raw", "label"),
    "response": ("output", "cost", "metadata"),
    "gradingResult": ("pass", "score", "reason"),
}


@attrs.frozen(kw_only=True)
class HookedRow:
    """An ended row, as far as extensions may add to it."""

    step: Step
    """Metadata is added to that of its test."""
    reply: Reply | None
    verdict: Verdict | None


@attrs.define(eq=False, repr=False)
class Hooks:
    """The extensions of one task of a run.

    Args:
        extensions: In the order in which they are called.
        suite: The suite of the task.
        run_id: The run id that is passed to `afterAll`.
        scripts: Runs the extensions.
        converter: Structures the tests that they return.
        warn: Called with failures that do not affect rows.
    """

    extensions: Sequence[Extension]
    suite: Suite
    run_id: str | None
    scripts: Scripts
    converter: cattrs.Converter
    warn: Callable[[str], None]
    _results: dict[int, Mapping[str, Any]] = attrs.field(init=False, factory=dict)
    """By the index of the row."""

    @property
    def change_tests(self) -> bool:
        """True if an extension is called before a row runs, and may change its test."""
        return bool(self._extensions_for("beforeEach"))

    async def before_each(self, step: Step) -> Step:
        """Return the step of a row that is about to run, as changed by extensions.

        Raises:
            ScriptError: One of them failed.
            InputError: One of them returned something that is not a valid test.
        """
        given = plain_whole_test(attrs.evolve(step.test, vars=step.vars))
        found = given
        for extension in self._extensions_for("beforeEach"):
            returned = await self._call(extension, "beforeEach", {"test": found})
            match returned:
                case {"test": dict(answer)}:
                    found = answer
                case _ if returned:
                    msg = f"beforeEach of {extension} must return the context, or nothing"
                    raise InputError(msg)
                case _:
                    pass
        if found == given:
            return step
        try:
            test = read_returned_test(found, self.converter, is_data=step.test.is_data)
        except MistakenError as error:
            msg = f"beforeEach returned an invalid test: {error}"
            raise InputError(msg) from error
        # Its scheduling is decided already.
        options = attrs.evolve(test.options, run_serially=step.test.options.run_serially)
        test = attrs.evolve(test, options=options, extra=step.test.extra)
        return attrs.evolve(step, test=test, vars=test.vars)

    async def after_each(self, row: Row) -> HookedRow:
        """Return an ended row with the additions of extensions. Raises only when cancelled."""
        found = HookedRow(step=row.step, reply=row.reply, verdict=row.verdict)
        hearing = self._extensions_for("afterEach")
        if not hearing:
            return found
        test, result = plain_whole_test(row.step.test), result_json(row)
        for extension in hearing:
            context = {"test": test, "result": result}
            try:
                returned = await self._call(extension, "afterEach", context)
            except ScriptError as error:
                self.warn(str(error))
                continue
            match returned:
                case {"result": dict(answer)}:
                    found = _added(found, answer)
                    result = result | _shown(found)
                case _:
                    pass
        return found

    def remember(self, row: Row) -> None:
        """Remember a row for the end of the run, if an extension handles that."""
        if self._extensions_for("afterAll"):
            self._results[row.index] = result_json(row)

    def remember_record(self, index: int, record: Mapping[str, Any]) -> None:
        """Remember the record of a row from an earlier execution of the run."""
        if self._extensions_for("afterAll"):
            self._results[index] = _result_of(record)

    async def after_all(self) -> None:
        """Call the extensions at the end of the run, with all rows. Raises only when cancelled."""
        for extension in self._extensions_for("afterAll"):
            context = {
                "suite": suite_for_hooks(self.suite),
                "results": [result for _, result in sorted(self._results.items())],
                "prompts": [plain_prompt(prompt) for prompt in self.suite.prompts],
                "evalId": self.run_id,
            }
            try:
                await self._call(extension, "afterAll", context)
            except ScriptError as error:
                self.warn(str(error))

    def _extensions_for(self, event: Event) -> list[Extension]:
        return [extension for extension in self.extensions if extension.handles(event)]

    async def _call(self, extension: Extension, event: Event, context: Mapping[str, Any]) -> Any:
        arguments = extension.arguments(event, context)
        try:
            return await self.scripts.call(extension.file, extension.function, arguments)
        except ScriptError as error:
            msg = f"{event} of {extension} failed: {error.message}"
            raise ScriptError(msg, trace=error.trace) from error
        except (TypeError, ValueError) as error:  # a reply of the caller's own provider
            msg = f"{event} of {extension} cannot be called with data that is not JSON: {error}"
            raise ScriptError(msg) from error


def may_set_register(extension: Extension) -> bool:
    """Return whether an extension may set a register of tests: its file contains the word."""
    if not extension.handles("beforeEach"):
        return False
    try:
        return _STORE in extension.file.read_bytes()
    except OSError:
        return True


def result_json(row: Row) -> dict[str, Any]:
    """Return a row as passed to extensions, with promptfoo's keys."""
    step, reply, verdict = row.step, row.reply, row.verdict
    graded = None
    if verdict is not None:
        graded = {"pass": verdict.passed, "score": verdict.score, "reason": verdict.reason}
    response = None
    if reply is not None:
        response = {"output": row.output, "cost": reply.cost, "metadata": dict(reply.metadata)}
    return {
        "testIdx": step.test_idx,
        "promptIdx": step.prompt_idx,
        "promptId": step.column.prompt.id,
        "provider": {"id": row.provider.shown_id, "label": row.provider.label or ""},
        "prompt": {"raw": row.prompt, "label": step.column.prompt.label},
        "vars": dict(row.vars),
        "testCase": plain_whole_test(step.test),
        "response": response,
        "success": row.status.is_success,
        "score": row.score,
        "namedScores": dict(row.named_scores),
        "failureReason": row.status.failure_reason,
        "error": row.error,
        "gradingResult": graded,
        "latencyMs": row.latency_ms,
        "cost": None if reply is None else reply.cost,
        "metadata": dict(step.test.metadata),
    }


def _result_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as passed to extensions from its record, which has the same keys."""
    found = {name: record.get(name) for name in _OF_RECORDS}
    for name, members in _PARTS_OF_RECORDS.items():
        part = record.get(name)
        if isinstance(part, Mapping):
            found[name] = {member: part.get(member) for member in members}
    metadata = dict(_object(found["metadata"]))
    metadata.pop("trioeval", None)
    return found | {"metadata": metadata}


def _added(judged: HookedRow, answer: Mapping[str, Any]) -> HookedRow:
    """Return a row with an extension's additions; scores that are not numbers are left out."""
    step, reply, verdict = judged.step, judged.reply, judged.verdict
    if verdict is not None:
        scores = {**verdict.named_scores, **_scores(answer.get("namedScores"))}
        verdict = attrs.evolve(verdict, named_scores=scores)
    if metadata := _object(answer.get("metadata")):
        test = attrs.evolve(step.test, metadata={**step.test.metadata, **metadata})
        step = attrs.evolve(step, test=test)
    if reply is not None and (more := _object(_object(answer.get("response")).get("metadata"))):
        reply = attrs.evolve(reply, metadata={**reply.metadata, **more})
    return HookedRow(step=step, reply=reply, verdict=verdict)


def _shown(judged: HookedRow) -> dict[str, Any]:
    """Return the parts of a row that the next extension sees changed."""
    scores = {} if judged.verdict is None else dict(judged.verdict.named_scores)
    return {"namedScores": scores, "metadata": dict(judged.step.test.metadata)}


def _scores(value: Any) -> dict[str, float]:
    return {
        name: score
        for name, score in _object(value).items()
        if isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)
    }


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
