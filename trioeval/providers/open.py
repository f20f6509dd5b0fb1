"""The open providers of a run: shared resources, and the guarantees for all of them.

Providers opened here always return a `Reply`: a plain string becomes a reply, an exception that is not a
`ProviderError` becomes the failure `unexpected`. Errors, headers and names of a call contain no known secret,
and replies contain nothing that is surely a key.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.providers.base import Guardrails, Reply, Request, ToolCall
from trioeval.providers.cache_key import Cacheable
from trioeval.providers.config import TemplateRenderer
from trioeval.providers.http.wire import TlsSettings, WebClient
from trioeval.providers.resolve import ProviderSpec
from trioeval.providers.secrets import hide, hide_in, hide_in_error, longest_first, surely_keys

if TYPE_CHECKING:
    from trioeval.providers.local.custom import CustomProvider


class CallRecorder(Protocol):
    """The receiver of each reply of a provider, such as a `Recorder`."""

    def write(
        self,
        provider: str,
        request: Request,
        answer: Reply | ProviderError,
        latency: float,
        *,
        position: int | None = None,
    ) -> None:
        """Record one call; see `Recorder.write`."""
        ...


@asynccontextmanager
async def open_providers(
    specs: Sequence[ProviderSpec],
    templates: TemplateRenderer,
    recorder: CallRecorder | None = None,
    *,
    tls: TlsSettings | None = None,
    hosts: frozenset[str] | None = None,
) -> AsyncGenerator[tuple[OpenProvider, ...]]:
    """Open providers, in the order of `specs`, and close them with everything they opened.

    The HTTP library is imported if one of them needs it. Each is opened separately: entries that share a
    lane do not share a position in a recording.

    Args:
        specs: From `resolve`.
        templates: Renders the templates of configs.
        recorder: Records all replies, by provider name.
        tls: TLS settings for servers whose config has none; None uses the defaults.
        hosts: The only hosts that requests may go to, if no entry runs code; None allows all.

    Raises:
        ProviderError: One of them cannot be opened.
    """
    from trioeval.providers.local.custom import CustomProvider

    secrets = longest_first(one for spec in specs for one in spec.secrets)
    async with AsyncExitStack() as stack:
        shared = _Shared(templates, stack, tls or TlsSettings(), hosts)
        opened = [await stack.enter_async_context(spec.settings.open(shared)) for spec in specs]
        yield tuple(
            OpenProvider(spec, position, CustomProvider(spec.name, provider), secrets, recorder)
            for position, (spec, provider) in enumerate(zip(specs, opened, strict=True))
        )


@attrs.frozen
class OpenProvider:
    """A provider that returns a `Reply` or raises a `ProviderError`, both without secrets."""

    spec: ProviderSpec
    """The spec it was opened from."""
    position: int
    """Its index among the providers opened together, ≥ 0."""
    _provider: CustomProvider
    _secrets: tuple[str, ...] = attrs.field(repr=False)
    _recorder: CallRecorder | None = attrs.field(repr=False)
    _cacheable: Cacheable | None = attrs.field(init=False, repr=False)

    @_cacheable.default
    def _find_cacheable(self) -> Cacheable | None:
        function = self._provider.function
        return function if isinstance(function, Cacheable) else None

    async def __call__(self, request: Request, /) -> Reply:
        """Send one request.

        Raises:
            ProviderError: The call failed; or its reply may hold a key and is nested too deeply to be
                searched (`malformed_reply`).
        """
        if self._recorder is None:
            return await self._answer(request)
        started_at = trio.current_time()
        answer: Reply | ProviderError | None = None
        try:
            answer = await self._answer(request)
        except ProviderError as error:
            answer = error
            raise
        finally:
            if answer is not None:  # None for a cancelled call: it has no reply to record
                latency = trio.current_time() - started_at
                self._record(self._recorder, request, answer, latency)
        return answer

    @property
    def is_cacheable(self) -> bool:
        """True if `cache_key` may return a key for any request."""
        return self._cacheable is not None

    def cache_key(self, request: Request) -> bytes | None:
        """Return the cache key for the reply to a request; None if the reply must not be reused.

        Equal for two requests if and only if everything that decides the reply is equal. The first 32 bytes
        identify the request; the provider's name follows. Not a checkpoint; takes about 50 microseconds.
        """
        if self._cacheable is None:
            return None
        try:
            question = self._cacheable.cache_identity(request)
        except ProviderError:  # raised again by the call itself
            return None
        if question is None:
            return None
        return question.key(secrets=self.spec.secrets, repeat=request.repeat_index)

    def _record(
        self,
        recorder: CallRecorder,
        request: Request,
        answer: Reply | ProviderError,
        latency: float,
    ) -> None:
        """Record a call without secrets: an id may be a URL with a key.

        A recording is found by its prompt, so only texts that are surely keys are hidden there.
        """
        name = hide(self.spec.name, self._secrets)
        prompt = hide_in(request.prompt, surely_keys(self._secrets))
        request = attrs.evolve(request, prompt=prompt)
        recorder.write(name, request, answer, latency, position=self.position)

    async def _answer(self, request: Request) -> Reply:
        try:
            if request.media:
                request = await _with_bytes(request)
            reply = await self._provider(request)
        except ProviderError as error:
            failure = error
        else:
            return self._clean(reply)
        # Outside of the handler, so that the original failure is not the context of a clean one.
        labelled = self._with_label(self._as_the_lane_sees(failure))
        clean = hide_in_error(labelled, self._secrets)
        if clean is labelled and labelled is not failure:
            raise labelled from failure
        raise clean

    def _clean(self, reply: Reply) -> Reply:
        try:
            return hide_in_reply(reply, self._secrets) if self._secrets else reply
        except RecursionError:
            pass
        raise ProviderError(
            "malformed_reply",
            "the reply is nested too deeply to be searched for keys",
            usage=reply.usage,
            money=reply.cost,
        )

    def _with_label(self, error: ProviderError) -> ProviderError:
        """Return the error with the entry's label in place of the provider's own name, if it has one."""
        label, own = self.spec.label, self.spec.settings.own_name
        if label is None or not own or not error.message.startswith(own):
            return error
        return error.restated(f"{label}{error.message.removeprefix(own)}")

    def _as_the_lane_sees(self, error: ProviderError) -> ProviderError:
        """Return the error, as `overloaded` if the suite lists its status in `overloadStatuses`."""
        if error.kind != "server" or error.status not in self.spec.overload_statuses:
            return error
        return error.restated(error.message, kind="overloaded")


async def _with_bytes(request: Request) -> Request:
    from trioeval.providers.media import with_bytes  # most requests have none

    return await trio.to_thread.run_sync(with_bytes, request, abandon_on_cancel=True)


def hide_in_reply(reply: Reply, secrets: Sequence[str]) -> Reply:
    """Return a reply without secrets; the same object if it has none.

    Raises:
        RecursionError: It may hold one, and is nested too deeply to be searched.
    """
    keys = surely_keys(secrets)
    clean = {
        "output": hide_in(reply.output, keys),
        "raw": hide_in(reply.raw, keys),
        "text": hide_in(reply.own_text, keys),
        "tool_calls": _hide_in_calls(reply.tool_calls, keys),
        "reasoning": hide_in(reply.reasoning, keys),
        "refusal": hide_in(reply.refusal, keys),
        "finish_reason": hide_in(reply.finish_reason, keys),
        "guardrails": _hide_in_guardrails(reply.guardrails, keys),
        "metadata": hide_in(reply.metadata, secrets),
    }
    kept = {**{name: getattr(reply, name) for name in clean}, "text": reply.own_text}
    if all(value is kept[name] for name, value in clean.items()):
        return reply
    return attrs.evolve(reply, **clean)


def _hide_in_calls(calls: tuple[ToolCall, ...], keys: Sequence[str]) -> tuple[ToolCall, ...]:
    clean = [hide_in([call.name, call.arguments, call.id], keys) for call in calls]
    hidden = tuple(ToolCall(*parts) for parts in clean)
    return calls if hidden == calls else hidden


def _hide_in_guardrails(guardrails: Guardrails | None, keys: Sequence[str]) -> Guardrails | None:
    reason = None if guardrails is None else hide_in(guardrails.reason, keys)
    if guardrails is None or reason is guardrails.reason:
        return guardrails
    return attrs.evolve(guardrails, reason=reason)


@attrs.define(eq=False, repr=False)
class _Shared:
    templates: TemplateRenderer
    _stack: AsyncExitStack
    _tls: TlsSettings
    _hosts: frozenset[str] | None
    _clients: dict[TlsSettings, WebClient] = attrs.field(factory=dict)

    @property
    def runs_code(self) -> bool:
        return self._hosts is None

    async def http(self, tls: TlsSettings | None = None) -> WebClient:
        usual = self._tls
        tls = (
            usual if tls is None else attrs.evolve(tls, ca=tls.ca or usual.ca, verify=usual.verify)
        )
        client = self._clients.get(tls)
        if client is None:
            from trioeval.providers.http.client import open_http

            opening = open_http(tls, hosts=self._hosts)
            client = self._clients[tls] = await self._stack.enter_async_context(opening)
        return client
