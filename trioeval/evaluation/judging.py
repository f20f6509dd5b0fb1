"""Judging of one output by all assertions of its row, several of them concurrently.

Only assertions that call external services (models, code, servers) or take long are run as tasks. All others
are judged immediately, because a checkpoint costs more than most assertions. Verdicts are stored by position,
before anything else is awaited, so neither the order in which judges reply nor the moment in which a row is
cut off changes a known verdict.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trioeval.documents.mistakes import MistakenError
from trioeval.errors import GradingError, ScriptError, TemplateError
from trioeval.errors import leaves as errors_in
from trioeval.evaluation.grader_calls import OpenGraders, RowGraders, gather_in_order
from trioeval.evaluation.judge_services import JudgeServices, row_context, with_more
from trioeval.evaluation.outcomes import refusal_in
from trioeval.evaluation.prompt import RenderedPrompt, without_runtime_variables
from trioeval.evaluation.scoring import Scoring
from trioeval.evaluation.scripts import Scripts
from trioeval.evaluation.transforms import OutputTransform, apply_transform
from trioeval.grading import (
    COMPARISONS,
    KINDS,
    Assertion,
    Finding,
    JudgeUsage,
    Kind,
    Kinds,
    Subject,
    Verdict,
    quote,
)
from trioeval.grading.algebra import Place, fold, leaves
from trioeval.grading.grade import (
    ReadyAssertion,
    Render,
    accepted,
    computes,
    find,
    grading_error,
    judged_here,
    rendered,
    ungraded,
    verdict_of,
    with_code_as_written,
    with_named_sets,
)
from trioeval.grading.kind import ComparisonJudge, ExternalJudge, SlowError, finding_of
from trioeval.grading.model import NOTHING_SPENT
from trioeval.grading.registry import split_type
from trioeval.grading.services import ExternalServices
from trioeval.grading.subject import FunctionCall
from trioeval.kernel.calls import worth_salvaging
from trioeval.kernel.workers import cancellation_of
from trioeval.providers import Reply
from trioeval.suite.expand import Expansion, Step
from trioeval.text import Computed

if TYPE_CHECKING:
    from trioeval.providers.programs.workers import Encoded

WIDTH = 3
"""Default maximum number of concurrent assertions of a row that call external services."""


@attrs.frozen
class AssertionServices:
    """The services for one assertion, and its usage so far."""

    outside: ExternalServices
    spent: Callable[[], JudgeUsage] = lambda: NOTHING_SPENT
    replies: Callable[[], Sequence[str]] = tuple
    """Returns the replies so far, in the order of the requests."""
    reject: Callable[[], None] = lambda: None
    """Discards these replies so that they are not reused."""


@attrs.define(kw_only=True)  # not frozen: every row has one
class JudgingContext:
    """Everything that is needed to judge one row."""

    subject: Subject
    render: Render
    kinds: Kinds
    services_for: Callable[[Assertion], AssertionServices]
    """Creates the services for an assertion."""
    transform: Callable[[str, Subject], Awaitable[Any]]
    """Applies the transform of an assertion to the output; raises `ScriptError` and `GradingError`."""
    context: Callable[[str], Awaitable[Any]] | None = None
    """Applies a `contextTransform` to the output as it was before the test's own transform."""
    rescore: Callable[[Verdict], Awaitable[Verdict]] | None = None
    """Computes the final verdict from that of the assertions; None keeps it."""
    width: int = WIDTH
    """Maximum number of concurrent assertions that call external services, ≥ 1."""
    short_circuit: bool = False
    """True if the first failed assertion decides."""


@attrs.define(eq=False, repr=False)
class Judging:
    """The judging of one row's assertions."""

    context: JudgingContext
    assertions: Sequence[Assertion]
    threshold: float | None = None
    verdicts: dict[Place, Verdict] = attrs.field(init=False, factory=dict)
    """The verdicts so far, also when other assertions are cut off or could not be evaluated."""
    _consulted: dict[Place, AssertionServices] = attrs.field(init=False, factory=dict)
    _errors: dict[Place, GradingError] = attrs.field(init=False, factory=dict)
    _useless: set[Place] = attrs.field(init=False, factory=set)
    """Assertions whose replies led to no verdict."""
    _decided: bool = attrs.field(init=False, default=False)
    """True if a failed assertion has decided alone."""

    async def run(self) -> Verdict:
        """Return the verdict on the row. A checkpoint only if an assertion calls a service or takes long.

        When it is called again after an error, it keeps the verdicts and judges only the other assertions.

        Raises:
            GradingError: An assertion that counts could not be evaluated, or the run's budget refused a judge
                of any assertion; a refusal is raised first, otherwise the first error in order.
        """
        if not self._errors:
            self.assertions = with_named_sets(self.assertions, self.context.render)
        self._errors.clear()
        waiting: list[tuple[Place, Assertion]] = []
        for place, assertion in leaves(self.assertions):
            if place in self.verdicts:
                continue
            kind = self._kind(assertion)
            if _waits(assertion, kind) or (
                not _compares(place, assertion, kind) and not self._judge_here(place, assertion)
            ):
                waiting.append((place, assertion))
            if self._decided:
                break
        else:
            if waiting:
                await self._judge_waiting(waiting)
        self._charge()
        if self._decided:
            return fold(self.assertions, self.verdicts, decided=True)
        if self._errors:
            raise self._errors[min(self._errors, key=self._urgency)]
        verdict = fold(self.assertions, self.verdicts, self.threshold)
        if self.context.rescore is None or not self.assertions:
            return verdict
        return await self.context.rescore(verdict)

    def _urgency(self, place: Place) -> tuple[bool, Place]:
        # A refusal affects the following assertions as well.
        return refusal_in(self._errors[place]) is None, place

    def _charge(self) -> None:
        """Update the spending of verdicts: the payer of shared requests is known only at the end."""
        for place, consulted in self._consulted.items():
            verdict, spent = self.verdicts.get(place), consulted.spent()
            if verdict is not None and spent is not verdict.spent:
                self.verdicts[place] = attrs.evolve(verdict, spent=spent)

    @property
    def parts(self) -> tuple[Verdict, ...]:
        """The verdicts so far, in the order of the assertions."""
        return fold(self.assertions, self.verdicts, None).parts

    @property
    def unjudged(self) -> Mapping[str, Any]:
        """The judges' replies for assertions without a verdict, in their order."""
        return grader_metadata(
            self._consulted[place]
            for place in sorted(self._consulted.keys() - self.verdicts.keys())
        )

    def reject_unusable(self) -> None:
        """Discard replies that led to no verdict so that they are not reused."""
        for place in sorted(self._useless & self._consulted.keys()):
            self._consulted[place].reject()

    def _kind(self, assertion: Assertion) -> Kind | None:
        return self.context.kinds.get(split_type(assertion.type)[0])

    def _judge_here(self, place: Place, assertion: Assertion) -> bool:
        """Judge an assertion immediately; return False if that would block other rows for too long."""
        bench = self.context
        try:
            verdict = judged_here(
                bench.subject, assertion, bench.render, bench.kinds, patient=False
            )
        except SlowError:
            return False
        except Exception as error:  # noqa: BLE001 - the user's own types may fail in any way
            self._fail(place, assertion, error)
        else:
            self._take(place, assertion, verdict)
        return True

    async def _judge_waiting(self, waiting: Sequence[tuple[Place, Assertion]]) -> None:
        for place, assertion in waiting:
            if place not in self._consulted:  # in order, independent of the order of judging
                self._consulted[place] = self.context.services_for(assertion)
        if len(waiting) == 1:  # a separate task would cost as much as a quick script
            await self._judge_as_task(*waiting[0])
            return
        free = trio.Semaphore(self.context.width)

        async def judge(place: Place, assertion: Assertion) -> None:
            try:
                await self._judge_as_task(place, assertion)
            finally:
                if self._decided:  # before the next one can start
                    nursery.cancel_scope.cancel("a failed assertion decides")
                free.release()

        async with trio.open_nursery() as nursery:
            for place, assertion in waiting:
                await free.acquire()  # here, because Trio starts tasks in any order
                nursery.start_soon(judge, place, assertion)

    async def _judge_as_task(self, place: Place, assertion: Assertion) -> None:
        consulted = self._consulted[place]
        try:
            verdict = await self._verdict(assertion, consulted)
        except Exception as error:  # noqa: BLE001 - the user's own types may fail in any way
            self._fail(place, assertion, error, consulted)
        except BaseExceptionGroup as group:
            raise cancellation_of(group) from None
        else:
            metadata = {**grader_metadata([consulted]), **verdict.metadata}
            self._take(place, assertion, attrs.evolve(verdict, metadata=metadata))

    async def _verdict(self, assertion: Assertion, consulted: AssertionServices) -> Verdict:
        from trioeval.grading.kinds.scripts import failed

        bench, subject = self.context, self.context.subject
        ready = rendered(assertion, bench.render, bench.kinds)
        if not computes(ready):
            ready = accepted(ready)
        if assertion.transform is not None:
            subject = subject.with_output(await bench.transform(assertion.transform, subject))
        if computes(ready):
            try:
                value = await computed_value(ready.value, subject, consulted.outside)
            except ScriptError as error:  # the script is part of the test
                return verdict_of(ready, failed(error.message), consulted.spent())
            ready = accepted(attrs.evolve(ready, value=value))
        outside = consulted.outside
        if assertion.context_transform is not None and bench.context is not None:
            context = await bench.context(assertion.context_transform)
            outside = attrs.evolve(outside, context=context)
        return verdict_of(ready, await _finding(ready, subject, outside), consulted.spent())

    def _take(self, place: Place, assertion: Assertion, verdict: Verdict) -> None:
        self.verdicts[place] = verdict
        self._useless.discard(place)
        if self.context.short_circuit and not verdict.passed and self._counts(place, assertion):
            self._decided = True

    def _fail(
        self,
        place: Place,
        assertion: Assertion,
        raised: Exception,
        consulted: AssertionServices | None = None,
    ) -> None:
        error = judge_error(raised, consulted)
        is_refused = refusal_in(raised) is not None
        if not is_refused and not is_transient(error):
            self._useless.add(place)
        if is_refused or self._counts(place, assertion):
            failure = grading_error(assertion, place, error)
            failure.__cause__ = raised
            self._errors[place] = failure
        else:
            spent = NOTHING_SPENT if consulted is None else consulted.spent()
            self.verdicts[place] = ungraded(assertion, error, spent)

    def _counts(self, place: Place, assertion: Assertion) -> bool:
        return bool(assertion.weight and self.assertions[place[0]].weight)


def _compares(place: Place, assertion: Assertion, kind: Kind | None) -> bool:
    """Return whether it is judged after all rows of its test; only such assertions are skipped."""
    if assertion.type not in COMPARISONS or len(place) > 1:
        return False
    return kind is not None and isinstance(kind.judge, ComparisonJudge)


def _waits(assertion: Assertion, kind: Kind | None) -> bool:
    if kind is None or isinstance(kind.judge, ComparisonJudge):
        return False
    return (
        isinstance(kind.judge, ExternalJudge)
        or assertion.transform is not None
        or isinstance(assertion.value, Computed)
    )


def grader_metadata(consulted: Iterable[AssertionServices]) -> dict[str, Any]:
    """Return the judges' replies as metadata; empty without any."""
    replies = [reply for one in consulted for reply in one.replies()]
    return {"graderReplies": replies} if replies else {}


def judge_error(error: Exception, consulted: AssertionServices | None = None) -> Exception:
    """Return the error to report for an exception of a judge, also if it is a group from its own nursery.

    Args:
        error: The exception.
        consulted: The judge's services; all of its replies are reported, not only the failed one.

    Example:
        >>> str(judge_error(KeyError("x")))
        "its judge failed: KeyError: 'x'"
    """
    inside = list(errors_in(error))
    only = inside[0]
    if len(inside) > 1 or not isinstance(only, GradingError | ScriptError | TemplateError):
        message = f"its judge failed: {type(only).__name__}: {only}"
        only = GradingError(message, mishap=worth_salvaging(error))
    replies = grader_metadata([] if consulted is None else [consulted])
    if not (replies and isinstance(only, GradingError)):
        return only
    return GradingError(str(only), mishap=only.is_transient, metadata={**only.metadata, **replies})


def is_transient(error: Exception) -> bool:
    """Return whether judging may succeed later without a change."""
    return isinstance(error, GradingError) and error.is_transient


async def computed_value(program: Computed, subject: Subject, outside: ExternalServices) -> Any:
    """Return the value that a program computes for an assertion to compare with. A checkpoint.

    Raises:
        GradingError: It returned a verdict, not a value.
        ScriptError: It failed.
    """
    value = await outside.code.file(program.file, program.function, subject.output)
    if isinstance(value, bool) or (isinstance(value, dict) and "pass" in value):
        hint = "only javascript, python and ruby take a verdict"
        msg = f"{program.written} must return the value to compare with, got {quote(value)}; {hint}"
        raise GradingError(msg)
    return value


async def _finding(ready: ReadyAssertion, subject: Subject, outside: ExternalServices) -> Finding:
    match ready.kind.judge:
        case ExternalJudge(judge=judge):
            found = await judge(subject, ready.value, ready.assertion, outside)
            return finding_of(found, judge, ready.assertion)
        case ComparisonJudge():
            msg = "it compares rows"
            raise GradingError(msg)
        case judge:
            with contextlib.suppress(SlowError):
                return find(ready, judge, subject, patient=False)
            # Abandoned when cancelled: its cost is bounded, and others need not wait for it.
            return await trio.to_thread.run_sync(
                find, ready, judge, subject, abandon_on_cancel=True
            )


# The judges of a run: from a row and its reply to everything that its assertions need.


@attrs.frozen(kw_only=True)
class Judges:
    """Creates the judging of each row of one run."""

    steps: Expansion
    scripts: Scripts
    services: JudgeServices
    graders: OpenGraders
    read_transform: Callable[[str], OutputTransform]
    scoring: Scoring
    kinds: Kinds = KINDS
    width: int = WIDTH
    """Maximum number of concurrent assertions of one row that call external services, ≥ 1."""
    short_circuit: bool = False
    """True if the first failed assertion of a row decides."""

    def of(
        self,
        graders: RowGraders,
        reply: Reply,
        output: Any,
        latency_ms: float | None,
        workspace: Path | None = None,
    ) -> Judging:
        """Return the judging of one row.

        Args:
            graders: Its judges, with its step and prompt.
            reply: The reply.
            output: The output after all transforms.
            latency_ms: The latency of the provider's call.
            workspace: The folder in which an agent has worked; None without an agent.

        Raises:
            GradingError: The output is not JSON data.
        """
        step, prompt = graders.step, graders.rendered
        graders.media = reply.media
        entry = self.steps.providers[step.provider_index]

        def offered(name: str) -> Sequence[Any]:
            found = prompt.options.get(name, entry.config.get(name))
            return found if isinstance(found, list | tuple) else ()

        subject = Subject.of(
            output,
            vars=without_runtime_variables(prompt.vars),
            prompt=prompt.prompt,
            latency_ms=latency_ms,
            cost=reply.cost,
            log_probs=reply.log_probs,
            finish_reason=reply.finish_reason,
            is_refusal=reply.is_refusal,
            flagged=None if reply.guardrails is None else reply.guardrails.flagged,
            calls=_calls_of(reply) if output is reply.output else (),
            tools=offered("tools") or _converse_tools(prompt.options, entry.config),
            functions=offered("functions"),
            metadata=reply.metadata,
            workspace=workspace,
        )

        async def transform(text: str, judged: Subject) -> Any:
            context = {
                "vars": without_runtime_variables(prompt.vars),
                "prompt": {"label": step.column.prompt.label, "raw": prompt.prompt},
                "metadata": dict(reply.metadata),
            }
            try:
                found = self.read_transform(text)
            except MistakenError as error:
                raise GradingError(f"transform: {error}") from error
            return await apply_transform(found, judged.output, context, self.scripts)

        async def find_context(text: str) -> Any:
            early = subject.with_output(reply.output)
            if entry.transform is not None:
                early = subject.with_output(await transform(entry.transform, early))
            return await transform(text, early)

        encoded: Encoded | None = None

        def context() -> Encoded:
            nonlocal encoded  # built for the first script, and shared by all
            if encoded is None:
                encoded = row_context(step, prompt, reply, output, entry, latency_ms=latency_ms)
            return encoded

        def consult(assertion: Assertion) -> AssertionServices:
            config = {"config": assertion.config} if assertion.config else {}
            grader = graders.of(assertion)
            outside = ExternalServices(
                grader=grader,
                code=self.services.code(lambda: with_more(context(), config)),
                post=self.services.webhooks.post,
                run=self.services.commands,
                together=gather_in_order,
                lenient=self.steps.suite.evaluate_options.grading == "lenient",
                factuality=step.test.options.factuality or {},
            )
            return AssertionServices(outside, grader.spent, grader.replies, grader.reject)

        bench = JudgingContext(
            subject=subject,
            render=prompt.fill if workspace is None else self._with_places(prompt, workspace).fill,
            kinds=self.kinds,
            services_for=consult,
            transform=transform,
            context=find_context,
            rescore=self._rescore(step),
            width=self.width,
            short_circuit=self.short_circuit,
        )
        assertions: Sequence[Assertion] = step.test.assertions
        if step.test.is_data:
            assertions = with_code_as_written(assertions, self.kinds)
        return Judging(bench, assertions, step.test.threshold)

    def _with_places(self, prompt: RenderedPrompt, workspace: Path) -> RenderedPrompt:
        """Return the prompt with the folder variables that agents get; a test's own variables come first."""
        places = {"suite": str(self.services.directory), "workspace": str(workspace)}
        return attrs.evolve(
            prompt, vars={**places, **prompt.vars}, named={**places, **prompt.named}
        )

    def _rescore(self, step: Step) -> Callable[[Verdict], Awaitable[Verdict]] | None:
        """Return the scoring function of a test."""
        function, threshold = step.test.assert_scoring_function, step.test.threshold
        if function is None:
            return None
        return lambda verdict: self.scoring(function, verdict, threshold)


def _calls_of(reply: Reply) -> Sequence[FunctionCall]:
    return [FunctionCall(call.name, call.arguments) for call in reply.tool_calls]


def _converse_tools(*configs: Mapping[str, Any]) -> Sequence[Any]:
    """Return the tools of the first config that has some in Bedrock's place."""
    for config in configs:
        for key in ("toolConfig", "tool_config"):
            match config.get(key):
                case {"tools": list() as tools}:
                    return tools
                case _:
                    pass
    return ()
