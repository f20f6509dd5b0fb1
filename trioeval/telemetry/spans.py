"""A run as spans and events. Needs the extra `otel`; imported only where it is asked for.

A run is a span, each row one below it, each call one below its row: with the instants at which they were,
because a call is told of when it is over and its row begins before it. Replies that an earlier execution of a
run has paid for are told of by the execution that asked for them, and by no other.

Nothing here waits or reads a clock but the one of Trio; whoever exports does so in threads of their own.
What the code of others raises while it is told of something ends the telling, and not the run.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from trioeval.providers.secrets import hide
from trioeval.tasks.journal import CallKey, CallRecord, Journal
from trioeval.tasks.rows import Row
from trioeval.tasks.task_run import RowOf
from trioeval.telemetry import names, told
from trioeval.telemetry.asked import operation_of
from trioeval.telemetry.content import input_messages, output_messages
from trioeval.telemetry.telling import NoJournal, TellingJournal

_log = logging.getLogger("trioeval.telemetry")

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

    A span processor or exporter that raises is logged, and nothing more is told of the run.
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
    _is_broken: bool = attrs.field(init=False, default=False)
    """Whether somebody raised who was told."""

    def __enter__(self) -> Self:
        now = trio.current_time()
        self._offset = self.clock() - _ns(now)
        about = self._clean({names.RUN_ID: self.run_id, names.SUITE: self.description})
        with self._apart():
            span = self.tracer.start_span(
                "trioeval.run", start_time=self._utc(now), attributes=about
            )
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
        with self._apart():
            for row in self._rows.values():
                if row.span is not None:
                    row.span.end(self._utc(now))
        self._rows.clear()
        with self._apart():
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
        if not self._is_broken:
            with self._apart():
                self._tell_call(call)

    def recalled(self, key: CallKey) -> None:
        """The reply to a question was there from an earlier execution of the run."""
        if not self._is_broken and key.task not in self._without_rows:
            self._row(key.task, key.index).is_recalled = True

    def row_ended(self, row: Row) -> None:
        """A row is known."""
        if not self._is_broken:
            with self._apart():
                self._tell_row(row)

    def has_no_rows(self, task: str | None) -> None:
        """A task builds a dataset: its calls belong to the run."""
        self._without_rows.add(task)

    def _observe(self, task: str | None, row_of: RowOf, event: Event) -> None:
        if not isinstance(event, Admitted | Waiting | CallStarted) or event.index is None:
            return
        index = row_of(event.index)
        if not isinstance(index, int) or self._is_broken:
            return
        if isinstance(event, Admitted):
            row = self._row(task, index)
            if row.admitted_at is None:
                row.admitted_at = event.at
        elif (known := self._rows.get((task, index))) is not None:
            _end_wait(known, event.lane, event.at)
            if isinstance(event, Waiting):
                known.waiting[event.lane] = event.why, event.at

    def _tell_call(self, call: CallRecord) -> None:
        now, key = trio.current_time(), call.key
        began_at = now if call.cached else now - call.latency_ms / 1000
        parent, row = self._run, None
        if key.task not in self._without_rows:
            row = self._row(key.task, key.index)
            parent = trace.set_span_in_context(self._span_of(key.task, key.index, row, began_at))
        operation = operation_of(call)
        is_here = call.cached or operation.agent is not None
        span = self.tracer.start_span(
            self._hidden(operation.title),
            context=parent,
            kind=SpanKind.INTERNAL if is_here else SpanKind.CLIENT,
            start_time=self._utc(began_at),
            attributes=self._clean(told.asked(call, operation)),
        )
        span.set_attributes(self._clean(told.answered(call)))
        if self.content:
            span.set_attribute(names.INPUT_MESSAGES, self._hidden(input_messages(call.prompt)))
        if (kind := told.failure(call)) is not None:
            self._failed(span, kind)
        if not isinstance(call.answer, ProviderError):
            if self.content:
                span.set_attribute(
                    names.OUTPUT_MESSAGES, self._hidden(output_messages(call.answer))
                )
            if row is not None and key.role in ("provider", "attempt"):
                row.answered = span
        span.end(self._utc(now))

    def _tell_row(self, row: Row) -> None:
        now = trio.current_time()
        found = self._row(row.task, row.index)
        span = self._span_of(row.task, row.index, found, now)
        del self._rows[row.task, row.index]
        span.set_attributes(self._clean(told.row_told(row, is_recalled=found.is_recalled)))
        for wait in found.waits:
            about: _Told = {
                names.WAIT_FOR: wait.why.value,
                names.WAIT_LANE: self._hidden(wait.lane),
                names.WAIT_SECONDS: wait.ended_at - wait.at,
            }
            span.add_event(names.WAIT, about, self._utc(wait.at))
        if not row.status.has_verdict:
            self._failed(span, row.error_kind or row.outcome)
        judged = trace.set_span_in_context(found.answered or span)
        for verdict in told.judged(row):
            self._evaluated(row, verdict, judged, now)
        span.end(self._utc(now))

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """What is raised in the block is logged, and nothing is told any more."""
        try:
            yield
        except Exception:  # noqa: BLE001 - processors and exporters are the code of others
            self._is_broken = True
            self._rows.clear()
            _log.exception("whoever is told of spans raised, and is told no more")

    def _row(self, task: str | None, index: int) -> _OpenRow:
        found = self._rows.get((task, index))
        if found is None:
            found = self._rows[task, index] = _OpenRow()
        return found

    def _span_of(self, task: str | None, index: int, row: _OpenRow, begun_by: float) -> Span:
        """The span of a row, which began at the latest at an instant."""
        if row.span is None:
            began_at = begun_by if row.admitted_at is None else min(begun_by, row.admitted_at)
            row.span = self.tracer.start_span(
                "trioeval.row",
                context=self._run,
                start_time=self._utc(began_at),
                attributes=self._clean({names.ROW: index, names.TASK: task}),
            )
        return row.span

    def _failed(self, span: Span, kind: str) -> None:
        kind = self._hidden(kind)
        span.set_attribute(names.ERROR, kind)
        span.set_status(StatusCode.ERROR, kind)

    def _evaluated(self, row: Row, verdict: Verdict, judged: Context, now: float) -> None:
        assertion = verdict.assertion
        kind = "answer" if assertion is None else assertion.type
        about = {
            names.EVALUATION_NAME: kind if assertion is None else assertion.metric or kind,
            names.EVALUATION_SCORE: verdict.score,
            names.EVALUATION_LABEL: "pass" if verdict.passed else "fail",
            names.EVALUATION_EXPLANATION: verdict.reason if self.content else None,
            names.RESPONSE_ID: told.response_id(row.reply),
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
            attributes=self._clean(about),
        )

    def _utc(self, at: float) -> int:
        return self._offset + _ns(at)

    def _hidden(self, text: str) -> str:
        # Halves of surrogate pairs cannot be encoded; an exporter would lose the whole batch.
        return hide(text, self.keys).encode("utf-8", "replace").decode()

    def _clean(self, about: Mapping[str, Any]) -> _Told:
        """Attributes without those that are not known, and without keys."""
        return {name: self._plain(value) for name, value in about.items() if value is not None}

    def _plain(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._hidden(value)
        return [self._hidden(one) for one in value] if isinstance(value, list) else value


def _end_wait(row: _OpenRow, lane: str, at: float) -> None:
    if not row.waiting or (found := row.waiting.pop(lane, None)) is None:
        return
    why, since = found
    if at > since and len(row.waits) < _MOST_WAITS:
        row.waits.append(_Wait(why, lane, since, at))


def _ns(at: float) -> int:
    return int(at * 1e9)
