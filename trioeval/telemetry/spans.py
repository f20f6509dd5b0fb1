"""A run as spans and events. Needs the extra `otel`; imported on demand.

A run is a span, each row a child of it, each call a child of its row. Spans are made with past times,
because a call is reported when it is over and its row begins before it. A reply that an earlier execution of
a run has paid for belongs to the spans of that execution only.

Nothing here waits, or reads a clock other than Trio's; exporters use their own threads. An exception in
foreign code during a notification ends the telemetry, not the run.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import attrs
import trio
from opentelemetry import _logs, trace
from opentelemetry.context import Context as SpanContext
from opentelemetry.trace import Span, SpanKind, StatusCode

from trioeval._version import __version__
from trioeval.agent.attempts import attempt_end
from trioeval.errors import ProviderError
from trioeval.evaluation.journal import CallKey, CallRecord, RecordObserver
from trioeval.evaluation.row import Row
from trioeval.evaluation.task_run import RowOf
from trioeval.grading import Verdict
from trioeval.kernel import Admitted, CallStarted, Event, Observer, Waiting
from trioeval.kernel.events import WaitReason
from trioeval.providers import Reply
from trioeval.providers.base import ModelIdentity
from trioeval.providers.secrets import hide
from trioeval.telemetry.content import input_messages, output_messages
from trioeval.usage import Usage

# The operation and the model of a call by OpenTelemetry's conventions for generative AI. Pure.
#
# An attempt of an agent is recorded like a call, and becomes the invocation of an agent; the calls of a model
# that is an agent are ordinary calls.


_PROVIDERS: Mapping[str, str] = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "groq": "groq",
    "mistral": "mistral_ai",
    "openai": "openai",
    "perplexity": "perplexity",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""Names by family, or by the more specific prefix of an id; other families keep their names."""

_OPERATIONS: Mapping[str, str] = {
    "completion": "text_completion",
    "embedding": "embeddings",
    "embeddings": "embeddings",
}
"""Names by the kind in an id."""

_MOST = 64  # characters of a name


@attrs.frozen(kw_only=True)
class Operation:
    """The operation of a call, and its model."""

    name: str
    """Such as `chat`."""
    provider: str
    model: str | None
    agent: str | None = None
    """The name of the agent, for an attempt of an agent."""

    @property
    def title(self) -> str:
        """The name of its span."""
        subject = self.model if self.agent is None else self.agent
        return self.name if subject is None else f"{self.name} {subject}"


def operation_of(call: CallRecord) -> Operation:
    """Return the operation of a call.

    Example:
        >>> from trioeval.providers import Reply
        >>> from trioeval.evaluation.journal import CallKey
        >>> call = CallRecord(
        ...     key=CallKey(None, 0, "provider", b""),
        ...     provider="mine",
        ...     prompt="Hello",
        ...     answer=Reply(output="Hi"),
        ...     latency_ms=1.0,
        ...     model=ModelIdentity(id="azure:chat:gpt-x", family="azure", model="gpt-x"),
        ... )
        >>> operation_of(call)
        Operation(name='chat', provider='azure.ai.openai', model='gpt-x', agent=None)
    """
    model = call.model or ModelIdentity(id=call.provider)
    prefix, *rest = model.id.split(":")
    is_agent = isinstance(call.answer, Reply) and attempt_end(call.answer) is not None
    name = next((_OPERATIONS[kind] for kind in rest if kind in _OPERATIONS), "chat")
    provider = _PROVIDERS.get(prefix) or _PROVIDERS.get(model.family or "")
    return Operation(
        name="invoke_agent" if is_agent else name,
        provider=provider or (model.family or prefix)[:_MOST],
        model=model.model,
        agent=call.provider if is_agent else None,
    )


# The names of attributes and events.
#
# Those of the conventions are copied, because their package is not needed to run; a test compares them. All
# other names begin with `trioeval.`.


OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
CACHE_CREATION = "gen_ai.usage.cache_creation.input_tokens"
REASONING = "gen_ai.usage.reasoning.output_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
EVALUATION_NAME = "gen_ai.evaluation.name"
EVALUATION_SCORE = "gen_ai.evaluation.score.value"
EVALUATION_LABEL = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION = "gen_ai.evaluation.explanation"
SERVER = "server.address"
PORT = "server.port"
STATUS_CODE = "http.response.status_code"
ERROR = "error.type"

RESULT = "gen_ai.evaluation.result"
"""The name of the event of an evaluation."""

RUN_ID = "trioeval.run.id"
SUITE = "trioeval.suite.description"
TASK = "trioeval.task"
ROW = "trioeval.row.index"
TEST = "trioeval.test.index"
TEST_NAME = "trioeval.test.description"
PROMPT = "trioeval.prompt.index"
LABEL = "trioeval.provider.label"
LANE = "trioeval.lane"
STATUS = "trioeval.status"
OUTCOME = "trioeval.outcome"
SCORE = "trioeval.score"
CALLS = "trioeval.calls"
CACHED = "trioeval.cached"
RECALLED = "trioeval.recalled"
COST = "trioeval.cost"
ROLE = "trioeval.role"
ASSERTION = "trioeval.assertion.type"
WAIT = "trioeval.wait"
"""The name of an event, and the prefix of the names of a row's waits by reason."""
WAIT_FOR = "trioeval.wait.for"
WAIT_LANE = "trioeval.wait.lane"
WAIT_SECONDS = "trioeval.wait.seconds"


# The attributes of calls, rows and verdicts by name; None for unknown values. Pure.


def request_attributes(call: CallRecord, operation: Operation) -> Mapping[str, Any]:
    """Return the attributes of a call that are known when it starts."""
    model = call.model
    return {
        OPERATION: operation.name,
        PROVIDER: operation.provider,
        REQUEST_MODEL: operation.model,
        AGENT: operation.agent,
        SERVER: None if model is None else model.host,
        PORT: None if model is None or model.host is None else model.port,
        LABEL: call.provider,
        ROLE: call.key.role,
        TASK: call.key.task,
        ROW: call.key.index,
        CACHED: call.cached or None,
    }


def answered(call: CallRecord) -> Mapping[str, Any]:
    """Return the attributes of an ended call, without its failure."""
    reply = call.answer
    if isinstance(reply, ProviderError):
        return {
            STATUS_CODE: reply.status,
            FINISH_REASONS: None if reply.finish_reason is None else [reply.finish_reason],
            **_used(reply.usage, is_cached=False),
            COST: reply.money,
        }
    about = reply.metadata
    return {
        RESPONSE_MODEL: _text(about.get("model")),
        RESPONSE_ID: response_id(reply),
        FINISH_REASONS: None if reply.finish_reason is None else [reply.finish_reason],
        FIRST_CHUNK: reply.first_token,
        **_used(reply.usage, is_cached=call.cached),
        COST: reply.cost,
    }


def _used(usage: Usage, *, is_cached: bool) -> Mapping[str, Any]:
    return {
        INPUT_TOKENS: usage.prompt,
        OUTPUT_TOKENS: usage.completion,
        # Tokens of a reply from our own cache were not read from the provider's cache.
        CACHE_READ: None if is_cached else usage.cached,
        CACHE_CREATION: usage.cache_creation,
        REASONING: usage.reasoning,
    }


def failure(call: CallRecord) -> str | None:
    """Return the kind of the failure of a call or of an attempt; None if it succeeded."""
    if isinstance(call.answer, ProviderError):
        return call.answer.kind
    end = attempt_end(call.answer)
    return None if end is None or end.failure is None else end.failure.kind


def row_attributes(row: Row, *, is_recalled: bool) -> Mapping[str, Any]:
    """Return the attributes of an ended row, without its number and its failure."""
    waits = {f"{WAIT}.{why}": seconds for why, seconds in row.waits.items()}
    return {
        STATUS: row.status.value,
        OUTCOME: row.outcome,
        SCORE: row.score,
        LANE: row.lane,
        LABEL: row.label,
        CALLS: row.calls,
        TEST: row.step.test_idx,
        TEST_NAME: row.step.test.description,
        PROMPT: row.step.prompt_idx,
        CACHED: row.cached or None,
        RECALLED: is_recalled or None,
        **waits,
    }


def judged(row: Row) -> Iterator[Verdict]:
    """Yield the verdicts without parts."""
    if row.verdict is None:
        yield from _leaves(row.graded)
    elif row.verdict.parts:
        yield from _leaves(row.verdict.parts)
    elif row.result is not None:
        yield row.verdict


def response_id(reply: Reply | None) -> str | None:
    """Return the provider's id of the reply."""
    return None if reply is None else _text(reply.metadata.get("id"))


def _leaves(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    for verdict in verdicts:
        if verdict.parts:
            yield from _leaves(verdict.parts)
        else:
            yield verdict


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


_log = logging.getLogger("trioeval.telemetry")

_SCOPE = "trioeval"
_MOST_WAITS = 64  # events of one row
_Told = dict[str, str | int | float | bool | Sequence[str]]


@attrs.define
class _LaneWaitSpan:
    why: WaitReason
    lane: str
    at: float
    ended_at: float


@attrs.define
class _OpenRow:
    """The state of a row in progress."""

    admitted_at: float | None = None
    span: Span | None = None
    answered: Span | None = None
    """The call with the reply that is judged."""
    is_recalled: bool = False
    waiting: dict[str, tuple[WaitReason, float]] = attrs.field(factory=dict)
    """The present wait of its calls by lane, and its start."""
    waits: list[_LaneWaitSpan] = attrs.field(factory=list)


def _tracer() -> trace.Tracer:
    return trace.get_tracer(_SCOPE, __version__)


def _logger() -> _logs.Logger:
    return _logs.get_logger(_SCOPE, __version__)


@attrs.define(eq=False, repr=False, kw_only=True)
class Telemetry(RecordObserver):
    """A converter of the events of a run to spans and events of OpenTelemetry.

    A context manager around one run: the span of the run is a child of the current span on entry, and is
    current inside. Pass `observer` to the run as its `observers`, and the object itself as one of its
    `record_observers`.

    An exception in a span processor or exporter is logged, and ends the telemetry of the run.
    """

    tracer: trace.Tracer = attrs.field(factory=_tracer)
    """Makes spans; the configured providers' tracer by default."""
    logger: _logs.Logger = attrs.field(factory=_logger)
    """Makes the events of evaluations; the configured providers' logger by default."""
    run_id: str | None = None
    description: str | None = None
    """The description of the suite."""
    content: bool = False
    """True if prompts, replies and reasons of verdicts are recorded. They may hold anything."""
    keys: Sequence[str] = attrs.field(default=())
    """Texts that are hidden in all attributes."""
    clock: Callable[[], int] = time.time_ns
    """Nanoseconds since 1970; called once, when the run begins."""
    _offset: int = attrs.field(init=False, default=0)
    """Converts an instant of the Trio clock to such nanoseconds."""
    _run: SpanContext = attrs.field(init=False, factory=SpanContext)
    _rows: dict[tuple[str | None, int], _OpenRow] = attrs.field(init=False, factory=dict)
    _without_rows: set[str | None] = attrs.field(init=False, factory=set)
    _stack: ExitStack = attrs.field(init=False, factory=ExitStack)
    _is_broken: bool = attrs.field(init=False, default=False)
    """True if telemetry has ended after an exception."""

    def __enter__(self) -> Self:
        now = trio.current_time()
        self._offset = self.clock() - _ns(now)
        about = self._clean({RUN_ID: self.run_id, SUITE: self.description})
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
        """End the span of the run, and all open spans; nothing is flushed."""
        now = trio.current_time()
        with self._apart():
            for row in self._rows.values():
                if row.span is not None:
                    row.span.end(self._utc(now))
        self._rows.clear()
        with self._apart():
            if isinstance(error, Exception):
                span = trace.get_current_span(self._run)
                span.set_attribute(ERROR, type(error).__qualname__)
                span.set_status(StatusCode.ERROR)
            self._stack.close()

    def observer(self, task: str | None, row_of: RowOf) -> Observer:
        """Return the observer of the events of a task."""
        return partial(self._observe, task, row_of)

    def on_call(self, call: CallRecord, /) -> None:
        """Make the span of a call."""
        if not self._is_broken:
            with self._apart():
                self._add_call(call)

    def on_recall(self, key: CallKey, /) -> None:
        """Record that a row uses a reply of an earlier execution."""
        if not self._is_broken and key.task not in self._without_rows:
            self._row(key.task, key.index).is_recalled = True

    def on_row(self, row: Row, /) -> None:
        """End the span of a row."""
        if not self._is_broken:
            with self._apart():
                self._add_row(row)

    def on_dataset(self, task: str | None, /) -> None:
        """Record that the calls of a task belong to the run, and to no row."""
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
        elif event.lane is not None and (known := self._rows.get((task, index))) is not None:
            _end_wait(known, event.lane, event.at)
            if isinstance(event, Waiting):
                known.waiting[event.lane] = event.why, event.at

    def _add_call(self, call: CallRecord) -> None:
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
            attributes=self._clean(request_attributes(call, operation)),
        )
        span.set_attributes(self._clean(answered(call)))
        if self.content:
            span.set_attribute(INPUT_MESSAGES, self._hidden(input_messages(call.prompt)))
        if (kind := failure(call)) is not None:
            self._failed(span, kind)
        if not isinstance(call.answer, ProviderError):
            if self.content:
                span.set_attribute(OUTPUT_MESSAGES, self._hidden(output_messages(call.answer)))
            if row is not None and key.role in ("provider", "attempt"):
                row.answered = span
        span.end(self._utc(now))

    def _add_row(self, row: Row) -> None:
        now = trio.current_time()
        found = self._row(row.task, row.index)
        span = self._span_of(row.task, row.index, found, now)
        del self._rows[row.task, row.index]
        span.set_attributes(self._clean(row_attributes(row, is_recalled=found.is_recalled)))
        for wait in found.waits:
            about: _Told = {
                WAIT_FOR: wait.why.value,
                WAIT_LANE: self._hidden(wait.lane),
                WAIT_SECONDS: wait.ended_at - wait.at,
            }
            span.add_event(WAIT, about, self._utc(wait.at))
        if not row.status.has_verdict:
            self._failed(span, row.error_kind or row.outcome)
        answer = trace.set_span_in_context(found.answered or span)
        for verdict in judged(row):
            self._evaluated(row, verdict, answer, now)
        span.end(self._utc(now))

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Log an exception in the block, and end the telemetry."""
        try:
            yield
        except Exception:  # noqa: BLE001 - processors and exporters are the code of others
            self._is_broken = True
            self._rows.clear()
            _log.exception("telemetry ended: a span processor or exporter raised an exception")

    def _row(self, task: str | None, index: int) -> _OpenRow:
        found = self._rows.get((task, index))
        if found is None:
            found = self._rows[task, index] = _OpenRow()
        return found

    def _span_of(self, task: str | None, index: int, row: _OpenRow, begun_by: float) -> Span:
        """Return the span of a row, which began at this instant at the latest."""
        if row.span is None:
            began_at = begun_by if row.admitted_at is None else min(begun_by, row.admitted_at)
            row.span = self.tracer.start_span(
                "trioeval.row",
                context=self._run,
                start_time=self._utc(began_at),
                attributes=self._clean({ROW: index, TASK: task}),
            )
        return row.span

    def _failed(self, span: Span, kind: str) -> None:
        kind = self._hidden(kind)
        span.set_attribute(ERROR, kind)
        span.set_status(StatusCode.ERROR, kind)

    def _evaluated(self, row: Row, verdict: Verdict, judged: SpanContext, now: float) -> None:
        assertion = verdict.assertion
        kind = "answer" if assertion is None else assertion.type
        about = {
            EVALUATION_NAME: kind if assertion is None else assertion.metric or kind,
            EVALUATION_SCORE: verdict.score,
            EVALUATION_LABEL: "pass" if verdict.passed else "fail",
            EVALUATION_EXPLANATION: verdict.reason if self.content else None,
            RESPONSE_ID: response_id(row.reply),
            ASSERTION: kind,
            RUN_ID: self.run_id,
            TASK: row.task,
            ROW: row.index,
        }
        self.logger.emit(
            timestamp=self._utc(now),
            context=judged,
            severity_number=_logs.SeverityNumber.INFO,
            event_name=RESULT,
            attributes=self._clean(about),
        )

    def _utc(self, at: float) -> int:
        return self._offset + _ns(at)

    def _hidden(self, text: str) -> str:
        # Lone surrogates cannot be encoded; an exporter would lose the whole batch.
        return hide(text, self.keys).encode("utf-8", "replace").decode()

    def _clean(self, about: Mapping[str, Any]) -> _Told:
        """Return attributes without unknown values, and without keys."""
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
        row.waits.append(_LaneWaitSpan(why, lane, since, at))


def _ns(at: float) -> int:
    return int(at * 1e9)
