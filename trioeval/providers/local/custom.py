"""A provider from a user's async function, with the guarantees of all providers.

A function says nothing about the costs and lengths of its replies, so a budget could not hold for it: a call
reserves the most that it may use before it is made. `own_provider` adds these bounds, and its lane.

Law: BUDGET.
"""

import functools
import inspect
import math
import operator
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs

from trioeval.errors import (
    CallError,
    Fault,
    Problem,
    ProviderError,
    ProviderErrorKind,
    UsageError,
    leaves,
)
from trioeval.kernel import LaneSpec
from trioeval.providers.base import Media, Provider, Reply, Request, ToolCall
from trioeval.providers.config import (
    Key,
    ProviderResources,
    ProviderSettings,
    is_amount,
    is_count,
    read_config,
    show,
)
from trioeval.providers.metering import GUESSED_REPLY, Metering
from trioeval.usage import Usage

KIND_BY_FAULT: Mapping[Fault, ProviderErrorKind] = {
    Fault.RATE_LIMITED: "rate_limited",
    Fault.TRANSIENT: "server",
    Fault.REFUSED: "bad_request",
    Fault.QUOTA_EXHAUSTED: "quota_exhausted",
    Fault.FATAL: "permission",
}
"""Kind of a failure for which the function only reports the fault."""


_PARTS = ("reasoning", "finish_reason", "refusal", "cost", "log_probs")
_NO_USAGE = attrs.fields(Reply).usage.default

_TOKENS = "a whole number of tokens of at least 1"
_MAX_TOKENS = Key("maxTokens", _TOKENS, is_count)


@attrs.frozen(kw_only=True)
class OwnProvider:
    """An async function as a provider, with its lane and its bounds. Obtained from `own_provider` only."""

    function: Provider = attrs.field(repr=False)
    lane: LaneSpec | None = None
    """The lane of its entries; None leaves that to the suite."""
    max_cost: float | None = None
    """The maximum cost of a call in US dollars, ≥ 0 and finite; None if it is not known."""
    max_tokens: int | None = None
    """The maximum number of tokens of a reply, ≥ 1; None if it is not known."""

    async def __call__(self, request: Request, /) -> Reply | str:
        """Call the function. A checkpoint if the function is one."""
        return await self.function(request)


def own_provider(
    function: Provider,
    *,
    lane: LaneSpec | None = None,
    max_cost: float | None = None,
    max_tokens: int | None = None,
) -> OwnProvider:
    """Return an async function as a provider, with its lane and the bounds that budgets need.

    Args:
        function: Takes a `Request`, sends one request, and returns a `Reply` or text.
        lane: The limits of its calls, for entries of a suite that set no lane themselves; its name is the key
            of the lane. Providers with a lane of one name share it, and must have equal limits. None is a
            lane of its own with the default limits.
        max_cost: The maximum cost of a call in US dollars, ≥ 0 and finite, which a budget of money reserves
            for it; 0 if it costs nothing. A call without a reported cost counts as this much. `maxCost` in
            the config of an entry replaces this.
        max_tokens: The maximum number of tokens of a reply, ≥ 1, with those that the function adds to the
            prompt. A budget of tokens reserves them for it, besides those of the prompt. A call without
            reported tokens counts as the whole reservation. `maxTokens` in the config of an entry replaces
            this.

    Raises:
        UsageError: The function is not async, or another argument is out of its range.

    Example:
        >>> async def shout(request: Request) -> Reply:
        ...     return Reply(output=request.prompt.upper(), cost=0.002)
        >>> own_provider(shout, lane=LaneSpec("shouts", 8, rpm=600), max_cost=0.01).max_cost
        0.01
    """
    if fault := _fault_of(function):
        raise UsageError(f"own_provider: {fault}")
    if lane is not None and not isinstance(lane, LaneSpec):
        raise UsageError(
            f'own_provider: lane must be a LaneSpec, such as LaneSpec("{_name_of(function)}", 8), '
            f"got {_type_text(lane)}"
        )
    if max_cost is not None and not is_amount(max_cost):
        raise UsageError(
            "own_provider: max_cost must be a finite number of US dollars a call of at least 0 "
            f"(0: it is free), got {max_cost!r}"
        )
    if max_tokens is not None and not is_count(max_tokens):
        raise UsageError(f"own_provider: max_tokens must be {_TOKENS}, got {max_tokens!r}")
    return OwnProvider(function=function, lane=lane, max_cost=max_cost, max_tokens=max_tokens)


def _fault_of(function: Any) -> str | None:
    """Return the reason why something is not an async function; None if it is one."""
    if inspect.iscoroutine(function):
        name = function.__name__
        function.close()  # it is never awaited, which Python would report in addition
        return f"pass the function itself, {name}, and not the result of its call, {name}(...)"
    if isinstance(function, OwnProvider):
        return "the function is one of own_provider already: pass all settings in one call"
    if not callable(function):
        return f"the function must be an async function, got {_type_text(function)}"
    name = _name_of(function)
    if inspect.isclass(function):
        return f"{name} is a class: pass an object of it, or a method"
    whole = function
    while isinstance(whole, functools.partial):
        whole = whole.func
    bodies = (whole, type(whole).__call__)
    if any(map(inspect.iscoroutinefunction, bodies)):
        return None
    if any(map(inspect.isasyncgenfunction, bodies)):
        return f"{name} yields; return one Reply, or text"
    return f"{name} is not async; write it with `async def`"


def _name_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name.rpartition("<locals>.")[2]


@attrs.frozen
class CustomSettings(ProviderSettings):
    """A callable of the caller, under its name in the suite."""

    name: str
    own: OwnProvider

    @property
    def lane_key(self) -> str:
        """One lane for each name."""
        return self.name

    @property
    def lane(self) -> LaneSpec | None:
        """The lane that the caller chose."""
        return self.own.lane

    @property
    def metering(self) -> Metering:
        """The metering of a function, with the bounds that the caller knows."""
        longest = self.own.max_tokens
        return Metering(
            longest_reply=GUESSED_REPLY if longest is None else longest,
            is_bounded=longest is not None,
            says_cost=True,
            most_cost=self.own.max_cost,
        )

    @asynccontextmanager
    async def open(self, _shared: ProviderResources) -> AsyncGenerator[Provider]:
        """Return the callable, which the caller has to close."""
        yield self.own.function


def read_own(
    name: str, provider: Provider, config: Mapping[str, Any]
) -> CustomSettings | list[Problem]:
    """Return the settings of a callable of the caller, or the problems of its config.

    Args:
        name: Its name in the suite.
        provider: The callable, plain or from `own_provider`.
        config: The config of its entry, without the keys of all providers.
    """
    values, problems = read_config(config, (_MAX_TOKENS,))
    if problems:
        return problems
    own = provider if isinstance(provider, OwnProvider) else OwnProvider(function=provider)
    return CustomSettings(name, attrs.evolve(own, **values))


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
                hint=error.hint,
            ) from error
        except Exception as error:
            raise ProviderError(
                "unexpected", f"provider {self.name}: {_describe(error)}"
            ) from error
        match answer:
            case Reply():
                if _is_sound(answer) or not (faults := _faults_in(answer)):
                    return answer
                fault = next(iter(faults.values()))
                usage = None if "usage" in faults else answer.usage
                money = None if "cost" in faults else answer.cost
                message = f"provider {self.name} returned a Reply {fault}"
                raise ProviderError("unexpected", message, usage=usage, money=money)
            case str():
                return Reply(output=answer)
            case _NotAsync(returned):
                fault = (
                    f"is not async: it returned {_type_text(returned)}; write it with `async def`"
                )
            case _:
                fault = f"must return a Reply or text, it returned {_type_text(answer)}"
        raise ProviderError("unexpected", f"provider {self.name} {fault}")


_TEXTS = frozenset({str, type(None)})
_COUNTS = frozenset({int, type(None)})
_counts = operator.attrgetter(*(field.name for field in attrs.fields(Usage)))


def _is_sound(reply: Reply) -> bool:
    """Return whether the parts of a reply surely have the right types: quick, as every reply is checked."""
    cost, usage = reply.cost, reply.usage
    if (
        type(reply.own_text) not in _TEXTS
        or type(reply.finish_reason) not in _TEXTS
        or type(reply.reasoning) not in _TEXTS
        or type(reply.refusal) not in _TEXTS
        or reply.tool_calls
        or reply.media
        or reply.log_probs is not None
        or not (cost is None or (type(cost) is float and 0 <= cost < math.inf))
        or type(usage) is not Usage
    ):
        return False
    if usage is _NO_USAGE:
        return True
    counts = _counts(usage)
    if not _COUNTS.issuperset(map(type, counts)):
        return False
    known = [*filter(None, counts)]
    return not known or (min(known) > 0 and max(known) <= sys.maxsize)


def _faults_in(reply: Reply) -> dict[str, str]:
    """Return what is wrong with the parts of a reply, by their names."""
    from trioeval.providers.local.recordings import CHECKS  # most replies do not need them

    # Typed, but a user's function may put anything into a reply.
    parts: dict[str, object] = {name: getattr(reply, name) for name in _PARTS}
    parts["text"] = reply.own_text
    usage: object = reply.usage
    if usage is not _NO_USAGE:
        parts["usage"] = attrs.asdict(usage) if isinstance(usage, Usage) else usage
    faults: dict[str, str] = {}
    for name, part in parts.items():
        right, check = CHECKS[name]
        if part is not None and not check(part):
            faults[name] = f"whose {name} is {_type_text(part)}; it must be {right}"
    if not isinstance(usage, Usage):
        faults["usage"] = f"whose usage is {_type_text(usage)}; it must be a Usage"
    calls: Iterable[object] = reply.tool_calls
    for call in calls:
        if not isinstance(call, ToolCall):
            faults["tool_calls"] = f"with a tool call of {_type_text(call)}; it must be a ToolCall"
    media: Iterable[object] = reply.media
    for one in media:
        if not isinstance(one, Media) or one.data is None:
            right = "it must be a Media of read_media"
            faults["media"] = f"with media of {_type_text(one)}; {right}"
    return faults


@attrs.frozen(eq=False, repr=False)
class _NotAsync:
    returned: object


def _type_text(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__}: {show(value)}"


def _describe(error: Exception) -> str:
    """Return type and text; for a group those of its parts, because the group itself has no information."""
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
