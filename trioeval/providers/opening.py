"""The providers of a run, open: what they share, and what holds for all of them.

Whoever opens providers here gets `Reply`s, whatever was written to answer: a plain text is a reply, an
exception that is no `ProviderError` is the failure `unexpected`, and no secret of any provider stands in
what comes back.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

from trioeval.errors import ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.local.custom import CustomProvider
from trioeval.providers.local.record import Recorder
from trioeval.providers.resolve import ProviderSpec
from trioeval.providers.secrets import hide_in, hide_in_error
from trioeval.providers.settings import Templates
from trioeval.providers.wire import HttpClient, TlsSettings


@asynccontextmanager
async def open_providers(
    specs: Sequence[ProviderSpec], templates: Templates, recorder: Recorder | None = None
) -> AsyncGenerator[tuple["OpenProvider", ...]]:
    """Open providers, in the order of `specs`, and close them with everything they opened.

    The HTTP library is imported if one of them needs it. Each is open once: entries that share a lane
    do not share a position in a recording.

    Args:
        specs: From `resolve`.
        templates: For configs that hold templates.
        recorder: Writes down all that they answer, under their names.

    Raises:
        ProviderError: One of them cannot be opened.
    """
    secrets = tuple(sorted({one for spec in specs for one in spec.secrets}, key=len, reverse=True))
    async with AsyncExitStack() as stack:
        shared = _Shared(templates, stack)
        opened = [await stack.enter_async_context(spec.settings.open(shared)) for spec in specs]
        yield tuple(
            OpenProvider(spec, CustomProvider(spec.id, provider), secrets, recorder)
            for spec, provider in zip(specs, opened, strict=True)
        )


@attrs.frozen
class OpenProvider:
    """A provider that always answers with a `Reply` or raises a `ProviderError`, without secrets."""

    spec: ProviderSpec
    """Where it comes from."""
    _provider: CustomProvider
    _secrets: tuple[str, ...] = attrs.field(repr=False)
    _recorder: Recorder | None = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request.

        Raises:
            ProviderError: The call failed.
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
            if answer is not None:  # None of a call that was cut off: it has no answer to repeat
                latency = trio.current_time() - started_at
                self._recorder.write(self.spec.name, request, answer, latency)
        return answer

    async def _answer(self, request: Request) -> Reply:
        secrets = self._secrets
        try:
            reply = await self._provider(request)
        except ProviderError as error:
            told = self._as_the_lane_sees(error)
            clean = hide_in_error(told, secrets) if secrets else told
            if clean is error:
                raise
            if clean is told:
                raise told from error
            # Without its causes: they tell what it must not.
            raise clean from None
        return hide_in_reply(reply, secrets) if secrets else reply

    def _as_the_lane_sees(self, error: ProviderError) -> ProviderError:
        """The same error, or one that says "too many calls", where the suite says that it means that."""
        if error.kind != "server" or error.status not in self.spec.overload_statuses:
            return error
        return ProviderError(
            "overloaded",
            error.message,
            status=error.status,
            retry_after=error.retry_after,
            body_excerpt=error.body_excerpt,
            retries=error.retries,
        )


def hide_in_reply(reply: Reply, secrets: Sequence[str]) -> Reply:
    """A reply without secrets; the same one if it has none."""
    output = hide_in(reply.output, secrets)
    raw = hide_in(reply.raw, secrets)
    metadata = hide_in(reply.metadata, secrets)
    if output is reply.output and raw is reply.raw and metadata is reply.metadata:
        return reply
    return attrs.evolve(reply, output=output, raw=raw, metadata=metadata)


@attrs.define(eq=False)
class _Shared:
    templates: Templates
    _stack: AsyncExitStack
    _clients: dict[TlsSettings | None, HttpClient] = attrs.field(factory=dict)

    async def http(self, tls: TlsSettings | None = None) -> HttpClient:
        client = self._clients.get(tls)
        if client is None:
            from trioeval.providers.http import open_http  # noqa: PLC0415 - costs more than a small run

            client = self._clients[tls] = await self._stack.enter_async_context(open_http(tls))
        return client
