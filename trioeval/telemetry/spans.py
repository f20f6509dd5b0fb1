"""A run as spans and events. Needs the extra `otel`; imported only where it is asked for.

A run is a span, each row one below it, each call one below its row: with the instants at which they were,
because a call is told of when it is over and its row begins before it. Replies that an earlier execution of a
run has paid for are told of by the execution that asked for them, and by no other.

Nothing here waits or reads a clock but the one of Trio; whoever exports does so in threads of their own.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self

import attrs
import trio
from opentelemetry import _logs, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode

from trioeval._version import __version__
from trioeval.errors import ProviderError
from trioeval.grading import Verdict
from trioeval.kernel import Admitted, CallStarted, Event, Observer, Waiting
from trioeval.kernel.events import Why
from trioeval.providers import Reply
from trioeval.providers.secrets import hide
from trioeval.tasks.journal import CallKey, CallRecord, Journal
from trioeval.tasks.rows import Row, Status
from trioeval.tasks.task_run import RowOf
from trioeval.telemetry import names
from trioeval.telemetry.asked import operation_of
from trioeval.telemetry.content import input_messages, output_messages
from trioeval.telemetry.telling import NoJournal, TellingJournal

_SCOPE = "trioeval"
_MOST_WAITS = 64  # events of one row
_Told = dict[str, str | int | float | bool | Sequence[str]]


@attrs.define
class _Wait:
    why: Why
    lane: str
    at: float
    ended_at: float


@attrs.define
class _OpenRow:
    """What is known of a row that is not over."""

    admitted_at: float | None = None
    span: Span | None = None
    answered: Span | None = None
    """The call that gave the reply which is judged."""
    is_recalled: bool = False
    waiting: dict[str, tuple[Why, float]] = attrs.field(factory=dict)
    """By lane, what a call of it waits for now, and since when."""
    waits: list[_Wait] = attrs.field(factory=list)


def _tracer() -> trace.Tracer:
    return trace.get_tracer(_SCOPE, __version__)


def _logger() -> _logs.Logger:
    return _logs.get_logger(_SCOPE, __version__)


@attrs.define(eq=False, kw_only=True)
class Telemetry:
    """Turns what happens in a run into spans and events, as it happens.

    A context manager around one run: the span of the run is a child of the one that is current when it is
    entered, and is current inside. Give `observer` to the run as its `observers`, and `told_of()` as its
    `journal`.
    """

    tracer: trace.Tracer = attrs.field(factory=_tracer)
    """Makes spans; that of the providers which are configured, if none is given."""
    logger: _logs.Logger = attrs.field(factory=_logger)
    """Likewise for the events of evaluations."""
    run_id: str | None = None
    description: str | None = None
    """Of the suite."""
    content: bool = False
    """Whether prompts, replies and reasons of verdicts are told. They may hold anything."""
    keys: Sequence[str] = attrs.field(default=(), repr=False)
    """Texts that are hidden in all that is told."""
    clock: Callable[[], int] = time.time_ns
    """Nanoseconds since 1970; asked once, when the run begins."""
    _offset: int = attrs.field(init=False, default=0)
    """What makes such nanoseconds of an instant on the Trio clock."""
    _run: Context = attrs.field(init=False, factory=Context)
    _rows: dict[tuple[str | None, int], _OpenRow] = attrs.field(init=False, factory=dict)
    _without_rows: set[str | None] = attrs.field(init=False, factory=set)
    _stack: ExitStack = attrs.field(init=False, factory=ExitStack)

    def __enter__(self) -> Self:
        now = trio.current_time()
        self._offset = self.clock() - _ns(now)
        told = self._clean({names.RUN_ID: self.run_id, names.SUITE: self.description})
        span = self.tracer.start_span("trioeval.run", start_time=self._utc(now), attributes=told)
        self._run = trace.set_span_in_context(span)
        self._stack.callback(lambda: span.end(self._utc(trio.current_time())))
        self._stack.enter_context(
            trace.use_span(span, record_exception=False, set_status_on_exception=False)
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the run, and what is still open of it; nothing is flushed."""
        now = trio.current_time()
        for row in self._rows.values():
            if row.span is not None:
                row.span.end(self._utc(now))
        self._rows.clear()
        if isinstance(error, Exception):
            span = trace.get_current_span(self._run)
            span.set_attribute(names.ERROR, type(error).__qualname__)
            span.set_status(StatusCode.ERROR)
        self._stack.close()

    def told_of(self, journal: Journal | None = None) -> Journal:
        """The same journal, of whose calls and rows this hears as well; None is one that keeps nothing."""
        return TellingJournal(NoJournal() if journal is None else journal, self)

    def observer(self, task: str | None, row_of: RowOf) -> Observer:
        """What hears of the events of a task."""
        return partial(self._observe, task, row_of)

    def call_ended(self, call: CallRecord) -> None:
        """A call is over. Told by the journal, as all below."""
        now, key = trio.current_time(), call.key
        began_at = now if call.cached else now - call.latency_ms / 1000
        parent, row = self._run, None
        if key.task not in self._without_rows:
            row = self._row(key.task, key.index)
            parent = trace.set_span_in_context(self._span_of(key.task, key.index, row, began_at))
        operation = operation_of(call)
        span = self.tracer.start_span(
            operation.name if operation.model is None else f"{operation.name} {operation.model}",
            context=parent,
            kind=SpanKind.INTERNAL if call.cached else SpanKind.CLIENT,
            start_time=self._utc(began_at),
            attributes=self._clean(
                {
                    names.OPERATION: operation.name,
                    names.PROVIDER: operation.provider,
                    names.REQUEST_MODEL: operation.model,
                    names.SERVER: None if call.asked is None else call.asked.host,
                    names.LABEL: call.provider,
                    names.ROLE: key.role,
                    names.TASK: key.task,
                    names.ROW: key.index,
                    names.CACHED: call.cached or None,
                }
            ),
        )
        if self.content:
            span.set_attribute(names.INPUT_MESSAGES, self._hidden(input_messages(call.prompt)))
        if isinstance(call.answer, ProviderError):
            told = {names.ERROR: call.answer.kind, names.STATUS_CODE: call.answer.status}
            span.set_attributes(self._clean(told))
            span.set_status(StatusCode.ERROR, call.answer.kind)
        else:
            span.set_attributes(self._clean(_answered(call.answer)))
            if self.content:
                span.set_attribute(
                    names.OUTPUT_MESSAGES, self._hidden(output_messages(call.answer))
                )
            if row is not None and key.role in ("provider", "attempt"):
                row.answered = span
        span.end(self._utc(now))

    def recalled(self, key: CallKey) -> None:
        """The reply to a question was there from an earlier execution of the run."""
        if key.task not in self._without_rows:
            self._row(key.task, key.index).is_recalled = True

    def row_ended(self, row: Row) -> None:
        """A row is known."""
        now = trio.current_time()
        found = self._row(row.task, row.index)
        span = self._span_of(row.task, row.index, found, now)
        del self._rows[row.task, row.index]
        span.set_attributes(self._clean(_row_told(row, is_recalled=found.is_recalled)))
        for wait in found.waits:
            told: _Told = {
                names.WAIT_FOR: wait.why.value,
                names.WAIT_LANE: self._hidden(wait.lane),
                names.WAIT_SECONDS: wait.ended_at - wait.at,
            }
            span.add_event(names.WAIT, told, self._utc(wait.at))
        if row.status is Status.ERROR:
            kind = row.error_kind or row.outcome
            span.set_attribute(names.ERROR, kind)
            span.set_status(StatusCode.ERROR, kind)
        judged = trace.set_span_in_context(found.answered or span)
        for verdict in _judged(row):
            self._evaluated(row, verdict, judged, now)
        span.end(self._utc(now))

    def has_no_rows(self, task: str | None) -> None:
        """A task builds a dataset: its calls belong to the run."""
        self._without_rows.add(task)

    def _observe(self, task: str | None, row_of: RowOf, event: Event) -> None:
        if not isinstance(event, Admitted | Waiting | CallStarted) or event.index is None:
            return
        index = row_of(event.index)
        if index is None:
            return
        row = self._row(task, index)
        if isinstance(event, Admitted):
            if row.admitted_at is None:
                row.admitted_at = event.at
            return
        _end_wait(row, event.lane, event.at)
        if isinstance(event, Waiting):
            row.waiting[event.lane] = event.why, event.at

    def _row(self, task: str | None, index: int) -> _OpenRow:
        return self._rows.setdefault((task, index), _OpenRow())

    def _span_of(self, task: str | None, index: int, row: _OpenRow, begun_by: float) -> Span:
        """The span of a row, which began at the latest at an instant."""
        if row.span is None:
            began_at = begun_by if row.admitted_at is None else min(begun_by, row.admitted_at)
            told = self._clean({names.ROW: index, names.TASK: task})
            row.span = self.tracer.start_span(
                "trioeval.row",
                context=self._run,
                start_time=self._utc(began_at),
                attributes=told,
            )
        return row.span

    def _evaluated(self, row: Row, verdict: Verdict, judged: Context, now: float) -> None:
        assertion = verdict.assertion
        kind = "answer" if assertion is None else assertion.type
        told = {
            names.EVALUATION_NAME: kind if assertion is None else assertion.metric or kind,
            names.EVALUATION_SCORE: verdict.score,
            names.EVALUATION_LABEL: "pass" if verdict.passed else "fail",
            names.EVALUATION_EXPLANATION: verdict.reason if self.content else None,
            names.ASSERTION: kind,
            names.RUN_ID: self.run_id,
            names.TASK: row.task,
            names.ROW: row.index,
        }
        self.logger.emit(
            timestamp=self._utc(now),
            context=judged,
            severity_number=_logs.SeverityNumber.INFO,
            event_name=names.RESULT,
            attributes=self._clean(told),
        )

    def _utc(self, at: float) -> int:
        return self._offset + _ns(at)

    def _hidden(self, text: str) -> str:
        # Halves of surrogate pairs cannot be encoded; an exporter would lose the whole batch.
        return hide(text, self.keys).encode("utf-8", "replace").decode()

    def _clean(self, told: Mapping[str, Any]) -> _Told:
        """Attributes without those that are not known, and without keys."""
        return {
            name: self._hidden(value) if isinstance(value, str) else value
            for name, value in told.items()
            if value is not None
        }


def _answered(reply: Reply) -> Mapping[str, Any]:
    usage, about = reply.usage, reply.metadata
    return {
        names.RESPONSE_MODEL: _text(about.get("model")),
        names.RESPONSE_ID: _text(about.get("id")),
        names.FINISH_REASONS: None if reply.finish_reason is None else [reply.finish_reason],
        names.FIRST_CHUNK: reply.first_token,
        names.INPUT_TOKENS: usage.prompt,
        names.OUTPUT_TOKENS: usage.completion,
        names.CACHE_READ: usage.cached,
        names.CACHE_CREATION: usage.cache_creation,
        names.REASONING: usage.reasoning,
        names.COST: reply.cost,
    }


def _row_told(row: Row, *, is_recalled: bool) -> Mapping[str, Any]:
    waits = {f"{names.WAIT}.{why}": seconds for why, seconds in row.waits.items()}
    return {
        names.STATUS: row.status.value,
        names.OUTCOME: row.outcome,
        names.SCORE: row.score,
        names.LANE: row.lane,
        names.LABEL: row.label,
        names.CALLS: row.calls,
        names.TEST: row.step.test_idx,
        names.TEST_NAME: row.step.test.description,
        names.PROMPT: row.step.prompt_idx,
        names.CACHED: row.cached or None,
        names.RECALLED: is_recalled or None,
        **waits,
    }


def _judged(row: Row) -> Iterator[Verdict]:
    """The verdicts that were not made of others."""
    if row.verdict is None:
        yield from _leaves(row.graded)
    elif row.verdict.parts:
        yield from _leaves(row.verdict.parts)
    elif row.question is not None:
        yield row.verdict


def _leaves(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    for verdict in verdicts:
        if verdict.parts:
            yield from _leaves(verdict.parts)
        else:
            yield verdict


def _end_wait(row: _OpenRow, lane: str, at: float) -> None:
    if not row.waiting or (found := row.waiting.pop(lane, None)) is None:
        return
    why, since = found
    if at > since and len(row.waits) < _MOST_WAITS:
        row.waits.append(_Wait(why, lane, since, at))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _ns(at: float) -> int:
    return int(at * 1e9)
