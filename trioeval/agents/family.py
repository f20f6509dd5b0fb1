"""Children of agents that are functions: they live in the scope of their case, over its restarts."""

from collections.abc import Awaitable, Callable, Sequence

import attrs
import trio

from trioeval.agents.attempts import AttemptEnd, AttemptFailure
from trioeval.errors import TooLateError


@attrs.define(eq=False)
class Child:
    """A run that another one has started."""

    name: str
    """What it is called; several may have one name."""
    end: AttemptEnd | None = attrs.field(init=False, default=None)
    """None as long as it lives."""
    _scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    _over: trio.Event = attrs.field(init=False, factory=trio.Event)

    async def wait(self) -> AttemptEnd:
        """How it ended, when it has. A checkpoint."""
        await self._over.wait()
        assert self.end is not None  # noqa: S101 - set before
        return self.end

    async def live(self, run: Callable[[], Awaitable[AttemptEnd]]) -> None:
        """Its whole life; whatever becomes of it, nobody beside it fails."""
        try:
            with self._scope:
                self.end = await run()
        except Exception as error:  # noqa: BLE001 - the lane's; its parent's own next turn meets it too
            message = f"{type(error).__name__}: {error}"
            self.end = AttemptEnd(failure=AttemptFailure("unexpected", message))
        finally:
            if self.end is None:
                self.end = AttemptEnd(failure=AttemptFailure("killed", "ended with its case"))
            self._over.set()

    def cancel(self) -> None:
        """End it. It cleans up as Trio's tasks do."""
        self._scope.cancel("the case is over")


@attrs.define(eq=False)
class Family:
    """The children of one case."""

    _nursery: trio.Nursery
    """Where they live."""
    _living: list[Child] = attrs.field(init=False, factory=list)
    _ending: bool = attrs.field(init=False, default=False)

    def start(self, child: Child, run: Callable[[], Awaitable[AttemptEnd]]) -> None:
        """Let a child live.

        Raises:
            TooLateError: The case is over.
        """
        if self._ending:
            raise TooLateError(f"{child.name!r} was to be started when its case was over")
        self._living.append(child)
        self._nursery.start_soon(self._live, child, run, name=f"child {child.name}")

    def alive(self) -> Sequence[str]:
        """The names of those that live, in the order in which they were started."""
        return [child.name for child in self._living]

    async def wait(self) -> None:
        """Return when none lives. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while self._living:
            await self._living[0].wait()

    async def end(self) -> None:
        """End all of them; no other can be started. A checkpoint."""
        self._ending = True
        for child in self._living:
            child.cancel()
        # They are cancelled, and end as soon as they have cleaned up.
        with trio.CancelScope(shield=True):
            await self.wait()

    async def _live(self, child: Child, run: Callable[[], Awaitable[AttemptEnd]]) -> None:
        try:
            await child.live(run)
        finally:
            self._living.remove(child)
