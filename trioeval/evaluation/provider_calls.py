"""The replies to rows: from providers under test and from judges.

A reply is first looked up in the records of earlier executions of the run, then in the cache; only then is a
call made, through the lane of the provider. The cost of a recorded reply counts as if it were paid now, so
that the totals of an interrupted run are those of an uninterrupted one; a reply from the cache costs nothing.
Neither sends a request, so neither takes a slot, waits for the pace of a lane, or uses the budget.

Every call is recorded in the step in which it ends: each attempt separately, successful or failed. Nothing is
awaited in between, so a reply is recorded whatever happens to the row afterwards: a failing test that needs
no more judges, or a timeout. The row continues when its reply is durable, so if the program dies, nothing
that depends on a lost reply has started: no grading, no next turn, no other row. The wait holds no slot and
is not working time. Only for providers with constant and free replies (`echo`) no call is recorded, just the
row.

Laws: RESUME, SLOT.
"""

import hashlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import attrs
import trio

from trioeval.errors import LimitError, ProviderError
from trioeval.evaluation.journal import (
    CallKey,
    CallRecord,
    CallRole,
    Journal,
    RecordedReply,
    RecordObserver,
    question_digest,
)
from trioeval.evaluation.metering import CallEstimate, CallMeter, counted_tokens, with_bounds
from trioeval.evaluation.prompt import without_runtime_variables
from trioeval.kernel import Calls, Metered
from trioeval.providers import OpenProvider, Reply, Request, Usage
from trioeval.providers.base import KeptJob, ModelIdentity
from trioeval.providers.bounds import MOST_BYTES, reply_bound
from trioeval.providers.cache_key import retry_key
from trioeval.providers.local.custom import CustomSettings
from trioeval.providers.secrets import hide, hide_in, is_secret_name, longest_first, surely_keys
from trioeval.suite.model import ProviderEntry

# The cache of replies as tasks see it. Keys come from providers; see `OpenProvider.cache_key`.


class ReplyCache(Protocol):
    """Replies by the digest of everything that influences them; one call for equal concurrent requests."""

    def has(self, key: bytes, /) -> bool:
        """Return whether no own call is needed now: the reply is cached, or another row's call is in flight.

        Synchronous and quick; returns False rather than wait.
        """
        ...

    def drop(self, key: bytes, /) -> None:
        """Discard an unusable reply."""
        ...

    async def reply(
        self,
        key: bytes,
        fetch: Callable[[], Awaitable[RecordedReply]],
        waiting: Callable[[], AbstractContextManager[object]],
        *,
        refresh: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> RecordedReply:
        """Return the cached reply, that of an equal call in flight, or else the result of `fetch`.

        Exceptions of `fetch` are not cached. A failure of the provider is raised for all that wait for the
        call; after any other exception, or a cancellation, the next waiter makes its own call.

        Args:
            key: The cache key of the call.
            fetch: Calls the provider, through its lane.
            waiting: Entered while waiting for another row's call: no slot is held then, and the working
                time of the job is paused.
            refresh: Ignore a cached reply, and replace it.
            most_bytes: Maximum size of a reply; a larger cached one is not read.

        Raises:
            CallError: The awaited call failed, or the cached reply is too large.
            Exception: Whatever `fetch` raised.
        """
        ...


_log = logging.getLogger("trioeval.run")


@attrs.define(eq=False, repr=False)
class ProviderCall:
    """One call of one row to a provider, before it is made."""

    place: int
    """The index of the provider."""
    request: Request
    key: CallKey | None = None
    """Journal key; None without a journal or for free providers."""
    cache_key: bytes | None = None
    """Cache key; None if the cache must not be used."""
    refresh: bool = False
    """True to ignore a cached reply and replace it."""
    ahead: bool = False
    """True if it goes before calls of rows that have made none."""


class CallObserver(Protocol):
    """Observer of a call; each method is called in the step in which the event happens."""

    def on_request(self, tokens: int, /) -> None:
        """Handle the start of a request, which may be paid for however it ends.

        Args:
            tokens: The reserved tokens, which count as used if the outcome remains unknown.
        """
        ...

    def on_failure(self, error: ProviderError, tokens: int, /) -> None:
        """Handle a failed request.

        Args:
            error: The failure, with the usage as far as the provider reported it.
            tokens: The tokens that count as used.
        """
        ...

    def on_reply(self, paid: RecordedReply, /, *, recalled: bool) -> None:
        """Handle a reply.

        Args:
            paid: The reply.
            recalled: Whether an earlier execution of the run received it.
        """
        ...


@attrs.frozen(kw_only=True)
class ReplySource:
    """Source of the replies to the rows of one task."""

    providers: Sequence[OpenProvider]
    """The providers under test, and after them the judges."""
    entries: Sequence[ProviderEntry]
    """The suite's entry of each."""
    lanes: Sequence[str]
    """The lane of each."""
    meter: CallMeter
    row_ids: Callable[[int], str]
    """Returns the id of a row by its index, see `RowIds`; called only if calls are recorded."""
    task: str | None = None
    journal: Journal | None = None
    observers: Sequence[RecordObserver] = ()
    cache: ReplyCache | None = None
    refresh: bool = False
    """True to call every provider again, and replace cached replies."""
    estimates: bool = False
    """True if a call without reported tokens counts by its length, and returns the rest of its reservation;
    if a budget must hold, it always counts as all of its reservation."""
    warn: Callable[[str], None] = attrs.field(default=_log.warning, repr=False)
    """Called with problems that fail no row."""
    names: Sequence[str] = attrs.field(init=False)
    """The name of each, without secrets."""
    _models: Sequence[ModelIdentity] = attrs.field(init=False, repr=False)
    _keys: tuple[str, ...] = attrs.field(init=False, repr=False)
    _marks: Sequence[str] = attrs.field(init=False, repr=False)
    _exceeded: set[tuple[int, str]] = attrs.field(init=False, factory=set, repr=False)
    """Providers, and what their calls used more of than was reserved, for which a warning was given."""

    @names.default
    def _find_names(self) -> Sequence[str]:
        return [hide(one.spec.name, one.spec.secrets) for one in self.providers]

    @_models.default
    def _find_models(self) -> Sequence[ModelIdentity]:
        return [one.spec.identity for one in self.providers]

    @_keys.default
    def _find_keys(self) -> tuple[str, ...]:
        every = longest_first(secret for one in self.providers for secret in one.spec.secrets)
        return surely_keys(every)

    @_marks.default
    def _find_marks(self) -> Sequence[str]:
        return [provider_digest(entry) for entry in self.entries]

    def prepare(
        self,
        index: int,
        role: CallRole,
        place: int,
        request: Request,
        *more: Any,
        again: bool = False,
    ) -> ProviderCall:
        """Return a call to be made.

        Args:
            index: The index of the row that pays for it.
            role: The role of the provider.
            place: The index of the provider.
            request: The request.
            *more: JSON data that distinguishes it from equal calls of its row.
            again: Whether it repeats an earlier call for a different reply: a cached reply is used only if
                it was given to the same repetition.
        """
        records = self.journal is not None or bool(self.observers)
        if not records and self.cache is None:  # what follows costs a noticeable part of a row
            return ProviderCall(place, request)
        key = None
        # A free reply that is always the same need not be recorded.
        if records and not self.providers[place].spec.is_instant_and_free:
            key = self._key(index, role, place, request, more)
        cache_key = None
        if self.cache is not None:
            cache_key = self.providers[place].cache_key(request)
            if again and cache_key is not None:
                mark = json.dumps(more, sort_keys=True, default=_kind_of)
                cache_key = retry_key(cache_key, mark)
        return ProviderCall(
            place, request, key, cache_key, self.refresh or self.needs_new_reply(index)
        )

    def hide_keys(self, value: Any) -> Any:
        """Return JSON data as it may be recorded: without what is surely a key of a provider."""
        return hide_in(value, self._keys)

    def _key(
        self, index: int, role: CallRole, place: int, request: Request, more: Sequence[Any]
    ) -> CallKey:
        is_blind = self.providers[place].spec.ignores_variables
        variables = None if is_blind else without_runtime_variables(request.vars)
        digest = question_digest(self._marks[place], request, *more, variables=variables)
        if digest is None:  # it cannot be identified again
            digest = secrets.token_bytes(16)
        return CallKey(self.task, index, role, digest, self.row_ids(index))

    def needs_new_reply(self, index: int) -> bool:
        """Return whether a row needs new replies instead of its earlier ones."""
        journal = self.journal
        return journal is not None and journal.resumed and journal.needs_new_reply(self.task, index)

    def may_have_reply(self, place: int) -> bool:
        """Return whether replies of a provider may be available without a call."""
        provider, journal = self.providers[place], self.journal
        if journal is not None and journal.resumed and not provider.spec.is_instant_and_free:
            return True
        return self.cache is not None and not self.refresh and provider.is_cacheable

    def has_reply(self, inquiry: ProviderCall) -> bool:
        """Return whether no own call is needed now: the reply is available, or in flight for another row."""
        if inquiry.key is not None and self._recalled(inquiry.key) is not None:
            return True
        if self.cache is None or inquiry.refresh or inquiry.cache_key is None:
            return False
        return self.cache.has(inquiry.cache_key)

    async def fetch(
        self, inquiry: ProviderCall, calls: Calls[Any], listener: CallObserver
    ) -> RecordedReply:
        """Return the reply, after all retries of the lane. A checkpoint unless it was recalled.

        Raises:
            CallError: The call failed.
            LaneClosedError: The lane accepts no more calls.
            BudgetError: The call needs more than is left of the budget.
            LimitError: A shared limit will never allow the call, or the limit server is unreachable.
            TooLateError: The job has ended, or its run's deadline has passed.
        """
        if inquiry.key is not None and (paid := self._recalled(inquiry.key)) is not None:
            listener.on_reply(paid, recalled=True)
            return paid
        if self.cache is None or inquiry.cache_key is None:
            paid = await self._call(inquiry, calls, listener)
        else:
            paid = await self._cached(self.cache, inquiry.cache_key, inquiry, calls, listener)
        if inquiry.key is not None and self.journal is not None:
            with calls.waiting():
                await self.journal.durable(urgent=calls.alone)
        return paid

    async def _cached(
        self,
        cache: ReplyCache,
        cache_key: bytes,
        inquiry: ProviderCall,
        calls: Calls[Any],
        listener: CallObserver,
    ) -> RecordedReply:
        """Return the reply of the cache, or of a call; recorded, but perhaps not durable yet."""
        own: RecordedReply | None = None

        async def fetch() -> RecordedReply:
            nonlocal own
            own = await self._call(inquiry, calls, listener)
            return own

        found = await cache.reply(
            cache_key,
            fetch,
            calls.waiting,
            refresh=inquiry.refresh,
            most_bytes=reply_bound(self.entries[inquiry.place].config),
        )
        if own is not None:
            return own
        paid = RecordedReply(_from_cache(found.reply), found.latency_ms, cached=True)
        if inquiry.key is not None:
            self._write(inquiry, inquiry.key, paid.reply, paid.latency_ms, cached=True)
        listener.on_reply(paid, recalled=False)
        return paid

    def recalled(self, inquiry: ProviderCall) -> RecordedReply | None:
        """Return the reply that an earlier execution of the run recorded, if any."""
        return None if inquiry.key is None else self._recalled(inquiry.key)

    def record(self, inquiry: ProviderCall, reply: Reply, latency_ms: float) -> None:
        """Record a reply that was obtained in another way than by `ask`."""
        if inquiry.key is not None:
            self._write(inquiry, inquiry.key, reply, latency_ms)

    def reject(self, inquiry: ProviderCall) -> None:
        """Discard an unusable reply so that it is not reused."""
        if self.cache is not None and inquiry.cache_key is not None:
            self.cache.drop(inquiry.cache_key)
        if self.journal is not None and inquiry.key is not None:
            self.journal.reject(inquiry.key)

    def _recalled(self, key: CallKey) -> RecordedReply | None:
        if self.journal is None or not self.journal.resumed:
            return None
        paid = self.journal.recorded_reply(key)
        if paid is not None:
            for observer in self.observers:
                observer.on_recall(key)
        return paid

    async def _call(
        self, inquiry: ProviderCall, calls: Calls[Any], listener: CallObserver
    ) -> RecordedReply:
        request = inquiry.request
        estimate = self.meter.estimate(
            inquiry.place, request.prompt, request.options, request.media
        )
        lane = self.lanes[inquiry.place]
        try:
            return await calls(
                lane,
                self._send,
                inquiry,
                estimate,
                listener,
                tokens=estimate.tokens,
                money=estimate.money,
                ahead=inquiry.ahead,
            )
        except LimitError as error:
            if lane not in self.meter.bounded_lanes:
                raise
            raise with_bounds(error, estimate) from error

    async def _send(
        self, inquiry: ProviderCall, estimate: CallEstimate, listener: CallObserver
    ) -> Metered[RecordedReply]:
        listener.on_request(estimate.tokens)
        request, job = inquiry.request, self._job(inquiry)
        if job is not None:
            request = attrs.evolve(request, job=job)
        started_at = trio.current_time()
        try:
            await trio.lowlevel.checkpoint_if_cancelled()  # else the provider would still be called
            reply = await self.providers[inquiry.place](request)
        except ProviderError as error:
            listener.on_failure(error, error.used(estimate.tokens, estimate.money)[0])
            self._check_bounds(inquiry.place, estimate, error.usage.in_all, error.money)
            if inquiry.key is not None:
                took_ms = (trio.current_time() - started_at) * 1000
                self._write(inquiry, inquiry.key, error, took_ms)
            raise
        paid = RecordedReply(reply, (trio.current_time() - started_at) * 1000, cached=False)
        if inquiry.key is not None:
            self._write(inquiry, inquiry.key, reply, paid.latency_ms)
        if job is not None:  # not before the reply is recorded, or a crash would lose both
            job.drop()
        listener.on_reply(paid, recalled=False)
        self.meter.learn(inquiry.place, estimate, reply.usage)
        tokens = reply.usage.in_all
        self._check_bounds(inquiry.place, estimate, tokens, reply.cost)
        if tokens is None and self.estimates and not self.meter.bounds_only:
            tokens = counted_tokens(inquiry.request.prompt, reply)
        return Metered(paid, tokens=tokens, money=reply.cost, hint=reply.hint)

    def _job(self, inquiry: ProviderCall) -> KeptJob | None:
        """Return the record of the job of a call; None if its provider keeps none, or nothing is recorded."""
        if inquiry.key is None or self.journal is None:
            return None
        return (
            self.journal.job(inquiry.key) if self.providers[inquiry.place].spec.keeps_jobs else None
        )

    def _check_bounds(
        self, place: int, estimate: CallEstimate, tokens: int | None, money: float | None
    ) -> None:
        """Learn from a call that used more than its reservation, and warn once for its provider."""
        if not self.meter.bounds_only and self.lanes[place] not in self.meter.bounded_lanes:
            return
        self.meter.learn_excess(place, estimate, tokens, money)
        is_own = isinstance(self.providers[place].spec.settings, CustomSettings)
        if self.meter.bounds_money and money is not None and money > estimate.money:
            excess = f"cost {money:.6g} US dollars, but only {estimate.money:.6g}"
            ways = "maxCost in its config" + (", or max_cost of own_provider," if is_own else "")
            self._warn_excess(place, excess, f"; set {ways} to the maximum cost of one call")
        if self.meter.bounds_tokens and tokens is not None and tokens > estimate.tokens:
            ways = "maxTokens in its config, or max_tokens of own_provider,"
            advice = f"; set {ways} to the maximum number of tokens of a reply" if is_own else ""
            self._warn_excess(place, f"used {tokens} tokens, but only {estimate.tokens}", advice)

    def _warn_excess(self, place: int, excess: str, advice: str) -> None:
        verb = excess.partition(" ")[0]
        if (place, verb) not in self._exceeded:
            self._exceeded.add((place, verb))
            self.warn(
                f"a call of {self.names[place]} {excess} were reserved: "
                f"the budget may be exceeded by the difference{advice}"
            )

    def _write(
        self,
        inquiry: ProviderCall,
        key: CallKey,
        answer: Reply | ProviderError,
        latency_ms: float,
        *,
        cached: bool = False,
    ) -> None:
        call = CallRecord(
            key=key,
            provider=self.names[inquiry.place],
            prompt=hide_in(inquiry.request.prompt, self._keys),
            answer=answer,
            latency_ms=latency_ms,
            cached=cached,
            model=self._models[inquiry.place],
        )
        if self.journal is not None:
            self.journal.call(call)
        for observer in self.observers:
            observer.on_call(call)


def _from_cache(reply: Reply) -> Reply:
    """Return a reply that was paid for before: all of its tokens count as cached, and it costs nothing."""
    total = reply.usage.in_all
    return attrs.evolve(reply, usage=Usage(cached=total, total=total), cost=0.0, hint=None)


def provider_digest(entry: ProviderEntry) -> str:
    """Return a digest of a provider's entry, without credentials.

    Values that are not JSON count by their type: they are different objects in each process.
    """
    named = entry.label if entry.own_id is None else [entry.own_id, entry.label]
    parts = [entry.id, named, _without_keys(entry.config), _without_keys(entry.env)]
    text = json.dumps(parts, sort_keys=True, default=_kind_of)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _kind_of(value: object) -> str:
    return type(value).__qualname__


def _without_keys(value: Any) -> Any:
    match value:
        case Mapping():
            return {
                str(name): _without_keys(part)
                for name, part in value.items()
                if not is_secret_name(str(name))
            }
        case list() | tuple():
            return [_without_keys(part) for part in value]
        case _:
            return value
