"""What the judges of one assertion were asked, and what came back: no reply is paid for twice.

A question is known by what is asked, by its place among questions that are asked together, and by how often
the same was asked there before. None of that depends on who answers first. So when a row is judged once more
because a judge failed by mishap, its judges ask the same questions again, and those that were answered are
answered from here.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import attrs
import trio

from trioeval.errors import GradingError
from trioeval.providers import Reply, Request
from trioeval.tasks.asking import Inquiry
from trioeval.tasks.spending import Spending
from trioeval.tasks.together import place_among


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
