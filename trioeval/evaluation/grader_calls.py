"""Calls to the judges of rows. They are like calls to the providers under test, each through its own lane.

A judge is called from the body of a job, never from inside another call, so no slot of a lane waits for a
slot of another lane, or of the same one. The usage of a reply is counted in the step in which it arrives, for
the assertion that requested it and for its row, however these end.

A row has one `RowGraders` for its whole life: its replies, vectors and spending are still there when it is
run again because of a transient failure of a judge. Replies that an earlier execution of the run paid for,
and replies in the cache, need no call; see `provider_calls`.
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
from trioeval.evaluation.journal import RecordedReply
from trioeval.evaluation.prompt import RenderedPrompt, without_runtime_variables
from trioeval.evaluation.provider_calls import ProviderCall, ReplySource
from trioeval.evaluation.rubric_prompts import chosen_prompt, named_values, render_prompt
from trioeval.evaluation.scoring import Spending, spent_on_failure
from trioeval.grading import Assertion, JudgeUsage
from trioeval.grading.kind import Role
from trioeval.grading.registry import split_type
from trioeval.grading.services import CUT_OFF, Flag, JudgeReply
from trioeval.kernel import Calls
from trioeval.kernel.calls import worth_salvaging
from trioeval.providers import Media, Reply, Request
from trioeval.suite.expand import Step
from trioeval.suite.model import Test
from trioeval.suite.plain import plain_data
from trioeval.text import from_model, output_text

# Several concurrent calls.

_BRANCH_PATH: contextvars.ContextVar[tuple[int, ...]] = contextvars.ContextVar(
    "_BRANCH_PATH", default=()
)


def branch_path() -> tuple[int, ...]:
    """Return the caller's path in the tree of concurrent branches, outermost position first."""
    return _BRANCH_PATH.get()


@attrs.define(eq=False, repr=False)
class _BranchResult:
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    value: Any = None
    error: Exception | None = None


async def gather_in_order(questions: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Run functions concurrently and return their results in order. A checkpoint if there are any.

    They start in order as well: each reaches its first wait before the next one starts. So they reach the
    queue of a lane in the same order every time.

    If several fail, the error of the first one in order is raised, not the earliest one: branches after a
    failed one are cancelled, those before it are not.

    Raises:
        Exception: The error of the first failed branch.
    """
    answers = [_BranchResult() for _ in questions]

    async def ask(position: int) -> None:
        _BRANCH_PATH.set((*_BRANCH_PATH.get(), position))
        answer = answers[position]
        with answer.scope:
            try:
                answer.value = await questions[position]()
            except Exception as error:  # noqa: BLE001 - raised below, in order
                answer.error = error
                for behind in answers[position + 1 :]:
                    behind.scope.cancel("an earlier branch failed")

    async with trio.open_nursery() as nursery:
        for position, answer in enumerate(answers):
            if position:
                await trio.lowlevel.checkpoint()  # Trio shuffles tasks that can run at once
            if answer.scope.cancel_called:
                break
            nursery.start_soon(ask, position)
    for answer in answers:
        if answer.error is not None:
            raise answer.error
    return [answer.value for answer in answers]


# The requests to the judges of one assertion, and their replies: no reply is paid for twice.
#
# A request is identified by its content, by its branch among concurrent requests, and by the number of equal
# requests before it in that branch. None of that depends on which judge replies first. So when a row is
# judged again after a transient failure of a judge, its judges send the same requests, and those that have
# replies are served from here.


@attrs.define(eq=False, repr=False)
class JudgeRequest:
    """One request to a judge."""

    place: int
    """The index of the judge among the providers."""
    request: Request
    among: tuple[int, ...] = ()
    """Its branch among concurrent requests."""
    is_in_words: bool = False
    """True if the reply is text for people, not numbers."""
    mark: tuple[Any, ...] = ()
    """JSON data that distinguishes it from equal requests of its assertion."""
    inquiry: ProviderCall | None = None
    """Its last call."""
    reply: Reply | None = None
    """None until there is one, also after a failed call."""
    has_failed: bool = False
    """True if the last call failed."""


@attrs.define(eq=False, repr=False)
class EmbeddingRequest:
    """An embedding that is requested or known."""

    question: JudgeRequest
    users: set[int]
    """Numbers of the assertions that use it; the lowest one pays, even if another one requested it first."""
    over: trio.Event = attrs.field(factory=trio.Event)
    """Set when the call is over, however it ended."""
    vector: Sequence[float] | None = None
    error: GradingError | None = None
    spending: Spending = attrs.field(factory=Spending)


@attrs.define(eq=False, repr=False)
class JudgeRequests:
    """The requests of one assertion."""

    _known: dict[Hashable, JudgeRequest] = attrs.field(factory=dict, init=False)
    """In the order of the first request."""
    _counts: Counter[Hashable] = attrs.field(factory=Counter, init=False)
    """Number of times that each was requested since judging started or was repeated."""

    def begin_again(self) -> None:
        """Prepare for judging the assertion again."""
        self._counts.clear()

    def ask(
        self, place: int, request: Request, *, shown: str = "", is_in_words: bool = False
    ) -> JudgeRequest:
        """Return the entry for a request, with its reply if it has one.

        Args:
            place: The index of the judge among the providers.
            request: The request.
            shown: What the judge sees besides the prompt.
            is_in_words: Whether the reply is text for people, not numbers.
        """
        among = branch_path()
        identity = (among, is_in_words, place, request.prompt, repr(request.options), shown)
        number = self._counts[identity]
        self._counts[identity] += 1
        mark = (among, is_in_words, shown, number)
        question = JudgeRequest(place, request, among, is_in_words, mark)
        return self._known.setdefault((identity, number), question)

    def in_order(self) -> list[JudgeRequest]:
        """Return all in an order that does not depend on which reply arrives first."""
        return sorted(self._known.values(), key=lambda question: question.among)


def unusable_calls(questions: Iterable[JudgeRequest]) -> Sequence[ProviderCall]:
    """Return the calls whose replies are the reason why an assertion has no verdict.

    If a call failed, that was the reason, and the other replies are usable.
    """
    calls = [*questions]
    if any(one.has_failed for one in calls):
        return ()
    return [one.inquiry for one in calls if one.reply is not None and one.inquiry is not None]


_FAILURES = (CallError, LaneClosedError, BudgetError, LimitError, TooLateError)


@attrs.frozen(kw_only=True)
class OpenGraders:
    """The opened judges of a run."""

    graders: Graders
    reply_source: ReplySource
    """Calls all providers of the run; judges come after the providers under test."""
    default: Test | None = None
    """The suite's default test."""
    open_objects: bool = False
    """True if grading prompts may access members of objects."""

    def of_row(self, step: Step, prompt: RenderedPrompt, calls: Calls[Any]) -> "RowGraders":
        """Return the judges of one row.

        Args:
            step: The row.
            prompt: Its rendered prompt.
            calls: The calls of the running job.
        """
        return RowGraders(self, step, prompt, calls)

    @property
    def first(self) -> int:
        """The index of the first judge among the providers."""
        return len(self.reply_source.providers) - len(self.graders.entries)

    def place(self, assertion: Assertion, options: object, role: Role) -> int:
        """Return the index among the providers of the judge of an assertion.

        Raises:
            GradingError: It has no judge.
        """
        searches = split_type(assertion.type)[0] in SEARCHING_KINDS
        found = self.graders.place(assertion, options, self.default, role, searches=searches)
        if isinstance(found, str):
            raise GradingError(found)
        return self.first + found

    def lane(self, assertion: Assertion, options: object, role: Role = "text") -> str | None:
        """Return the lane of the judge of an assertion; None without a judge."""
        try:
            return self.reply_source.lanes[self.place(assertion, options, role)]
        except GradingError:
            return None


@attrs.define(eq=False, repr=False)
class RowGraders:
    """The judges of one row."""

    run: OpenGraders
    step: Step
    rendered: RenderedPrompt
    calls: Calls[Any]
    """The calls of the running job."""
    spending: Spending = attrs.field(factory=Spending)
    """The total of the row."""
    media: Sequence[Media] = ()
    """The media of the reply that is judged."""
    recalled: int = attrs.field(default=0, init=False)
    """Requests of earlier executions whose replies are used."""
    _vectors: dict[tuple[int, str], EmbeddingRequest] = attrs.field(factory=dict, init=False)
    _asked_for: list[EmbeddingRequest] = attrs.field(factory=list, init=False)
    _graders: list["AssertionGrader"] = attrs.field(factory=list, init=False)

    def of(self, assertion: Assertion) -> "AssertionGrader":
        """Return the judges of one assertion. Those created earlier pay for shared requests."""
        grader = AssertionGrader(self, assertion, len(self._graders))
        self._graders.append(grader)
        return grader

    def mark(self, grader: "AssertionGrader") -> tuple[Any, ...]:
        """Return JSON data that distinguishes the requests of an assertion from others of the row."""
        own = grader.assertion
        before = (one.assertion for one in self._graders[: grader.number])
        number = sum((own.type, own.value) == (other.type, other.value) for other in before)
        return own.type, plain_data(own.value), number

    def resume(self, calls: Calls[Any]) -> None:
        """Prepare for running the row again: failed requests may be repeated."""
        self.calls = calls
        for key in [key for key, known in self._vectors.items() if known.vector is None]:
            del self._vectors[key]
        for grader in self._graders:
            grader.questions.begin_again()

    async def ask(
        self,
        question: JudgeRequest,
        spending: Spending,
        mark: Sequence[Any],
        *,
        again: bool = False,
    ) -> Reply:
        """Return the reply of a judge after all retries, or its reply to an earlier equal request.

        A checkpoint, unless an earlier execution of the run received the reply.

        Args:
            question: The request.
            spending: Counts the usage.
            mark: JSON data that distinguishes it from equal requests of the row.
            again: Whether a different reply from the earlier ones to the same request is wanted.

        Raises:
            GradingError: It failed.
        """
        if question.reply is not None:
            await trio.lowlevel.checkpoint()
            return question.reply
        asker, place = self.run.reply_source, question.place
        request, index = question.request, self.step.index
        inquiry = asker.prepare(index, "grader", place, request, *mark, again=again)
        question.inquiry, question.has_failed = inquiry, False
        try:
            paid = await asker.fetch(inquiry, self.calls, _UsageCounter(self, question, spending))
        except _FAILURES as error:
            question.has_failed = True
            raise self._failure(place, error) from error
        return paid.reply

    async def vector(self, place: int, text: str, number: int) -> Sequence[float]:
        """Return the embedding of a text, requested only once. A checkpoint.

        Raises:
            GradingError: The call failed, or the reply has no vector.
        """
        key = (place, text)
        while (known := self._vectors.get(key)) is not None:
            known.users.add(number)
            await known.over.wait()
            if known.error is not None:
                raise _copy_of(known.error) from known.error
            if known.vector is not None:
                return known.vector
        entry = self._vectors[key] = EmbeddingRequest(
            JudgeRequest(place, self.request(text)), {number}
        )
        self._asked_for.append(entry)
        try:
            reply = await self.ask(entry.question, entry.spending, ("vector",))
            entry.vector = read_vector(reply.output)
            if entry.vector is None:
                raise self.unusable(place, reply, "returned no vector, which is a list of numbers")
        except GradingError as error:
            entry.error = error
            raise
        finally:
            if entry.vector is None and entry.error is None:
                del self._vectors[key]  # cancelled: other waiters send the request again
            entry.over.set()
        return entry.vector

    def paid_by(self, number: int) -> Iterator[JudgeUsage]:
        """Return the usage of the embeddings that an assertion pays for."""
        return (one.spending.total for one in self._asked_for if min(one.users) == number)

    def vectors_of(self, number: int) -> Iterator[JudgeRequest]:
        """Return the requests for the embeddings that an assertion uses."""
        return (one.question for one in self._asked_for if number in one.users)

    def request(self, prompt: str, **more: Any) -> Request:
        """Return a request of this row."""
        step = self.step
        return Request(
            prompt=prompt,
            test_idx=step.test_idx,
            prompt_idx=step.prompt_idx,
            repeat_index=step.repeat_index,
            **{"vars": without_runtime_variables(self.rendered.vars), **more},
        )

    def name(self, place: int) -> str:
        """Return the name of a judge, without secrets."""
        return self.run.reply_source.names[place]

    def unusable(self, place: int, reply: Reply, problem: str) -> GradingError:
        """Return the error for an unusable reply."""
        metadata = {"grader": self.name(place), "graderReply": reply.output}
        return GradingError(f"the grader {self.name(place)} {problem}", metadata=metadata)

    def _failure(self, place: int, error: Exception) -> GradingError:
        metadata: dict[str, Any] = {"grader": self.name(place)}
        if isinstance(error, ProviderError):
            metadata["errorKind"] = error.kind
            if error.body_excerpt:
                metadata["bodyExcerpt"] = error.body_excerpt
        message = f"the grader {self.name(place)} failed: {error}"
        return GradingError(message, mishap=worth_salvaging(error), metadata=metadata)


@attrs.frozen(eq=False, repr=False)
class _UsageCounter:
    """Counts the usage of one request."""

    row: RowGraders
    question: JudgeRequest
    spending: Spending

    def on_request(self, _tokens: int) -> None:
        self._count_in(JudgeUsage(calls=1))  # however it ends

    def on_failure(self, error: ProviderError, _tokens: int) -> None:
        self._count_in(attrs.evolve(spent_on_failure(error), calls=0))

    def on_reply(self, paid: RecordedReply, *, recalled: bool) -> None:
        reply = self.question.reply = paid.reply
        if recalled and not paid.cached:
            self.row.recalled += 1
            self.on_request(0)
        name = self.row.name(self.question.place)
        self._count_in(JudgeUsage(usage=reply.usage, cost=reply.cost, judges=(name,)))

    def _count_in(self, spent: JudgeUsage) -> None:
        self.spending.add(spent)
        self.row.spending.add(spent)


@attrs.define(eq=False, repr=False)
class AssertionGrader:
    """The judges of one assertion of one row; see `trioeval.grading.services.Grader`."""

    row: RowGraders
    assertion: Assertion
    number: int
    spending: Spending = attrs.field(factory=Spending, init=False)
    questions: JudgeRequests = attrs.field(factory=JudgeRequests, init=False)

    def spent(self) -> JudgeUsage:
        """Return the usage of judging it so far."""
        return JudgeUsage.sum((self.spending.total, *self.row.paid_by(self.number)))

    def replies(self) -> list[str]:
        """Return the text replies so far, in the order of the requests."""
        found = []
        for question in self.questions.in_order():
            if question.reply is not None and question.is_in_words:
                with contextlib.suppress(GradingError):
                    found.append(self._answer(question.place, question.reply).text)
        return found

    def reject(self) -> None:
        """Discard the replies, which led to no verdict, so that they are not reused."""
        calls = (*self.questions.in_order(), *self.row.vectors_of(self.number))
        for inquiry in unusable_calls(calls):
            self.row.run.reply_source.reject(inquiry)

    def render(self, own: str, names: Mapping[str, Any], *, part: int | str | None = None) -> str:
        """Render the prompt for a judge.

        Raises:
            GradingError: It cannot be rendered.
        """
        row, options = self.row, self.row.step.test.options
        rubric_prompt = self.assertion.rubric_prompt or options.rubric_prompt
        text = chosen_prompt(own, rubric_prompt, part)
        given = {**row.rendered.vars, **names}
        try:
            known = named_values(given, open_objects=row.run.open_objects)
        except (TypeError, ValueError, RecursionError) as error:
            msg = f"the grading prompt cannot be rendered: {error}"
            raise GradingError(msg) from error
        return render_prompt(text, known, row.rendered.templates.fill)

    async def ask(
        self,
        prompt: str,
        *,
        schema: Mapping[str, Any] | None = None,
        again: bool = False,
    ) -> JudgeReply:
        """Return the reply of the text model. A checkpoint.

        Raises:
            GradingError: The call failed, or the reply is a refusal or empty.
        """
        place = self._place("text")
        prompt, media = self._with_media(place, prompt)
        options = self._options(place, schema)
        request = self.row.request(prompt, options=options, media=media)
        question = self.questions.ask(place, request, is_in_words=True)
        return self._answer(place, await self._ask(question, again=again))

    def _with_media(self, place: int, prompt: str) -> tuple[str, tuple[Media, ...]]:
        if not self.row.media:
            return prompt, ()
        from trioeval.evaluation.judged_media import attach, judged_media

        media = judged_media(self.assertion, prompt, self.row.media)
        settings = self.row.run.reply_source.providers[place].spec.settings
        return attach(prompt, media, settings, self.row.name(place)) if media else (prompt, ())

    async def embed(self, text: str) -> Sequence[float]:
        """Return the embedding of a text; equal texts of a row are one call. A checkpoint.

        Raises:
            GradingError: The call failed, or the reply has no vector.
        """
        place = self._place("embedding")
        return await self.row.vector(place, text, self.number)

    async def classify(self, text: str) -> Mapping[str, float]:
        """Return the score of each label. A checkpoint.

        Raises:
            GradingError: The call failed, or the reply has no scores.
        """
        row, place = self.row, self._place("classification")
        reply = await self._ask(self.questions.ask(place, row.request(text)))
        labels = read_labels(reply.output)
        if not labels:
            raise row.unusable(place, reply, "returned no scores, which are numbers by label")
        return labels

    async def moderate(self, prompt: str, text: str) -> Sequence[Flag]:
        """Return the categories that a model's reply to a prompt falls into. A checkpoint.

        Services get the reply alone; functions get the prompt among the variables, as
        `moderatedPrompt`.

        Raises:
            GradingError: It failed.
        """
        row, place = self.row, self._place("moderation")
        variables = {
            **without_runtime_variables(row.rendered.vars),
            "moderatedPrompt": from_model(prompt),
        }
        question = self.questions.ask(place, row.request(text, vars=variables), shown=prompt)
        reply = await self._ask(question)
        flags = read_flags(reply)
        if flags is None:
            raise row.unusable(place, reply, "returned no categories")
        return flags

    async def _ask(self, question: JudgeRequest, *, again: bool = False) -> Reply:
        mark = (*self.row.mark(self), *question.mark)
        return await self.row.ask(question, self.spending, mark, again=again)

    def _place(self, role: Role) -> int:
        return self.row.run.place(self.assertion, self.row.step.test.options.provider, role)

    def _options(self, place: int, schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
        if schema is None:
            return {}
        from trioeval.providers.abilities import schema_options

        return schema_options(self.row.run.reply_source.providers[place].spec.settings, schema)

    def _answer(self, place: int, reply: Reply) -> JudgeReply:
        row = self.row
        if reply.is_refusal or reply.finish_reason == "content_filter":
            raise row.unusable(place, reply, "refused to reply")
        text, cut = self._text(place, reply), reply.finish_reason == "length"
        if not text.strip():
            raise row.unusable(
                place, reply, f"returned no text: {CUT_OFF}" if cut else "returned no text"
            )
        return JudgeReply(text, reply.answer, is_cut_off=cut)

    def _text(self, place: int, reply: Reply) -> str:
        if reply.output is None:
            return ""
        try:
            return output_text(reply.answer)
        except (TypeError, ValueError, RecursionError) as error:
            raise self.row.unusable(
                place, reply, "returned something that is not JSON data"
            ) from error


def _copy_of(error: GradingError) -> GradingError:
    return GradingError(str(error), mishap=error.is_transient, metadata=error.metadata)
