"""Judges one output by all assertions of its row, several at once.

What waits is only what asks outside (models, code, servers) or takes long. Everything else is judged at once,
where it stands, because a checkpoint costs more than most assertions. Verdicts are kept by place and before
anything else is awaited, so neither the order in which judges answer nor the moment in which a row is cut
off changes what is known of them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import trio

from trioeval.errors import GradingError, ScriptError, TemplateError
from trioeval.grading import Assertion, Finding, Kind, Kinds, Spent, Subject, Verdict
from trioeval.grading.algebra import Place, fold, leaves
from trioeval.grading.grade import (
    Ready,
    Render,
    find,
    grading_error,
    judged_here,
    make_ready,
    ungraded,
    verdict_of,
)
from trioeval.grading.kind import Asking, Comparing
from trioeval.grading.kinds import split_type
from trioeval.grading.model import NOTHING_SPENT
from trioeval.grading.outside import Outside

WIDTH = 3
"""Assertions of a row that ask outside at once, where nobody says how many."""

LARGE = 65_536
"""Characters of an output from which on judges run in a thread."""


@attrs.frozen
class Consulted:
    """What the judge of one assertion may ask, and what that has used so far."""

    outside: Outside
    spent: Callable[[], Spent] = lambda: NOTHING_SPENT


@attrs.frozen(kw_only=True)
class Bench:
    """What one row is judged with."""

    subject: Subject
    render: Render
    kinds: Kinds
    consult: Callable[[Assertion], Consulted]
    """Makes what the judge of an assertion may ask."""
    transform: Callable[[str, Subject], Awaitable[Any]]
    """Applies the transform of an assertion to the output; raises `ScriptError`."""
    width: int = WIDTH
    """How many assertions may ask outside at once, ≥ 1."""
    short_circuit: bool = False
    """Whether the first assertion that fails decides."""


@attrs.define(eq=False)
class Judging:
    """The assertions of one row under way."""

    bench: Bench
    assertions: Sequence[Assertion]
    threshold: float | None = None
    verdicts: dict[Place, Verdict] = attrs.field(init=False, factory=dict)
    """What is known so far, also when others are cut off or could not be evaluated."""
    _errors: dict[Place, GradingError] = attrs.field(init=False, factory=dict)
    _decided: bool = attrs.field(init=False, default=False)
    """Whether an assertion failed that decides alone."""

    async def run(self) -> Verdict:
        """The verdict on the row. A checkpoint only if something asks outside or takes long.

        Raises:
            GradingError: An assertion that counts could not be evaluated; the first in their order is told.
        """
        waiting: list[tuple[Place, Assertion]] = []
        for place, assertion in leaves(self.assertions):
            if self._waits(assertion):
                waiting.append((place, assertion))
            elif not self._compares(assertion):
                self._judge_here(place, assertion)
            if self._decided:
                break
        else:
            if waiting:
                await self._judge_waiting(waiting)
        if self._decided:
            return fold(self.assertions, self.verdicts, None)
        if self._errors:
            raise self._errors[min(self._errors)]
        return fold(self.assertions, self.verdicts, self.threshold)

    @property
    def parts(self) -> tuple[Verdict, ...]:
        """What is known so far, in the order of the assertions."""
        return fold(self.assertions, self.verdicts, None).parts

    def _kind(self, assertion: Assertion) -> Kind | None:
        return self.bench.kinds.get(split_type(assertion.type)[0])

    def _compares(self, assertion: Assertion) -> bool:
        kind = self._kind(assertion)
        return kind is not None and isinstance(kind.judge, Comparing)

    def _waits(self, assertion: Assertion) -> bool:
        kind = self._kind(assertion)
        if kind is None or isinstance(kind.judge, Comparing):
            return False
        return (
            isinstance(kind.judge, Asking)
            or assertion.transform is not None
            or len(self.bench.subject.text) >= LARGE
        )

    def _judge_here(self, place: Place, assertion: Assertion) -> None:
        bench = self.bench
        try:
            verdict = judged_here(bench.subject, assertion, bench.render, bench.kinds)
        except (GradingError, TemplateError) as error:
            self._fail(place, assertion, error)
        else:
            self._take(place, assertion, verdict)

    async def _judge_waiting(self, waiting: Sequence[tuple[Place, Assertion]]) -> None:
        limit = trio.CapacityLimiter(self.bench.width)
        async with trio.open_nursery() as nursery:
            for place, assertion in waiting:
                nursery.start_soon(
                    self._judge_when_free, place, assertion, limit, nursery.cancel_scope
                )

    async def _judge_when_free(
        self,
        place: Place,
        assertion: Assertion,
        limit: trio.CapacityLimiter,
        others: trio.CancelScope,
    ) -> None:
        async with limit:
            consulted = self.bench.consult(assertion)
            try:
                verdict = await self._verdict(assertion, consulted)
            except (GradingError, ScriptError, TemplateError) as error:
                self._fail(place, assertion, error, consulted.spent())
            else:
                self._take(place, assertion, verdict)
        if self._decided:
            others.cancel("an assertion failed that decides")

    async def _verdict(self, assertion: Assertion, consulted: Consulted) -> Verdict:
        bench, subject = self.bench, self.bench.subject
        ready = make_ready(assertion, bench.render, bench.kinds)
        if assertion.transform is not None:
            subject = subject.with_output(await bench.transform(assertion.transform, subject))
        return verdict_of(ready, await _found(ready, subject, consulted), consulted.spent())

    def _take(self, place: Place, assertion: Assertion, verdict: Verdict) -> None:
        self.verdicts[place] = verdict
        if self.bench.short_circuit and not verdict.passed and self._counts(place, assertion):
            self._decided = True

    def _fail(
        self, place: Place, assertion: Assertion, error: Exception, spent: Spent = NOTHING_SPENT
    ) -> None:
        if self._counts(place, assertion):
            failure = grading_error(assertion, place, error)
            failure.__cause__ = error
            self._errors[place] = failure
        else:
            self.verdicts[place] = ungraded(assertion, error, spent)

    def _counts(self, place: Place, assertion: Assertion) -> bool:
        return bool(assertion.weight and self.assertions[place[0]].weight)


async def _found(ready: Ready, subject: Subject, consulted: Consulted) -> Finding:
    match ready.kind.judge:
        case Asking(judge=judge):
            return await judge(subject, ready.value, ready.assertion, consulted.outside)
        case Comparing():
            msg = "it compares rows"
            raise GradingError(msg)
        case judge if len(subject.text) < LARGE:
            return find(ready, judge, subject)
        case judge:
            # Left alone when cancelled: what it may cost is bounded, and others need not wait for it.
            return await trio.to_thread.run_sync(
                find, ready, judge, subject, abandon_on_cancel=True
            )
