"""Extensions while a suite runs: what they are told of rows, and what they may change in them.

They run in processes of their own and hold no slot. What one does before a row is part of the row: if it
fails, so does the row. What one does afterwards adds to a result that is there already: if it fails, that
is told, and the result stays as it is.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import cattrs

from trioeval.documents.mistakes import MistakenError
from trioeval.errors import InputError, ScriptError
from trioeval.evaluation.row import Row, Status
from trioeval.evaluation.scripts import Scripts
from trioeval.grading import Verdict
from trioeval.providers import Reply
from trioeval.suite.expand import Step
from trioeval.suite.extensions import Event, Extension
from trioeval.suite.model import Suite, Test
from trioeval.suite.plain import plain_prompt, plain_suite, plain_test

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
_FAILURE_REASONS = {Status.PASS: 0, Status.FAIL: 1, Status.ERROR: 2, Status.NOT_RUN: 2}


@attrs.frozen(kw_only=True)
class Judged:
    """A row that is over, as far as extensions may add to it."""

    step: Step
    """Metadata is added to that of its test."""
    reply: Reply | None
    verdict: Verdict | None


@attrs.define(eq=False)
class Hooks:
    """The extensions of one task of a run.

    Args:
        extensions: In the order in which they are told.
        suite: That of the task.
        run_id: What the end of the run is told with.
        scripts: What runs them.
        converter: Reads the tests that they return.
        warn: Told of what fails without harm.
    """

    extensions: Sequence[Extension]
    suite: Suite
    run_id: str | None
    scripts: Scripts
    converter: cattrs.Converter
    warn: Callable[[str], None]
    _results: dict[int, Mapping[str, Any]] = attrs.field(init=False, factory=dict, repr=False)
    """By the index of the row."""

    @property
    def change_tests(self) -> bool:
        """Whether one of them is asked before a row runs, and may change its test."""
        return bool(self._hearing("beforeEach"))

    async def before_each(self, step: Step) -> Step:
        """The step of a row that is about to run, as extensions want it.

        Raises:
            ScriptError: One of them failed.
            InputError: One of them returned what is no test.
        """
        given = plain_test(attrs.evolve(step.test, vars=step.vars))
        found = given
        for extension in self._hearing("beforeEach"):
            returned = await self._tell(extension, "beforeEach", {"test": found})
            match returned:
                case {"test": dict(said)}:
                    found = said
                case _ if returned:
                    msg = f"beforeEach of {extension} must return the context, or nothing"
                    raise InputError(msg)
                case _:
                    pass
        if found == given:
            return step
        try:
            test = self.converter.structure(found, Test)
        except MistakenError as error:
            msg = f"beforeEach returned a test that is wrong: {error}"
            raise InputError(msg) from error
        # When it runs is settled already.
        options = attrs.evolve(test.options, run_serially=step.test.options.run_serially)
        test = attrs.evolve(test, options=options, extra=step.test.extra)
        return attrs.evolve(step, test=test, vars=test.vars)

    async def after_each(self, row: Row) -> Judged:
        """What extensions make of a row that is over. Never raises but when it is cancelled."""
        found = Judged(step=row.step, reply=row.reply, verdict=row.verdict)
        hearing = self._hearing("afterEach")
        if not hearing:
            return found
        test, result = plain_test(row.step.test), result_json(row)
        for extension in hearing:
            context = {"test": test, "result": result}
            try:
                returned = await self._tell(extension, "afterEach", context)
            except ScriptError as error:
                self.warn(str(error))
                continue
            match returned:
                case {"result": dict(said)}:
                    found = _added(found, said)
                    result = result | _shown(found)
                case _:
                    pass
        return found

    def keep(self, row: Row) -> None:
        """Remember a row for the end of the run, if an extension will be told of that."""
        if self._hearing("afterAll"):
            self._results[row.index] = result_json(row)

    def keep_record(self, index: int, record: Mapping[str, Any]) -> None:
        """The same of a row that an earlier execution of the run has written down."""
        if self._hearing("afterAll"):
            self._results[index] = _result_of(record)

    async def after_all(self) -> None:
        """Tell of the end of the run, with all rows. Never raises but when it is cancelled."""
        for extension in self._hearing("afterAll"):
            context = {
                "suite": plain_suite(self.suite),
                "results": [result for _, result in sorted(self._results.items())],
                "prompts": [plain_prompt(prompt) for prompt in self.suite.prompts],
                "evalId": self.run_id,
            }
            try:
                await self._tell(extension, "afterAll", context)
            except ScriptError as error:
                self.warn(str(error))

    def _hearing(self, event: Event) -> list[Extension]:
        return [extension for extension in self.extensions if extension.hears(event)]

    async def _tell(self, extension: Extension, event: Event, context: Mapping[str, Any]) -> Any:
        arguments = extension.arguments(event, context)
        try:
            return await self.scripts.call(extension.file, extension.function, arguments)
        except ScriptError as error:
            msg = f"{event} of {extension} failed: {error.message}"
            raise ScriptError(msg, trace=error.trace) from error
        except (TypeError, ValueError) as error:  # what a provider of the caller's answered
            msg = f"{event} of {extension} cannot be told of what is not JSON: {error}"
            raise ScriptError(msg) from error


def may_store(extension: Extension) -> bool:
    """Whether an extension may give tests a register that they do not have: its file has the word."""
    if not extension.hears("beforeEach"):
        return False
    try:
        return _STORE in extension.file.read_bytes()
    except OSError:
        return True


def result_json(row: Row) -> dict[str, Any]:
    """A row as extensions see it, in the words of promptfoo."""
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
        "provider": {"id": row.provider.id, "label": row.provider.label or ""},
        "prompt": {"raw": row.prompt, "label": step.column.prompt.label},
        "vars": dict(row.vars),
        "testCase": plain_test(step.test),
        "response": response,
        "success": row.status is Status.PASS,
        "score": row.score,
        "namedScores": dict(row.named_scores),
        "failureReason": _FAILURE_REASONS[row.status],
        "error": row.error,
        "gradingResult": graded,
        "latencyMs": row.latency_ms,
        "cost": None if reply is None else reply.cost,
        "metadata": dict(step.test.metadata),
    }


def _result_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """A row as extensions see it, from its record, which has the same words for it."""
    found = {name: record.get(name) for name in _OF_RECORDS}
    for name, members in _PARTS_OF_RECORDS.items():
        part = record.get(name)
        if isinstance(part, Mapping):
            found[name] = {member: part.get(member) for member in members}
    metadata = dict(_object(found["metadata"]))
    metadata.pop("trioeval", None)
    return found | {"metadata": metadata}


def _added(judged: Judged, said: Mapping[str, Any]) -> Judged:
    """A row with what an extension added to it; scores that are no numbers are left out."""
    step, reply, verdict = judged.step, judged.reply, judged.verdict
    if verdict is not None:
        scores = {**verdict.named_scores, **_scores(said.get("namedScores"))}
        verdict = attrs.evolve(verdict, named_scores=scores)
    if metadata := _object(said.get("metadata")):
        test = attrs.evolve(step.test, metadata={**step.test.metadata, **metadata})
        step = attrs.evolve(step, test=test)
    if reply is not None and (more := _object(_object(said.get("response")).get("metadata"))):
        reply = attrs.evolve(reply, metadata={**reply.metadata, **more})
    return Judged(step=step, reply=reply, verdict=verdict)


def _shown(judged: Judged) -> dict[str, Any]:
    """What the next extension sees of it."""
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
