"""The attempts of one case: those that earlier executions of the run have made, and those that are made now.

An attempt is written down in the step in which it is over, as the reply to a question that has its number.
So an execution that goes on finds how many there were, and makes none of them again.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from trioeval.agents.attempts import Attempt, AttemptEnd
from trioeval.agents.bus.reading import read_parts
from trioeval.agents.loop import LoopEnd
from trioeval.agents.run_ids import RunIds
from trioeval.errors import BusError
from trioeval.providers import Request
from trioeval.suite import Step
from trioeval.tasks.agents.answering import ComeTo
from trioeval.tasks.agents.posts import Posts
from trioeval.tasks.agents.recorded import answer_of, end_of, reply_of
from trioeval.tasks.asking import Asker, Inquiry
from trioeval.tasks.tools import Asked

_RUN_ID = "runId"


@attrs.define(eq=False, kw_only=True)
class AttemptsMade:
    """The attempts of one case."""

    asker: Asker
    step: Step
    asked: Asked
    told: ComeTo
    is_model: bool
    """Whether what it uses is written down with its single calls."""
    ids: RunIds
    """Of new attempts."""
    post: Posts
    """Told whose messages they are."""
    prompt: str = ""
    """What is to be done."""
    is_resumed: bool = False
    """Whether the first attempt of this execution was begun before."""
    ends: list[AttemptEnd] = attrs.field(init=False, factory=list)
    earlier: Sequence[AttemptEnd] = attrs.field(init=False)
    """Those of earlier executions."""

    @earlier.default
    def _find_earlier(self) -> Sequence[AttemptEnd]:
        found: list[AttemptEnd] = []
        while (paid := self.asker.recalled(self._inquiry(len(found)))) is not None:
            end = end_of(paid.reply)
            if end is None:
                break
            if found:  # as in `over`
                found[-1] = attrs.evolve(found[-1], output="")
            found.append(end)
        self.ends += found
        return found

    @property
    def digest(self) -> str:
        """What tells the case from another one, wherever it stands; blank where nobody will ask."""
        key = self._inquiry(0).key
        if key is None:
            return ""
        text = f"{key.question.hex()}\n{self.step.repeat_index}\n{key.row}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def next(self, number: int) -> Attempt:
        """The attempt with a number, which begins now."""
        run_id = self.ids()
        self.post.run = run_id
        return Attempt(
            number=number,
            run_id=run_id,
            previous_run_id=self.ends[-1].metadata.get(_RUN_ID) if self.ends else None,
            task_prompt=self.prompt,
            is_resumed=self.is_resumed and number == len(self.earlier),
        )

    def over(self, attempt: Attempt, end: AttemptEnd) -> None:
        """An attempt is over: it is written down."""
        own = {_RUN_ID: attempt.run_id}
        if attempt.previous_run_id is not None:
            own["previousRunId"] = attempt.previous_run_id
        end = attrs.evolve(end, metadata={**own, **end.metadata})
        if self.ends:  # only the last output is told of, and each may be large
            self.ends[-1] = attrs.evolve(self.ends[-1], output="")
        self.ends.append(end)
        inquiry = self._inquiry(attempt.number)
        self.asker.note(inquiry, reply_of(end, spent=not self.is_model), end.duration_s * 1000)
        self.tell()

    async def tell_lost_end(self, bus: Path) -> None:
        """Tell the end of the last attempt that a bus tells the start of, if a kill kept it back."""
        try:
            run = await trio.to_thread.run_sync(_unended, bus)
        except BusError as error:
            self.post.troubles.add(error)
            return
        if run is None:
            return
        ended = {end.metadata.get(_RUN_ID): number for number, end in enumerate(self.ends)}
        self.post.run = run
        number = ended.get(run)
        if number is None:
            await self.post("RUN_CRASH", f"attempt {len(self.ends)} was cut off: run {run}")
        elif self.ends[number].failure is None:
            await self.post("RUN_STOP", f"attempt {number} has ended: run {run}")
        else:
            await self.post("RUN_CRASH", f"attempt {number} has failed: run {run}")

    def tell(self) -> None:
        """Tell what the case has come to so far."""
        count = len(self.ends)
        after = "1 attempt" if count == 1 else f"{count} attempts"
        so_far = LoopEnd(
            ending="interrupted", message=f"interrupted after {after}", attempts=tuple(self.ends)
        )
        latency_ms = sum(end.duration_s for end in self.ends) * 1000
        self.told(answer_of(so_far, {}), latency_ms, self.recalled)

    @property
    def recalled(self) -> int:
        """Requests that earlier executions have made."""
        return sum(end.metadata.get("steps", 1) for end in self.earlier)

    def _inquiry(self, number: int) -> Inquiry:
        asked, step = self.asked, self.step
        request = Request(prompt=asked.prompt, vars=asked.vars, options=asked.options)
        return self.asker.inquiry(
            step.index, "attempt", step.provider_index, request, number, "over"
        )


def _unended(bus: Path) -> str | None:
    """The id of the attempt that a bus tells the start of last, and no end. Blocks on files.

    Raises:
        BusError: It is no bus.
    """
    run: str | None = None
    for part in read_parts(bus):
        for message in part.messages:
            draft = message.draft
            if draft.type == "RUN_START":
                run = draft.run_id
            elif draft.type in ("RUN_STOP", "RUN_CRASH") and draft.run_id == run:
                run = None
    return run
