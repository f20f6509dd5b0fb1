"""Question tasks in virtual time: a question file, a scripted model, and the results."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval import Lanes, Reply, Request, Row, own_provider, parse_suite, prepare
from trioeval.kernel.reservations import Permits
from trioeval.providers import Provider, Usage
from trioeval.question_eval import question_of
from trioeval.question_eval.answer import QuestionEvent, QuestionResult
from trioeval.run import PreparedSuite, RunOptions, make_lanes, run_with_options
from trioeval.suite.filters import Filters, select_tests
from trioeval.testing import run_virtual

RIGHT = "Let me think.\n<answer>Blue</answer>"
WRONG = "<answer>Red</answer>"
NO_FILTERS = Filters()


def quiz(folder: Path, size: int = 2, *, entry: Mapping[str, Any] | None = None, **top: Any) -> Any:
    """Return a suite with one task, `quiz`, of some questions that "Blue" answers."""
    file = folder / "questions.json"
    questions = [
        {
            "id": f"q{n}",
            "question": f"Colour {n}?",
            "answers": ["Red", "Blue"],
            "correct_answers": ["Blue"],
        }
        for n in range(size)
    ]
    file.write_text(json.dumps({"version": 1, "questions": questions}))
    task = {"id": "quiz", "type": "question_eval", "questionsFile": str(file), **(entry or {})}
    return {"providers": ["pupil"], "tasks": [task], **top}


def number_of(request: Request) -> int:
    """Return the number of the question in a request."""
    return int(request.vars["question"].removeprefix("Colour ").removesuffix("?"))


@attrs.define
class Pupil:
    """A model that answers question n in its step m with `says(n, m)`: a text, a reply, or an exception."""

    says: Callable[[int, int], Any] = lambda _number, _step: RIGHT
    takes: Callable[[int], float] = lambda _number: 1.0
    """The duration of a step of a question, in seconds."""
    asked: Counter[int] = attrs.field(factory=Counter)
    requests: list[Request] = attrs.field(factory=list)
    began_at: list[float] = attrs.field(factory=list)
    over: int = 0
    """Calls that were not interrupted."""

    async def __call__(self, request: Request) -> Reply:
        number = number_of(request)
        step = self.asked[number]
        self.asked[number] += 1
        self.requests.append(request)
        self.began_at.append(trio.current_time())
        await trio.sleep(self.takes(number))
        self.over += 1
        said = self.says(number, step)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, Reply):
            return said
        return Reply(output=said, usage=Usage(prompt=10, completion=5, total=15), cost=0.5)


@attrs.define
class Ran:
    """The results of a run."""

    rows: list[Row] = attrs.field(factory=list)
    events: list[QuestionEvent] = attrs.field(factory=list)
    ended_at: float = 0.0
    lanes: Lanes | None = None

    @property
    def questions(self) -> list[QuestionResult]:
        return [found for row in self.rows if (found := question_of(row)) is not None]

    @property
    def outcomes(self) -> list[str]:
        return [question.outcome for question in self.questions]

    def names(self, index: int) -> list[str]:
        """Return the names of the events of one question."""
        return [event.name for event in self.events if event.index == index]

    @property
    def end(self) -> Mapping[str, Any]:
        """Return the status and reason of the task."""
        (found,) = [event.details for event in self.events if event.name == "task_end"]
        return found


def asked(
    document: Any,
    pupil: Provider,
    *,
    permits: Callable[[PreparedSuite], Mapping[str, Permits]] | None = None,
    around: Callable[[Callable[..., Awaitable[None]], Ran], Awaitable[None]] | None = None,
    longest_reply: int | None = None,
    run: Callable[[Callable[[], Awaitable[None]]], object] = run_virtual,
    filters: Filters = NO_FILTERS,
    **more: Any,
) -> Ran:
    """Run a suite, in virtual time unless `run` is given.

    Args:
        document: The data of a suite file.
        pupil: The model.
        permits: Returns the permits of lanes, within the run.
        around: Called with a function that runs the suite.
        longest_reply: The maximum tokens of a reply; None for no limit.
        run: Starts a Trio run.
        filters: Filters of the questions.
        **more: Further options of the run.
    """
    suite = parse_suite(document, environ={}, allow_outside=True)
    ran = Ran()

    async def emit(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        ran.rows.append(row)

    async def go(**given: Any) -> None:
        prepared = prepare(
            suite,
            providers={"pupil": own_provider(pupil, max_tokens=longest_reply)},
            environ={},
            select=lambda one: select_tests(one, filters),
        )
        if permits is not None:
            specs = [lane.spec for lane in make_lanes(prepared).values()]
            ran.lanes = given["lanes"] = Lanes(specs, permits=permits(prepared))
        options = {"questions": ran.events.append, **more, **given}
        await run_with_options(prepared, RunOptions(emit=emit, **options))
        ran.ended_at = trio.current_time()

    async def main() -> None:
        if around is None:
            await go()
        else:
            await around(go, ran)

    run(main)
    return ran


def calls_tool(*names: str, **arguments: Any) -> Reply:
    """Return a reply that calls tools, in the format of chat completions."""
    calls: Sequence[Any] = [
        {
            "id": f"call-{place}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for place, name in enumerate(names)
    ]
    usage = Usage(prompt=10, completion=5, total=15)
    return Reply(output=calls, usage=usage, finish_reason="tool_calls")
