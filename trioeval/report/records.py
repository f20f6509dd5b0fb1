"""The record of a row, and the removal of its parts that must not be shown."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.evaluation.status import has_ended, recorded_status
from trioeval.grading import output_text
from trioeval.report.counts import money
from trioeval.report.formats.json import compact, shallow
from trioeval.report.strip import KEEP_ALL, Strip
from trioeval.report.usage import was_judged
from trioeval.run import Status
from trioeval.text import counted, own_description, quote
from trioeval.text_safety import escape_control_characters

STRIPPED_PROMPT = "[prompt stripped]"
STRIPPED_OUTPUT = "[output stripped]"

EMPTY_REPLY = "(empty)"
"""Shown in place of a reply without any text."""

CUT_OFF = "length"
"""The finish reason of a reply that was cut off at its token limit."""

_ASKED = ("question", "answers", "correctAnswers")
_SAID = ("agentAnswer", "parseError")
"""Members of a question's result that repeat the reply of the model."""
_TOLD = ("answer", "message", "error")
"""Members of a question's events that may repeat the reply."""
_JUDGED = frozenset({"correct", "incorrect", "parse_error"})
"""Outcomes whose reason names the correct or the given answer."""
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/'\"]+/)+")
"""Folders of absolute paths in a sentence."""
_ABOUT_OUTPUT = "the output "
"""The beginning of reasons about the output."""
_EXCERPT = 80  # characters of the output beside a reason
_TELLING = 20  # characters of its beginning, by which a reason that quotes it is recognized
_EMPTY = 2  # characters of an empty text in quotes
_NO_WORD = re.compile(r"[\W_]+")
_REPEAT = re.compile(r"-repeat-(\d+)\Z")
_NOTHING: Mapping[str, Any] = {}


@attrs.define
class PartRecord:
    """The verdict of one assertion of a row, or of a set of assertions."""

    passed: bool
    score: float
    reason: str
    assertion: Mapping[str, Any]
    """The assertion or the set as the suite defines it, as JSON."""
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "PartRecord":
        """Read a member of the `componentResults` of a verdict."""
        metadata = _object(found.get("metadata"))
        assertion = _object(found.get("assertion")) or _object(metadata.get("assertionSet"))
        passed = bool(found.get("pass"))
        return cls(
            passed, found.get("score", float(passed)), found.get("reason", ""), assertion, metadata
        )

    @property
    def type(self) -> str:
        """The type of the assertion."""
        return str(self.assertion.get("type", ""))

    @property
    def text(self) -> str:
        """Type, value and metric as text."""
        value = f" {output_text(self.assertion['value'])}" if "value" in self.assertion else ""
        metric = (
            f" as {self.assertion['metric']}" if self.assertion.get("metric") is not None else ""
        )
        return f"{self.type}{value}{metric}"

    @property
    def judges(self) -> str:
        """The models that judged it."""
        found = self.metadata.get("graders", ())
        return ", ".join(map(str, found if isinstance(found, list | tuple) else [found]))


@attrs.define(kw_only=True)  # not frozen: every row has one, and that makes them twice as fast
class RowRecord:
    """An ended row, read once from its JSON for everything that stores, counts or shows it.

    Records come from `row_json` or from other programs: missing values get defaults here.

    Example:
        >>> RowRecord.of({"failureReason": 2}).status
        <Status.ERROR: 'error'>
        >>> RowRecord.of({"metadata": {"trioeval": {"outcome": "not_run"}}}).status
        <Status.NOT_RUN: 'not_run'>
    """

    json: Mapping[str, Any] = attrs.field(repr=False)
    """The whole row, as in the store and in documents."""
    _text: str | None = attrs.field(repr=False, eq=False)
    id: str
    task: str | None
    """The id of its task; None if the suite has only one."""
    test_idx: int
    prompt_idx: int
    provider_id: str
    provider: str
    """The label of the provider, or else its id."""
    prompt: str | None
    """The rendered prompt."""
    prompt_label: str
    vars: Mapping[str, Any]
    test: Mapping[str, Any]
    """The test case, as JSON."""
    response: Mapping[str, Any] | None
    """The reply as JSON; None if there was none."""
    is_cached: bool
    """True if the reply came from the cache."""
    status: Status
    outcome: str
    """The outcome of its job."""
    score: float
    named_scores: Mapping[str, float]
    error: str | None
    verdict: Mapping[str, Any] | None
    """The verdict as JSON; None without a verdict."""
    latency_ms: float | None
    cost: float | None
    """US dollars, without judges."""
    usage: Mapping[str, Any]
    """The result of `usage_json`."""
    tokens: int
    """All tokens, without judges."""
    question: Mapping[str, Any]
    """The result of its question as JSON; empty for other task types."""
    own: Mapping[str, Any]
    """The members that only trioeval writes, as JSON."""
    attempts: int
    """The number of calls."""
    wait_ms: float
    """Milliseconds of waiting for its lane."""
    grading_cost: float | None
    """US dollars spent on judges."""
    index: int | None = attrs.field(default=None, eq=False)
    """The number of the row in its task, from 0, as `trioeval show` takes it; None if it is unknown."""

    @classmethod
    def of(
        cls, found: Mapping[str, Any], text: str | None = None, index: int | None = None
    ) -> "RowRecord":
        """Read the JSON of a row; `text` is its JSON text if it is at hand."""
        get = found.get
        provider, prompt = _object(get("provider")), _object(get("prompt"))
        response, verdict = _object(get("response")), _object(get("gradingResult"))
        own = _object(_object(get("metadata")).get("trioeval"))
        outcome, usage = str(own.get("outcome") or "done"), _object(get("tokenUsage"))
        return cls(
            json=found,
            text=text,
            id=get("id", ""),
            task=get("task"),
            test_idx=get("testIdx", 0),
            prompt_idx=get("promptIdx", 0),
            provider_id=provider.get("id", ""),
            provider=provider.get("label") or provider.get("id", ""),
            prompt=prompt.get("raw"),
            prompt_label=prompt.get("label", ""),
            vars=_object(get("vars")),
            test=_object(get("testCase")),
            response=response or None,
            is_cached=bool(response.get("cached")),
            status=recorded_status(found, outcome),
            outcome=outcome,
            score=get("score", 0.0),
            named_scores=_object(get("namedScores")),
            error=get("error"),
            verdict=verdict or None,
            latency_ms=get("latencyMs"),
            cost=get("cost"),
            usage=usage,
            tokens=usage.get("total") or 0,
            question=_object(get("question")),
            own=own,
            attempts=own.get("attempts", 0),
            wait_ms=own.get("waitMs") or 0.0,
            grading_cost=own.get("gradingCost"),
            index=index,
        )

    @property
    def text(self) -> str:
        """The whole row as compact JSON text."""
        return compact(self.json) if self._text is None else self._text

    @property
    def is_ended(self) -> bool:
        """True if its job ended by itself; false if the run was stopped or a dependency failed."""
        return has_ended(self.outcome)

    @property
    def counted_score(self) -> float | None:
        """The score as averages count it: None if the row was not graded."""
        return None if self.status is Status.NOT_GRADED else self.score

    @property
    def number(self) -> int:
        """The number of the row, or of its test if that of the row is unknown."""
        return self.test_idx if self.index is None else self.index

    @property
    def is_from_cache(self) -> bool:
        """True if no request was made for it: its tokens and latency are those of the cached call."""
        return self.is_cached and not self.usage.get("numRequests")

    @property
    def judge_tokens(self) -> int | None:
        """All tokens of judges; None if none was called."""
        return self.usage["assertions"]["total"] if was_judged(self.usage) else None

    @property
    def repeat(self) -> int:
        """The number of its repeat, from 0."""
        found = _REPEAT.search(self.id)
        return 0 if found is None else int(found[1])

    @property
    def output(self) -> Any:
        """The reply after all transforms; None if there was none."""
        return None if self.response is None else self.response.get("output")

    @property
    def finish_reason(self) -> str | None:
        """The reason why the reply ended, also of one without an output; None if unknown."""
        found = self.own if self.response is None else self.response
        reason: str | None = found.get("finishReason")
        return reason

    @property
    def tool_calls(self) -> str:
        """The tools that the model called, one on each line; empty without any."""
        calls = None if self.response is None else self.response.get("toolCalls")
        named = [one for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
        return "\n".join(f"{one.get('name')} {output_text(one.get('arguments'))}" for one in named)

    @property
    def is_cut_off(self) -> bool:
        """True if the reply was cut off at its token limit."""
        return self.finish_reason == CUT_OFF

    @property
    def reply_facts(self) -> Iterator[str]:
        """Other facts about the reply, in a few words each."""
        if self.is_cached:
            yield "from the cache"
        if self.response is not None and self.response.get("isRefusal"):
            yield "a refusal"
        if self.is_cut_off:
            yield "cut off at its token limit"
        if self.response is not None and self.finish_reason is not None:
            yield f"ended by {self.finish_reason}"

    @property
    def ending(self) -> str:
        """Its outcome in words."""
        agent = self.agent if self.outcome == "done" else None
        return "gave up" if agent is not None and agent.gave_up else self.outcome.replace("_", " ")

    @property
    def reason(self) -> str | None:
        """The reason of its verdict, or the error."""
        return self.error if self.verdict is None else self.verdict.get("reason")

    @property
    def output_excerpt(self) -> str | None:
        """The quoted beginning of the output, if the row failed for a reason about it that does not show it.

        None as well if an assertion compared the result of its own transform, or if outputs are stripped.
        """
        reason = self.reason
        is_about_it = self.status is Status.FAIL and (reason or "").startswith(_ABOUT_OUTPUT)
        if not is_about_it or reason is None or self.output in (None, STRIPPED_OUTPUT):
            return None
        if any("transform" in part.assertion for part in self.parts if part.reason == reason):
            return None
        excerpt = quote(shallow(self.output), _EXCERPT)
        return None if len(excerpt) > _EMPTY and excerpt[:_TELLING] in reason else excerpt

    def explained(self, most: int) -> str:
        """Return the reason of its verdict or the error, with the excerpt of the output; without controls.

        Args:
            most: The most characters of the reason.
        """
        reason = escape_control_characters(self.reason or self.error or "no reason given", most)
        excerpt = self.output_excerpt
        return reason if excerpt is None else reason + shown_output(excerpt)

    @property
    def parts(self) -> Sequence[PartRecord]:
        """The verdicts of its assertions, also of a row that then ended in an error."""
        found = (self.own if self.verdict is None else self.verdict).get("componentResults")
        parts = found if isinstance(found, list) else ()
        return [PartRecord.of(part) for part in parts if isinstance(part, dict)]

    @property
    def waits(self) -> Sequence[tuple[str, float]]:
        """The reasons and seconds of its waits, the longest first."""
        return sorted(_object(self.own.get("waits")).items(), key=lambda wait: -wait[1])

    @property
    def agent(self) -> "AgentFacts | None":
        """The agent that worked on it; None without an agent, or if its facts cannot be read."""
        return _agent(self.response)

    @property
    def shown(self) -> Any:
        """The short form of the row: its output, or the reason why it has none.

        Of a question it is the chosen answer without the text around it; of an agent that gave up it is the
        reason. May be long.

        Example:
            >>> RowRecord.of({"question": {"parseError": {"kind": "missing_answer"}}}).shown
            'no answer: missing_answer'
        """
        if self.status is Status.NOT_RUN:
            return (self.error or "").removeprefix("not run: ")
        if self.status is Status.ERROR:
            return self.error
        match self.question:
            case {"agentAnswer": answer}:
                return answer
            case {"parseError": {"kind": kind}}:
                return f"no answer: {kind}"
            case {"outcome": "budget_exceeded", "runError": {"message": message}}:
                return f"budget exceeded: {message}"
        match self.response:
            case {"metadata": {"agent": {"gaveUp": str(), "message": str(message)}}}:
                return _FOLDERS.sub("", message) or self.output
        return self.output

    @property
    def title(self) -> str | None:
        """The name of the test in the suite: its case and its description; None without both.

        Example:
            >>> RowRecord.of({"testCase": {"case": "calc", "description": "Repairs a sum"}}).title
            'calc: Repairs a sum'
        """
        case = self.test.get("case")
        description: str | None = own_description(self.test.get("description"))
        if not isinstance(case, str):  # other programs use the key differently
            return description
        if not description:
            return case
        # A case may be named after its description.
        is_same = _NO_WORD.sub("", case).lower() == _NO_WORD.sub("", description).lower()
        return case if is_same else f"{case}: {description}"

    @property
    def name(self) -> str:
        """The name of the test: its title, its question, or its variables. May be long.

        Example:
            >>> RowRecord.of({"vars": {"a": 1, "b": "x"}}).name
            'a=1, b=x'
        """
        variables = (f"{name}={shallow(value)}" for name, value in self.vars.items())
        return self.title or self.question.get("question") or ", ".join(variables)

    def stripped(self, strip: Strip) -> "RowRecord":
        """Return the record without the parts that must not be shown; the same object if there are none.

        Example:
            >>> bare = RowRecord.of({"prompt": {"raw": "p", "label": "l"}})
            >>> bare.stripped(Strip(prompt_text=True)).prompt
            '[prompt stripped]'
        """
        if strip == KEEP_ALL:
            return self
        found = RowRecord.of(_stripped(self, strip), index=self.index)
        found.status = self.status  # of which the grounds may be stripped
        return found


def _object(value: Any) -> Mapping[str, Any]:
    # The exact type first: isinstance with Mapping is slow.
    return value if type(value) is dict or isinstance(value, Mapping) else _NOTHING


def event_text(event: Mapping[str, Any]) -> str:
    """Return an event of a question with its details, without its time."""
    details = {key: part for key, part in event.items() if key not in {"sequence", "at", "event"}}
    more = ", ".join(f"{key} {output_text(part)}" for key, part in details.items())
    return f"{event['event']}{f' ({more})' if more else ''}"


def shown_output(excerpt: str) -> str:
    """Return the excerpt of an output as the end of a reason."""
    return f"; output: {escape_control_characters(excerpt)}"


def _stripped(record: RowRecord, strip: Strip) -> dict[str, Any]:
    found = dict(record.json)
    if strip.prompt_text:
        found["prompt"] = {**found["prompt"], **dict.fromkeys(("raw", "label"), STRIPPED_PROMPT)}
    if strip.test_vars:
        found["vars"] = {}
        found["testCase"] = {**record.test, "vars": {}}
        _hide_in_question(found, _ASKED)
    if strip.response_output:
        _strip_output(found)
    if strip.test_vars or strip.response_output:
        _strip_answers(found, record)
    if strip.grading_result:
        own = left(found["metadata"]["trioeval"], {"gradingError", "componentResults"})
        found["metadata"] = {**found["metadata"], "trioeval": own}
        found["gradingResult"] = None
        if record.status is Status.FAIL:
            found["error"] = None  # which is the reason of the verdict
    if strip.metadata:
        found["testCase"] = {**found["testCase"], "metadata": {}}
        found["metadata"] = {"trioeval": found["metadata"]["trioeval"]}
        if found["response"] is not None:
            found["response"] = {**found["response"], "metadata": {}}
    return found


def _strip_answers(found: dict[str, Any], record: RowRecord) -> None:
    """Replace the reason of a question, which names answers, by its outcome."""
    outcome = record.question.get("outcome")
    if outcome not in _JUDGED:
        return
    if record.verdict is not None:
        found["gradingResult"] = {**record.verdict, "reason": outcome}
    if record.status is Status.FAIL:
        found["error"] = outcome  # which is the reason of the verdict


_PARTS = frozenset({"media", "raw", "text", "toolCalls", "reasoning", "refusal"})
"""The members of a response, besides the output, that have a model's words or media."""


def _strip_output(found: dict[str, Any]) -> None:
    if found["response"] is not None:
        found["response"] = {**left(found["response"], _PARTS), "output": STRIPPED_OUTPUT}
    own = left(found["metadata"]["trioeval"], {"bodyExcerpt"})
    found["metadata"] = {**found["metadata"], "trioeval": own}
    _hide_in_question(found, _SAID)
    if (events := found.get("question", {}).get("events")) is not None:
        hidden = [left(event, _TOLD) for event in events]
        found["question"] = {**found["question"], "events": hidden}


def _hide_in_question(found: dict[str, Any], hidden: Iterable[str]) -> None:
    if "question" in found:
        found["question"] = left(found["question"], hidden)


def left(found: Mapping[str, Any], hidden: Iterable[str]) -> dict[str, Any]:
    """Return a mapping without some keys."""
    hidden_keys = set(hidden)
    return {key: part for key, part in found.items() if key not in hidden_keys}


# The agent of a row: its attempts with their results, and the paths of its files.


_LOGS = (("stdout", "stdout"), ("stderr", "stderr"), ("toolLog", "toolCalls"))
"""The key of a log's path, and the key of the number that is not 0 if the log exists."""
_MESSAGE = 500  # characters


@attrs.frozen(kw_only=True)
class AttemptFacts:
    """One attempt."""

    number: int
    failure: str | None
    """Kind and message of the failure; None if the attempt succeeded."""
    exit_code: int | None
    duration_ms: float
    tokens: int | None
    cost: float | None
    """US dollars."""
    steps: int | None
    """Replies of the model."""
    logs: Sequence[Path]
    warnings: Sequence[str]

    @property
    def facts(self) -> Iterator[str]:
        """Duration, result and usage, in a few words each."""
        yield (
            "has ended"
            if self.failure is None
            else f"has failed: {escape_control_characters(self.failure, _MESSAGE)}"
        )
        if self.exit_code is not None:
            yield f"exit code {self.exit_code}"
        yield f"{self.duration_ms:.0f} ms"
        if self.steps:
            yield counted(self.steps, "step")
        if self.tokens:
            yield counted(self.tokens, "token")
        if self.cost:
            yield money(self.cost)


@attrs.frozen(kw_only=True)
class AgentFacts:
    """The facts of an agent's case."""

    message: str
    """The result in a sentence."""
    gave_up: bool
    """True if the agent was not done after its last attempt."""
    folder: Path | None
    """The folder of the case; None if the agent was interrupted."""
    attempts: Sequence[AttemptFacts]
    children_ended: int
    """Child processes that had to be killed."""

    @property
    def sentence(self) -> str:
        """The result in a sentence, with killed child processes."""
        ended = self.children_ended
        children = f", {'1 child' if ended == 1 else f'{ended} children'} had to be killed"
        return escape_control_characters(self.message, _MESSAGE) + (children if ended else "")


def _agent(response: Mapping[str, Any] | None) -> AgentFacts | None:
    try:
        agent = (response or {})["metadata"]["agent"]
        folder = agent.get("folder")
        return AgentFacts(
            message=str(agent["message"]),
            gave_up="gaveUp" in agent,
            folder=None if folder is None else Path(folder),
            attempts=[_attempt(one) for one in agent["attempts"]],
            children_ended=int(agent["childrenEnded"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None  # other programs use the key differently


def _attempt(attempt: Mapping[str, Any]) -> AttemptFacts:
    failure, cost = attempt.get("failure"), attempt.get("cost")
    return AttemptFacts(
        number=int(attempt["number"]),
        failure=None if failure is None else f"{failure['kind']}: {failure['message']}",
        exit_code=_count(attempt.get("exitCode")),
        duration_ms=float(attempt["durationMs"]),
        tokens=_count(attempt.get("tokens")),
        cost=None if cost is None else float(cost),
        steps=_count(attempt.get("steps")),
        logs=[Path(attempt[name]) for name, known in _LOGS if attempt.get(known)],
        warnings=[*map(str, attempt.get("warnings", ()))],
    )


def _count(number: Any) -> int | None:
    return None if number is None else int(number)


def agent_lines(agent: AgentFacts, near: Path | None = None) -> Iterator[str]:
    """Yield the result, the folder, and each attempt with its files and warnings.

    Args:
        agent: The facts.
        near: The folder to which paths are relative if they are inside.
    """
    from trioeval.report.columns import shown_path

    yield agent.sentence
    if agent.folder is not None:
        yield f"folder {shown_path(agent.folder, near)}"
    for attempt in agent.attempts:
        yield f"attempt {attempt.number} {', '.join(attempt.facts)}"
        yield from (f"  {shown_path(log, near)}" for log in attempt.logs)
        yield from (
            f"  warning: {escape_control_characters(warning, _MESSAGE)}"
            for warning in attempt.warnings
        )
