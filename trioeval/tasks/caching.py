"""What tasks know of a cache of replies. Keys come from providers; see `OpenProvider.cache_key`."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol

from trioeval.providers.bounds import MOST_BYTES
from trioeval.tasks.journal import Paid


class ReplyCache(Protocol):
    """Replies by the digest of all that influences them; one call for equal questions in flight."""

    def has(self, key: bytes, /) -> bool:
        """Whether asking it now needs no call of one's own: the reply is there, or somebody asks already.

        Synchronous and quick; says False rather than wait.
        """
        ...

    def drop(self, key: bytes, /) -> None:
        """Let go of a reply that nothing came of."""
        ...

    async def reply(
        self,
        key: bytes,
        fetch: Callable[[], Awaitable[Paid]],
        waiting: Callable[[], AbstractContextManager[object]],
        *,
        refresh: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> Paid:
        """The reply that is there, that of whoever asks the same just now, or else what `fetch` gets.

        What `fetch` raises is not kept, but those who wait for it are told the same, if it is a failure of
        the provider; of any other one, and of a cancelled fetch, the next of them makes a call of its own.

        Args:
            key: Of the question.
            fetch: Asks the provider, through its lane.
            waiting: What is entered while the call of another one is waited for: no slot is held then,
                and the working time of a job does not run.
            refresh: Do not look for a reply that is there; keep the new one in its place.
            most_bytes: That a reply of the provider may have; one that is there and larger is not read.

        Raises:
            CallError: Whatever the call raised that was waited for; or the reply that is there is too large.
            Exception: Whatever `fetch` raised.
        """
        ...
