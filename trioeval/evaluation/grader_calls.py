"""Asks the judges of rows: calls like those of the providers that are tested, each through its own lane.

A judge is asked from the body of a job, never from inside a call, so no slot of one lane waits for a slot of
another, or of the same. What a reply used is counted in the step in which it arrives: for the assertion that
asked, and for its row, whatever becomes of either.

A row has one `RowGraders` for all of its life: the replies and vectors that it has, and what it has spent,
are still there when it is run once more because a judge failed by mishap. Replies that an earlier execution
of the run paid for, and those that are in the cache, are had without a call; see `asking`.
"""

import contextlib
import contextvars
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import trio

from trioeval.errors import (
    BudgetError,
    CallError,
    GradingError,
    LaneClosedError,
    LimitError,
    ProviderError,
    TooLateError,
)
from trioeval.evaluation.grader_replies import read_flags, read_labels, read_vector
from trioeval.evaluation.graders import SEARCHING_KINDS, Graders
from trioeval.evaluation.journal import Paid
from trioeval.evaluation.prompt import Asked, kept
from trioeval.evaluation.provider_calls import Asker, Inquiry
from trioeval.evaluation.rubric_prompts import chosen_prompt, named_values, render_prompt
from trioeval.evaluation.scoring import Spending, spent_on_failure
from trioeval.grading import Assertion, Spent
from trioeval.grading.kind import Role
from trioeval.grading.registry import split_type
from trioeval.grading.services import CUT_OFF, Answer, Flag
from trioeval.kernel import Calls
from trioeval.kernel.calls import worth_salvaging
from trioeval.providers import Reply, Request
from trioeval.suite.expand import Step
from trioeval.suite.model import Test
from trioeval.suite.plain import plain_data
from trioeval.text import from_model, output_text

# Several questions of one judge at once.


_AMONG: contextvars.ContextVar[tuple[int, ...]] = contextvars.ContextVar("_AMONG", default=())


def place_among() -> tuple[int, ...]:
    """The place of whoever calls this among those that run together: from the outermost inwards."""
    return _AMONG.get()


@attrs.define
class _Answer:
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    value: Any = None
    error: Exception | None = None


async def together(questions: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """The answers, in the order of the questions. A checkpoint if there are any.

    They begin in that order as well: each comes to its first wait before the next one begins, and goes on
    ahead of it. So they reach the queue of a lane in the same order every time.

    Where several fail, the first of them in that order is told, whichever was quicker: those behind one that
    failed are given up, those before it are not.

    Raises:
        Exception: What the first question raised that failed.
    """
    answers = [_Answer() for _ in questions]

    async def ask(position: int) -> None:
        _AMONG.set((*_AMONG.get(), position))
        answer = answers[position]
        with answer.scope:
            try:
                answer.value = await questions[position]()
            except Exception as error:  # noqa: BLE001 - raised below, in order
                answer.error = error
                for behind in answers[position + 1 :]:
                    behind.scope.cancel("one before it failed")

    async with trio.open_nursery() as nursery:
        for position, answer in enumerate(answers):
            if position:
                await trio.lowlevel.checkpoint()  # Trio shuffles those that can run at once
            if answer.scope.cancel_called:
                break
            nursery.start_soon(ask, position)
    for answer in answers:
        if answer.error is not None:
            raise answer.error
    return [answer.value for answer in answers]


# What the judges of one assertion were asked, and what came back: no reply is paid for twice.
#
# A question is known by what is asked, by its place among questions that are asked together, and by how
# often the same was asked there before. None of that depends on who answers first. So when a row is judged
# once more because a judge failed by mishap, its judges ask the same questions again, and those that were
# answered are answered from here.


@attrs.define(eq=False)
class Question:
    """One request to a judge."""

    place: int
    """Of the judge among the providers."""
    request: Request
    among: tuple[int, ...] = ()
    """Its place among questions that were asked together."""
    is_in_words: bool = False
    """Whether the answer is text for people, and not numbers."""
    mark: tuple[Any, ...] = ()
    """What tells it from equal ones of its assertion, as JSON data."""
    inquiry: Inquiry | None = None
    """As it was asked last."""
    reply: Reply | None = None
    """None as long as there is none, also where it failed."""
    has_failed: bool = False
    """Whether the call failed."""


@attrs.define(eq=False)
class Vector:
    """A vector that is being asked for, or was."""

    question: Question
    users: set[int]
    """The numbers of those who wanted it; the least of them pays, whoever came first."""
    over: trio.Event = attrs.field(factory=trio.Event)
    """Set when the call is over, however it ended."""
    vector: Sequence[float] | None = None
    error: GradingError | None = None
    spending: Spending = attrs.field(factory=Spending)


@attrs.define(eq=False)
class Questions:
    """Those of one assertion."""

    _known: dict[Hashable, Question] = attrs.field(factory=dict, init=False)
    """In the order in which they were asked first."""
    _asked: Counter[Hashable] = attrs.field(factory=Counter, init=False)
    """How often each was asked since the judging began, or began once more."""

    def begin_again(self) -> None:
        """The assertion is judged once more."""
        self._asked.clear()

    def ask(
        self, place: int, request: Request, *, shown: str = "", is_in_words: bool = False
    ) -> Question:
        """The question that is asked now, with its reply if it was answered before.

        Args:
            place: Of the judge among the providers.
            request: What it is sent.
            shown: What it is shown besides the prompt.
            is_in_words: Whether the answer is text for people, and not numbers.
        """
        among = place_among()
        asked = (among, is_in_words, place, request.prompt, repr(request.options), shown)
        number = self._asked[asked]
        self._asked[asked] += 1
        mark = (among, is_in_words, shown, number)
        question = Question(place, request, among, is_in_words, mark)
        return self._known.setdefault((asked, number), question)

    def in_order(self) -> list[Question]:
        """All, in an order that does not depend on who answers first."""
        return sorted(self._known.values(), key=lambda question: question.among)


def useless(questions: Iterable[Question]) -> Sequence[Inquiry]:
    """Those of an assertion without a verdict whose replies are to blame for that.

    Where a call failed it was that, and the replies to the others are good.
    """
    asked = [*questions]
    if any(one.has_failed for one in asked):
        return ()
    return [one.inquiry for one in asked if one.reply is not None and one.inquiry is not None]


_FAILURES = (CallError, LaneClosedError, BudgetError, LimitError, TooLateError)


@attrs.frozen(kw_only=True)
class OpenGraders:
    """The judges of a run, open."""

    graders: Graders
    asker: Asker
    """Asks all providers of the run; judges stand behind those that are tested."""
    default: Test | None = None
    """The suite's default test."""
    open_objects: bool = False
    """Whether grading prompts may look into objects."""

    def of_row(self, step: Step, asked: Asked, calls: Calls[Any]) -> "RowGraders":
        """The judges of one row.

        Args:
            step: The row to be.
            asked: What it asks.
            calls: Of the job that is under way.
        """
        return RowGraders(self, step, asked, calls)

    @property
    def first(self) -> int:
        """The place of the first judge among the providers."""
        return len(self.asker.providers) - len(self.graders.entries)

    def place(self, assertion: Assertion, options: object, role: Role) -> int:
        """The place among the providers of who judges an assertion.

        Raises:
            GradingError: Nobody does.
        """
        searches = split_type(assertion.type)[0] in SEARCHING_KINDS
        found = self.graders.place(assertion, options, self.default, role, searches=searches)
        if isinstance(found, str):
            raise GradingError(found)
        return self.first + found

    def lane(self, assertion: Assertion, options: object, role: Role = "text") -> str | None:
        """The lane of who judges an assertion; None if nobody does."""
        try:
            return self.asker.lanes[self.place(assertion, options, role)]
        except GradingError:
            return None


@attrs.define(eq=False)
class RowGraders:
    """The judges of one row."""

    run: OpenGraders
    step: Step
    asked: Asked
    calls: Calls[Any]
    """Of the job that is under way."""
    spending: Spending = attrs.field(factory=Spending)
    """By the whole row."""
    recalled: int = attrs.field(default=0, init=False)
    """Requests of earlier executions whose replies are used."""
    _vectors: dict[tuple[int, str], Vector] = attrs.field(factory=dict, init=False)
    _asked_for: list[Vector] = attrs.field(factory=list, init=False)
    _graders: list["AssertionGrader"] = attrs.field(factory=list, init=False)

    def of(self, assertion: Assertion) -> "AssertionGrader":
        """The judges of one assertion. Those that are made earlier pay for what several want."""
        grader = AssertionGrader(self, assertion, len(self._graders))
        self._graders.append(grader)
        return grader

    def mark(self, grader: "AssertionGrader") -> tuple[Any, ...]:
        """What tells the questions of an assertion from those of others of the row, as JSON data."""
        own = grader.assertion
        before = (one.assertion for one in self._graders[: grader.number])
        number = sum((own.type, own.value) == (other.type, other.value) for other in before)
        return own.type, plain_data(own.value), number

    def resume(self, calls: Calls[Any]) -> None:
        """The row is run once more: what failed may be asked for again."""
        self.calls = calls
        for key in [key for key, known in self._vectors.items() if known.vector is None]:
            del self._vectors[key]
        for grader in self._graders:
            grader.questions.begin_again()

    async def ask(
        self, question: Question, spending: Spending, mark: Sequence[Any], *, again: bool = False
    ) -> Reply:
        """The reply of a judge, after all retries of its lane, or one that it gave before.

        A checkpoint, unless an earlier execution of the run got the reply.

        Args:
            question: What it is asked.
            spending: Counts what that uses.
            mark: What tells the question from others of the row that are equal, as JSON data.
            again: Whether another reply is wanted than one that it gave to the same question.

        Raises:
            GradingError: It failed.
        """
        if question.reply is not None:
            await trio.lowlevel.checkpoint()
            return question.reply
        asker, place = self.run.asker, question.place
        request, index = question.request, self.step.index
        inquiry = asker.inquiry(index, "grader", place, request, *mark, again=again)
        question.inquiry, question.has_failed = inquiry, False
        try:
            paid = await asker.ask(inquiry, self.calls, _Payer(self, question, spending))
        except _FAILURES as error:
            question.has_failed = True
            raise self._failure(place, error) from error
        return paid.reply

    async def vector(self, place: int, text: str, number: int) -> Sequence[float]:
        """The vector of a text, asked for once. A checkpoint.

        Raises:
            GradingError: It failed, or gave no vector.
        """
        key = (place, text)
        while (known := self._vectors.get(key)) is not None:
            known.users.add(number)
            await known.over.wait()
            if known.error is not None:
                raise _like(known.error) from known.error
            if known.vector is not None:
                return known.vector
        entry = self._vectors[key] = Vector(Question(place, self.request(text)), {number})
        self._asked_for.append(entry)
        try:
            reply = await self.ask(entry.question, entry.spending, ("vector",))
            entry.vector = read_vector(reply.output)
            if entry.vector is None:
                raise self.unusable(place, reply, "gave no vector, which is a list of numbers")
        except GradingError as error:
            entry.error = error
            raise
        finally:
            if entry.vector is None and entry.error is None:
                del self._vectors[key]  # cut off: whoever waits for it asks again
            entry.over.set()
        return entry.vector

    def paid_by(self, number: int) -> Iterator[Spent]:
        """What the vectors used that somebody pays for."""
        return (one.spending.total for one in self._asked_for if min(one.users) == number)

    def vectors_of(self, number: int) -> Iterator[Question]:
        """The questions for the vectors that somebody wanted."""
        return (one.question for one in self._asked_for if number in one.users)

    def request(self, prompt: str, **more: Any) -> Request:
        """A request of this row."""
        step = self.step
        return Request(
            prompt=prompt,
            test_idx=step.test_idx,
            prompt_idx=step.prompt_idx,
            repeat_index=step.repeat_index,
            **{"vars": kept(self.asked.vars), **more},
        )

    def name(self, place: int) -> str:
        """What a judge is called, without secrets."""
        return self.run.asker.names[place]

    def unusable(self, place: int, reply: Reply, what: str) -> GradingError:
        """The error of a reply that cannot be used."""
        metadata = {"grader": self.name(place), "graderReply": reply.output}
        return GradingError(f"the grader {self.name(place)} {what}", metadata=metadata)

    def _failure(self, place: int, error: Exception) -> GradingError:
        metadata: dict[str, Any] = {"grader": self.name(place)}
        if isinstance(error, ProviderError):
            metadata["errorKind"] = error.kind
            if error.body_excerpt:
                metadata["bodyExcerpt"] = error.body_excerpt
        message = f"the grader {self.name(place)} failed: {error}"
        return GradingError(message, mishap=worth_salvaging(error), metadata=metadata)


@attrs.frozen(eq=False)
class _Payer:
    """Counts what one question uses."""

    row: RowGraders
    question: Question
    spending: Spending

    def sent(self, _tokens: int) -> None:
        self._count_in(Spent(calls=1))  # whatever becomes of it

    def failed(self, error: ProviderError, _tokens: int) -> None:
        self._count_in(attrs.evolve(spent_on_failure(error), calls=0))

    def heard(self, paid: Paid, *, recalled: bool) -> None:
        reply = self.question.reply = paid.reply
        if recalled and not paid.cached:
            self.row.recalled += 1
            self.sent(0)
        name = self.row.name(self.question.place)
        self._count_in(Spent(usage=reply.usage, cost=reply.cost, judges=(name,)))

    def _count_in(self, spent: Spent) -> None:
        self.spending.add(spent)
        self.row.spending.add(spent)


@attrs.define(eq=False)
class AssertionGrader:
    """The judges of one assertion of one row; see `trioeval.grading.services.Grader`."""

    row: RowGraders
    assertion: Assertion
    number: int
    spending: Spending = attrs.field(factory=Spending, init=False)
    questions: Questions = attrs.field(factory=Questions, init=False)

    def spent(self) -> Spent:
        """What judging it used so far."""
        return Spent.sum((self.spending.total, *self.row.paid_by(self.number)))

    def replies(self) -> list[str]:
        """What was answered so far in words, in the order of the questions."""
        found = []
        for question in self.questions.in_order():
            if question.reply is not None and question.is_in_words:
                with contextlib.suppress(GradingError):
                    found.append(self._answer(question.place, question.reply).text)
        return found

    def reject(self) -> None:
        """No verdict could be made of what was answered: see that nobody is given it again."""
        asked = (*self.questions.in_order(), *self.row.vectors_of(self.number))
        for inquiry in useless(asked):
            self.row.run.asker.reject(inquiry)

    def render(self, own: str, names: Mapping[str, Any], *, part: int | str | None = None) -> str:
        """The prompt that a judge is asked with.

        Raises:
            GradingError: It cannot be rendered.
        """
        row, options = self.row, self.row.step.test.options
        said = self.assertion.rubric_prompt or options.rubric_prompt
        text = chosen_prompt(own, said, part)
        given = {**row.asked.vars, **names}
        try:
            known = named_values(given, open_objects=row.run.open_objects)
        except (TypeError, ValueError, RecursionError) as error:
            msg = f"the grading prompt cannot be rendered: {error}"
            raise GradingError(msg) from error
        return render_prompt(text, known, row.asked.templates.fill)

    async def ask(
        self,
        prompt: str,
        *,
        schema: Mapping[str, Any] | None = None,
        again: bool = False,
    ) -> Answer:
        """What the text model says. A checkpoint.

        Raises:
            GradingError: It failed, refused, or said nothing.
        """
        place = self._place("text")
        request = self.row.request(prompt, options=self._options(place, schema))
        question = self.questions.ask(place, request, is_in_words=True)
        return self._answer(place, await self._ask(question, again=again))

    async def embed(self, text: str) -> Sequence[float]:
        """The vector of a text; equal texts of a row are one call. A checkpoint.

        Raises:
            GradingError: It failed, or gave no vector.
        """
        place = self._place("embedding")
        return await self.row.vector(place, text, self.number)

    async def classify(self, text: str) -> Mapping[str, float]:
        """The score of each label. A checkpoint.

        Raises:
            GradingError: It failed, or gave no scores.
        """
        row, place = self.row, self._place("classification")
        reply = await self._ask(self.questions.ask(place, row.request(text)))
        labels = read_labels(reply.output)
        if not labels:
            raise row.unusable(place, reply, "gave no scores, which are numbers by label")
        return labels

    async def moderate(self, prompt: str, text: str) -> Sequence[Flag]:
        """The categories that a model's reply to a prompt falls into. A checkpoint.

        Services are asked about the reply alone; functions get the prompt among the variables, as
        `moderatedPrompt`.

        Raises:
            GradingError: It failed.
        """
        row, place = self.row, self._place("moderation")
        variables = {**kept(row.asked.vars), "moderatedPrompt": from_model(prompt)}
        question = self.questions.ask(place, row.request(text, vars=variables), shown=prompt)
        reply = await self._ask(question)
        flags = read_flags(reply)
        if flags is None:
            raise row.unusable(place, reply, "gave no judgement of categories")
        return flags

    async def _ask(self, question: Question, *, again: bool = False) -> Reply:
        mark = (*self.row.mark(self), *question.mark)
        return await self.row.ask(question, self.spending, mark, again=again)

    def _place(self, role: Role) -> int:
        return self.row.run.place(self.assertion, self.row.step.test.options.provider, role)

    def _options(self, place: int, schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
        if schema is None:
            return {}
        from trioeval.providers.abilities import schema_options  # noqa: PLC0415 - most suites have no judges

        return schema_options(self.row.run.asker.providers[place].spec.settings, schema)

    def _answer(self, place: int, reply: Reply) -> Answer:
        row = self.row
        if reply.is_refusal or reply.finish_reason == "content_filter":
            raise row.unusable(place, reply, "refused to answer")
        text, cut = self._text(place, reply), reply.finish_reason == "length"
        if not text.strip():
            raise row.unusable(place, reply, f"said nothing: {CUT_OFF}" if cut else "said nothing")
        return Answer(text, reply.output, is_cut_off=cut)

    def _text(self, place: int, reply: Reply) -> str:
        if reply.output is None:
            return ""
        try:
            return output_text(reply.output)
        except (TypeError, ValueError, RecursionError) as error:
            raise self.row.unusable(place, reply, "gave what is not JSON data") from error


def _like(error: GradingError) -> GradingError:
    return GradingError(str(error), mishap=error.mishap, metadata=error.metadata)
