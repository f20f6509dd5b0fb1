# Apart from `providers.sdk.bedrock`: loaded when it is used.
"""Calls of boto3 from Trio: in threads, because it blocks.

A thread cannot be cancelled. A cancelled call leaves its thread behind, which ends by itself, at the latest
when its time for reading is over, and whose result nobody sees. Their number is bounded: threads that were
left behind count until they end, and further calls wait for them in turn.
"""

import base64
import json
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import boto3  # type: ignore[import-untyped]
import trio
from botocore import exceptions  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]

from trioeval.errors import ProviderError
from trioeval.providers.bounds import MOST_BYTES, check_marks, too_large
from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest, dated
from trioeval.providers.sdk.bedrock import Access

MAX_THREADS = 64
"""Calls that can be under way at a time, those left behind included."""

CONNECT_LIMIT = 10.0
"""Seconds to wait for a connection."""

NO_CREDENTIALS = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.TokenRetrievalError,
    exceptions.SSOError,
    exceptions.ProfileNotFound,
)


@asynccontextmanager
async def open_boto(access: Access, endpoint: Endpoint) -> AsyncGenerator[HttpClient]:
    """A client of Bedrock that lives as long as the provider that uses it.

    Raises:
        ProviderError: `auth`, if boto3 does not know the profile.
    """
    client = await trio.to_thread.run_sync(make_client, access, endpoint)
    try:
        yield BotoClient(client, endpoint.model, trio.CapacityLimiter(MAX_THREADS))
    finally:
        client.close()


def make_client(access: Access, endpoint: Endpoint) -> Any:
    """A client that never retries, and has no time limit that ends before the lane's. Blocks."""
    try:
        session = boto3.Session(
            aws_access_key_id=access.access_key_id,
            aws_secret_access_key=access.secret_access_key,
            aws_session_token=access.session_token,
            region_name=access.region,
            profile_name=access.profile,
        )
        return session.client(
            "bedrock-runtime",
            endpoint_url=access.url,
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                connect_timeout=CONNECT_LIMIT,
                # Begins later than the limit of the call, so that it ends only what was left behind.
                read_timeout=endpoint.timeout,
                max_pool_connections=MAX_THREADS,
            ),
        )
    except exceptions.BotoCoreError as error:
        raise _explain(error) from error


@attrs.frozen
class BotoClient:
    """Makes calls of Converse, each in a thread, and gives the reply as it was received.

    botocore's reading of it is not used: it drops what it does not know, and breaks in many ways on what it
    does not expect.
    """

    _client: Any = attrs.field(repr=False)
    _model: str
    threads: trio.CapacityLimiter
    _received: threading.local = attrs.field(factory=threading.local, repr=False, init=False)
    """`reply`: what the call of a thread got."""

    def __attrs_post_init__(self) -> None:
        event = "before-parse.bedrock-runtime.Converse"
        self._client.meta.events.register(event, self._receive)

    async def send(
        self,
        request: HttpRequest,
        *,
        heard: Callable[[bytes], object] | None = None,  # noqa: ARG002 - nothing is streamed
    ) -> HttpReply:
        """See `HttpClient.send`. On cancellation the thread is left behind."""
        return await trio.to_thread.run_sync(
            self._converse, request, abandon_on_cancel=True, limiter=self.threads
        )

    def _converse(self, request: HttpRequest) -> HttpReply:
        arguments = json.loads(request.body or b"{}")
        for message in arguments["messages"]:
            for block in message["content"]:
                _unpack(block)
        self._received.reply = None
        try:
            self._client.converse(modelId=self._model, **arguments)
        except Exception as error:
            # With a reply at hand, it says more than what botocore makes of it.
            if self._received.reply is None:
                raise _explain(error) from error
        reply: HttpReply = self._received.reply
        most = MOST_BYTES if request.max_reply_bytes is None else request.max_reply_bytes
        if len(reply.body) > most:
            message = too_large("bedrock-runtime", most)
            raise ProviderError("malformed_reply", message, status=reply.status)
        check_marks(reply.body, most, source="bedrock-runtime")
        return reply

    def _receive(self, response_dict: dict[str, Any], **_: object) -> None:
        headers = {name.lower(): text for name, text in response_dict["headers"].items()}
        self._received.reply = HttpReply(
            response_dict["status_code"], dated(headers, time.time()), response_dict["body"]
        )


def _unpack(block: Any) -> None:
    """Turn the base64 of an image or a document into the bytes that boto3 wants."""
    for media in block.values() if isinstance(block, dict) else ():
        source = media.get("source") if isinstance(media, dict) else None
        if isinstance(source, dict) and isinstance(source.get("bytes"), str):
            try:
                source["bytes"] = base64.b64decode(source["bytes"], validate=True)
            except ValueError as error:
                message = f"the bytes of a message are not base64: {error}"
                raise ProviderError("bad_request", message) from error


def _explain(error: Exception) -> ProviderError:
    """A failure without a reply."""
    match error:
        case exceptions.ParamValidationError():
            return ProviderError("bad_request", f"boto3 does not send the request: {error}")
        case exceptions.SSLError() if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return ProviderError("tls", str(error))
        case exceptions.HTTPClientError() | exceptions.ConnectionError():
            return ProviderError("connection", str(error))
        case _ if isinstance(error, NO_CREDENTIALS):
            return ProviderError("auth", str(error))
        case _:
            return ProviderError("unexpected", f"{type(error).__name__}: {error}")
