"""The one way in which rows ask: those that are tested, and judges.

A reply is looked for where an earlier execution of the run wrote it down, then in the cache; only then is a
call made, through the lane of whoever is asked. What an earlier execution paid for counts as if it were paid
for now, so that a run that was cut in two adds up to the same; what comes from the cache costs nothing. For
neither is there a request, so neither takes a slot, waits for the pace of a lane, or uses anything of a
budget.

Every call that ends is written down in the step in which it ends: each attempt of its own, whether it was
answered or failed. Nothing is awaited in between, so a reply is kept whatever then befalls the row: a test
that fails and needs no more judges, or a timeout. The row goes on when its reply is durable, so nothing that
depends on a reply has begun if the end of the program takes it: no grading, no next turn, no other row. The
wait holds no slot, and is no working time. Only of those that always answer the same and at no price (`echo`)
nothing is kept but the row.

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
    Paid,
    RecordObserver,
    question_digest,
)
from trioeval.evaluation.metering import Estimate, Meter, counted_tokens, with_bounds
from trioeval.evaluation.prompt import kept
from trioeval.kernel import Calls, Metered
from trioeval.providers import OpenProvider, Reply, Request, Usage
from trioeval.providers.base import Asked
from trioeval.providers.bounds import MOST_BYTES, reply_bound
from trioeval.providers.cache_key import asked_again
from trioeval.providers.secrets import hide, hide_in, is_secret_name, longest_first, surely_keys
from trioeval.suite.model import ProviderEntry

# What tasks know of a cache of replies. Keys come from providers; see `OpenProvider.cache_key`.


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


_log = logging.getLogger("trioeval.run")


@attrs.define(eq=False)
class Inquiry:
    """One question of one row."""

    place: int
    """Among the providers, of who is asked."""
    request: Request
    key: CallKey | None = None
    """What the journal knows it by; None where nothing is recorded, and where asking costs nothing."""
    cache_key: bytes | None = None
    """What the cache knows it by; None where it has to be asked."""
    refresh: bool = False
    """Whether it is asked anew, and what the cache has is replaced."""


class Listener(Protocol):
    """Who is told what becomes of a question, each time in the step in which it happens."""

    def sent(self, tokens: int, /) -> None:
        """A request is made, which may be paid for whatever becomes of it.

        Args:
            tokens: What it may use, and counts as where nothing is ever heard of it.
        """
        ...

    def failed(self, error: ProviderError, tokens: int, /) -> None:
        """It failed.

        Args:
            error: How; knows what was used all the same, as far as the provider has told it.
            tokens: What it counts as.
        """
        ...

    def heard(self, paid: Paid, /, *, recalled: bool) -> None:
        """There is a reply.

        Args:
            paid: It.
            recalled: Whether an earlier execution of the run got it.
        """
        ...


@attrs.frozen(kw_only=True)
class Asker:
    """Where the replies to the rows of one task come from."""

    providers: Sequence[OpenProvider]
    """Those that are tested, and behind them judges."""
    entries: Sequence[ProviderEntry]
    """What the suite says of each."""
    lanes: Sequence[str]
    """The lane of each."""
    meter: Meter
    row_ids: Callable[[int], str]
    """Gives the id of a row by its index, see `RowIds`; asked only where calls are recorded."""
    task: str | None = None
    journal: Journal | None = None
    observers: Sequence[RecordObserver] = ()
    cache: ReplyCache | None = None
    refresh: bool = False
    """Whether everything is asked anew, and what the cache has is replaced."""
    estimates: bool = False
    """Whether a call whose tokens its provider does not tell counts by its length, and gives back the rest of
    what it reserved; where a budget has to hold, it keeps all of that in any case."""
    warn: Callable[[str], None] = attrs.field(default=_log.warning, repr=False)
    """Called with what goes wrong and fails no row."""
    names: Sequence[str] = attrs.field(init=False)
    """What each is called, without secrets."""
    _asked: Sequence[Asked] = attrs.field(init=False, repr=False)
    _keys: tuple[str, ...] = attrs.field(init=False, repr=False)
    _marks: Sequence[str] = attrs.field(init=False, repr=False)
    _exceeded: set[int] = attrs.field(init=False, factory=set, repr=False)
    """Who was warned of, because a call has cost more than was reserved for it."""

    @names.default
    def _find_names(self) -> Sequence[str]:
        return [hide(one.spec.name, one.spec.secrets) for one in self.providers]

    @_asked.default
    def _find_asked(self) -> Sequence[Asked]:
        return [one.spec.asked for one in self.providers]

    @_keys.default
    def _find_keys(self) -> tuple[str, ...]:
        every = longest_first(secret for one in self.providers for secret in one.spec.secrets)
        return surely_keys(every)

    @_marks.default
    def _find_marks(self) -> Sequence[str]:
        return [mark_of(entry) for entry in self.entries]

    def inquiry(
        self,
        index: int,
        role: CallRole,
        place: int,
        request: Request,
        *more: Any,
        again: bool = False,
    ) -> Inquiry:
        """A question.

        Args:
            index: Of the row that pays for it.
            role: Who is asked.
            place: Of who is asked among the providers.
            request: What they are asked.
            *more: JSON data that tells it from equal ones of its row.
            again: Whether it was asked before, and another reply is wanted: one that the cache has is only
                used if it was given to the same question at the same place.
        """
        records = self.journal is not None or bool(self.observers)
        if not records and self.cache is None:  # a row costs as much as a few such looks
            return Inquiry(place, request)
        key = None
        # Nothing would be lost with a reply that is always the same and at no price.
        if records and not self.providers[place].spec.answers_for_nothing:
            key = self._key(index, role, place, request, more)
        cache_key = None
        if self.cache is not None:
            cache_key = self.providers[place].cache_key(request)
            if again and cache_key is not None:
                mark = json.dumps(more, sort_keys=True, default=_kind_of)
                cache_key = asked_again(cache_key, mark)
        return Inquiry(place, request, key, cache_key, self.refresh or self.asks_anew(index))

    def without_keys(self, value: Any) -> Any:
        """JSON data as it may be written down: without what is surely a key of a provider."""
        return hide_in(value, self._keys)

    def _key(
        self, index: int, role: CallRole, place: int, request: Request, more: Sequence[Any]
    ) -> CallKey:
        is_blind = self.providers[place].spec.ignores_variables
        variables = None if is_blind else kept(request.vars)
        digest = question_digest(self._marks[place], request, *more, variables=variables)
        if digest is None:  # nobody will know it again
            digest = secrets.token_bytes(16)
        return CallKey(self.task, index, role, digest, self.row_ids(index))

    def asks_anew(self, index: int) -> bool:
        """Whether other replies are wanted for a row than those that it had."""
        journal = self.journal
        return journal is not None and journal.resumed and journal.asks_anew(self.task, index)

    def may_have(self, place: int) -> bool:
        """Whether there may be replies of a provider that need no call."""
        provider, journal = self.providers[place], self.journal
        if journal is not None and journal.resumed and not provider.spec.answers_for_nothing:
            return True
        return self.cache is not None and not self.refresh and provider.is_cacheable

    def is_there(self, inquiry: Inquiry) -> bool:
        """Whether no call of its own is needed now: the reply is there, or on its way to others."""
        if inquiry.key is not None and self._recalled(inquiry.key) is not None:
            return True
        if self.cache is None or inquiry.refresh or inquiry.cache_key is None:
            return False
        return self.cache.has(inquiry.cache_key)

    async def ask(self, inquiry: Inquiry, calls: Calls[Any], listener: Listener) -> Paid:
        """The reply, after all retries of the lane. A checkpoint unless it was recalled.

        Raises:
            CallError: It failed.
            LaneClosedError: The lane serves no more calls.
            BudgetError: The call needs more than the budget has left.
            LimitError: A shared limit will never allow the call, or its keeper cannot be asked.
            TooLateError: The job is over, or its run's deadline has passed.
        """
        if inquiry.key is not None and (paid := self._recalled(inquiry.key)) is not None:
            listener.heard(paid, recalled=True)
            return paid
        paid = await self._fetched(inquiry, calls, listener)
        if inquiry.key is not None and self.journal is not None:
            with calls.waiting():
                await self.journal.durable()
        return paid

    async def _fetched(self, inquiry: Inquiry, calls: Calls[Any], listener: Listener) -> Paid:
        """The reply of a call, or of the cache; written down, but perhaps not durable yet."""
        cache, cache_key = self.cache, inquiry.cache_key
        if cache is None or cache_key is None:
            return await self._call(inquiry, calls, listener)
        own: Paid | None = None

        async def fetch() -> Paid:
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
        paid = Paid(_from_cache(found.reply), found.latency_ms, cached=True)
        if inquiry.key is not None:
            self._write(inquiry, inquiry.key, paid.reply, paid.latency_ms, cached=True)
        listener.heard(paid, recalled=False)
        return paid

    def recalled(self, inquiry: Inquiry) -> Paid | None:
        """The reply that an earlier execution of the run has written down, if any."""
        return None if inquiry.key is None else self._recalled(inquiry.key)

    def note(self, inquiry: Inquiry, reply: Reply, latency_ms: float) -> None:
        """Write down a reply that was got in another way than by `ask`."""
        if inquiry.key is not None:
            self._write(inquiry, inquiry.key, reply, latency_ms)

    def reject(self, inquiry: Inquiry) -> None:
        """Nothing came of the reply to a question: nobody is given it again."""
        if self.cache is not None and inquiry.cache_key is not None:
            self.cache.drop(inquiry.cache_key)
        if self.journal is not None and inquiry.key is not None:
            self.journal.reject(inquiry.key)

    def _recalled(self, key: CallKey) -> Paid | None:
        if self.journal is None or not self.journal.resumed:
            return None
        paid = self.journal.recall(key)
        if paid is not None:
            for observer in self.observers:
                observer.on_recall(key)
        return paid

    async def _call(self, inquiry: Inquiry, calls: Calls[Any], listener: Listener) -> Paid:
        request = inquiry.request
        estimate = self.meter.estimate(inquiry.place, request.prompt, request.options)
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
            )
        except LimitError as error:
            if lane not in self.meter.bounded_lanes:
                raise
            raise with_bounds(error, estimate) from error

    async def _send(
        self, inquiry: Inquiry, estimate: Estimate, listener: Listener
    ) -> Metered[Paid]:
        listener.sent(estimate.tokens)
        started_at = trio.current_time()
        try:
            await trio.lowlevel.checkpoint_if_cancelled()  # a provider would be asked all the same
            reply = await self.providers[inquiry.place](inquiry.request)
        except ProviderError as error:
            listener.failed(error, error.used(estimate.tokens, estimate.money)[0])
            if inquiry.key is not None:
                took_ms = (trio.current_time() - started_at) * 1000
                self._write(inquiry, inquiry.key, error, took_ms)
            raise
        paid = Paid(reply, (trio.current_time() - started_at) * 1000, cached=False)
        if inquiry.key is not None:
            self._write(inquiry, inquiry.key, reply, paid.latency_ms)
        listener.heard(paid, recalled=False)
        self.meter.learn(inquiry.place, estimate, reply.usage)
        self._check_cost(inquiry.place, estimate, reply)
        tokens = reply.usage.in_all
        if tokens is None and self.estimates and not self.meter.bounds_only:
            tokens = counted_tokens(inquiry.request.prompt, reply)
        return Metered(paid, tokens=tokens, money=reply.cost, hint=reply.hint)

    def _check_cost(self, place: int, estimate: Estimate, reply: Reply) -> None:
        """Warn once of a provider whose call has cost more than was reserved for it from a budget."""
        if not self.meter.bounds_money or reply.cost is None or reply.cost <= estimate.money:
            return
        if place not in self._exceeded:
            self._exceeded.add(place)
            self.warn(
                f"a call of {self.names[place]} has cost {reply.cost:.6g} US dollars, and "
                f"{estimate.money:.6g} were reserved for it: the budget may be exceeded by the difference; "
                "set maxCost of its config to the most that one call may cost"
            )

    def _write(
        self,
        inquiry: Inquiry,
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
            asked=self._asked[inquiry.place],
        )
        if self.journal is not None:
            self.journal.call(call)
        for observer in self.observers:
            observer.on_call(call)


def _from_cache(reply: Reply) -> Reply:
    """A reply that was paid for before: all of its tokens are cached ones, and it costs nothing."""
    total = reply.usage.in_all
    return attrs.evolve(reply, usage=Usage(cached=total, total=total), cost=0.0, hint=None)


def mark_of(entry: ProviderEntry) -> str:
    """A digest of all that a suite says of a provider that may change its replies, but for credentials.

    What is no JSON counts by its type: it is another object in each process.
    """
    said = [entry.id, entry.label, _without_keys(entry.config), _without_keys(entry.env)]
    text = json.dumps(said, sort_keys=True, default=_kind_of)
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
