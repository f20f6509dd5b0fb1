"""A provider from a user's async function, with the guarantees of all providers."""

import inspect
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager

import attrs

from trioeval.errors import CallError, Fault, ProviderError, ProviderErrorKind, leaves
from trioeval.providers.base import Provider, Reply, Request, ToolCall
from trioeval.providers.config import ProviderResources, ProviderSettings, show
from trioeval.providers.metering import Metering

KIND_BY_FAULT: Mapping[Fault, ProviderErrorKind] = {
    Fault.RATE_LIMITED: "rate_limited",
    Fault.TRANSIENT: "server",
    Fault.REFUSED: "bad_request",
    Fault.QUOTA_EXHAUSTED: "quota_exhausted",
    Fault.FATAL: "permission",
}
"""Kind of a failure for which the function only reports the fault."""


@attrs.frozen
class CustomSettings(ProviderSettings):
    """A callable of the caller, under its name in the suite."""

    name: str
    function: Provider = attrs.field(repr=False)

    @property
    def lane_key(self) -> str:
        """One lane for each name."""
        return self.name

    @property
    def metering(self) -> Metering:
        """The metering of a function, whose reported costs have no limit."""
        return Metering(says_cost=True)

    @asynccontextmanager
    async def open(self, _shared: ProviderResources) -> AsyncGenerator[Provider]:
        """Return the callable, which the caller has to close."""
        yield self.function


@attrs.frozen
class CustomProvider:
    """Calls the function and converts its result to a `Reply` or a `ProviderError`."""

    name: str
    """The provider's label or id, for messages."""
    function: Provider = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Send one request. A checkpoint if the function is one.

        Raises:
            ProviderError: The function raised it, or a `CallError`, whose fault is preserved; or, as
                `unexpected`, it raised anything else, is not async, or returned neither a `Reply` nor
                text. The cause is preserved.
        """
        try:
            # Typed as async, but the user's function may be anything.
            pending: object = self.function(request)
            answer: object = await pending if inspect.isawaitable(pending) else _NotAsync(pending)
        except ProviderError:
            raise
        except CallError as error:
            raise ProviderError(
                KIND_BY_FAULT[error.fault],
                f"provider {self.name}: {error}",
                retry_after=error.retry_after,
                retries=error.retries,
                tokens=error.tokens,
                money=error.money,
            ) from error
        except Exception as error:
            raise ProviderError(
                "unexpected", f"provider {self.name}: {_describe(error)}"
            ) from error
        match answer:
            case Reply():
                fault = _fault_in(answer)
                if fault is None:
                    return answer
            case str():
                return Reply(output=answer)
            case _NotAsync(returned):
                fault = (
                    f"is not async: it returned {_type_text(returned)}; write it with `async def`"
                )
            case _:
                fault = f"must return a Reply or text, it returned {_type_text(answer)}"
        raise ProviderError("unexpected", f"provider {self.name} {fault}")


def _fault_in(reply: Reply) -> str | None:
    """Return the first part of a reply that has the wrong type."""
    # Typed, but a user's function may put anything into a reply.
    texts: dict[str, object] = {"text": reply.own_text, "reasoning": reply.reasoning}
    calls: Iterable[object] = reply.tool_calls
    for name, part in texts.items():
        if part is not None and not isinstance(part, str):
            return f"returned a Reply whose {name} is {_type_text(part)}; it must be text"
    for call in calls:
        if not isinstance(call, ToolCall):
            return f"returned a Reply with a tool call of {_type_text(call)}; it must be a ToolCall"
    return None


@attrs.frozen(eq=False, repr=False)
class _NotAsync:
    returned: object


def _type_text(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__}: {show(value)}"


def _describe(error: Exception) -> str:
    """Return type and text; for a group those of its parts, because the group itself has no information."""
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
