"""Calls of boto3 from Trio: in threads, because boto3 blocks.

A thread cannot be cancelled. A cancelled call abandons its thread, which ends by itself, at the latest at its
read timeout, and whose result is dropped. Their number is limited: abandoned threads count until they end,
and further calls wait for them.
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

from trioeval.errors import ProviderError, ProviderErrorKind
from trioeval.providers.bounds import MOST_BYTES, check_marks, too_large
from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.http.failures import failure_text
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest, dated, request_source
from trioeval.providers.sdk.bedrock import AwsAccess

MAX_THREADS = 64
"""Maximum number of concurrent calls, including abandoned ones."""

CONNECT_LIMIT = 10.0
"""Maximum seconds to wait for a connection."""

NO_CREDENTIALS = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.TokenRetrievalError,
    exceptions.SSOError,
    exceptions.ProfileNotFound,
)


@attrs.frozen
class BotoOperation:
    """The operation of a service that a provider calls."""

    service: str
    """Its name in boto3."""
    name: str
    """Its name in the API."""
    method: str
    """The method of boto3's client."""
    arguments: Callable[[str, HttpRequest], dict[str, Any]]
    """Returns the arguments of the method for a model and a request."""


def converse_arguments(model: str, request: HttpRequest) -> dict[str, Any]:
    """Return the arguments of Converse: the members of the body.

    Raises:
        ProviderError: `bad_request`: the bytes of a message are not base64.
    """
    arguments = json.loads(request.body or b"{}")
    for message in arguments["messages"]:
        for block in message["content"]:
            _unpack(block)
    return {"modelId": model, **arguments}


def invoke_arguments(model: str, request: HttpRequest) -> dict[str, Any]:
    """Return the arguments of InvokeEndpoint: the body as it is, and its types."""
    return {
        "EndpointName": model,
        "ContentType": request.headers["content-type"],
        "Accept": request.headers["accept"],
        "Body": request.body,
    }


CONVERSE = BotoOperation("bedrock-runtime", "Converse", "converse", converse_arguments)
INVOKE = BotoOperation("sagemaker-runtime", "InvokeEndpoint", "invoke_endpoint", invoke_arguments)


@asynccontextmanager
async def open_boto(
    access: AwsAccess, endpoint: Endpoint, operation: BotoOperation
) -> AsyncGenerator[HttpClient]:
    """Open a client of a service for the time of its provider.

    Raises:
        ProviderError: `auth`, if boto3 cannot find the profile.
    """
    client = await trio.to_thread.run_sync(make_client, access, endpoint, operation.service)
    try:
        yield BotoClient(client, endpoint.model, operation, trio.CapacityLimiter(MAX_THREADS))
    finally:
        client.close()


def make_client(access: AwsAccess, endpoint: Endpoint, service: str) -> Any:
    """Create a client without retries, and with no time limit shorter than the lane's. Blocks."""
    try:
        session = boto3.Session(
            aws_access_key_id=access.access_key_id,
            aws_secret_access_key=access.secret_access_key,
            aws_session_token=access.session_token,
            region_name=access.region,
            profile_name=access.profile,
        )
        return session.client(
            service,
            endpoint_url=access.url,
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                connect_timeout=CONNECT_LIMIT,
                # Starts later than the limit of the call, so it only ends abandoned calls.
                read_timeout=endpoint.timeout,
                max_pool_connections=MAX_THREADS,
            ),
        )
    except exceptions.BotoCoreError as error:
        raise _explain(error, request_source("POST", endpoint.url(""))) from error


@attrs.frozen
class BotoClient:
    """Calls an operation, each call in a thread, and returns replies as received.

    botocore's parsed result is not used: it drops unknown fields, and fails in many ways on unexpected
    ones.
    """

    _client: Any = attrs.field(repr=False)
    _model: str
    _operation: BotoOperation
    threads: trio.CapacityLimiter
    _received: threading.local = attrs.field(factory=threading.local, repr=False, init=False)
    """`reply`: the reply received by the call of this thread; `most`: the maximum bytes of its body."""

    def __attrs_post_init__(self) -> None:
        event = f"before-parse.{self._operation.service}.{self._operation.name}"
        self._client.meta.events.register(event, self._receive)

    async def send(
        self,
        request: HttpRequest,
        *,
        on_part: Callable[[bytes], object] | None = None,  # noqa: ARG002 - no streams
    ) -> HttpReply:
        """Send a request, as in `HttpClient.send`. On cancellation the thread is abandoned."""
        return await trio.to_thread.run_sync(
            self._call, request, abandon_on_cancel=True, limiter=self.threads
        )

    def _call(self, request: HttpRequest) -> HttpReply:
        arguments = self._operation.arguments(self._model, request)
        most = MOST_BYTES if request.max_reply_bytes is None else request.max_reply_bytes
        self._received.reply, self._received.most = None, most
        source = request_source(request.method, request.url)
        try:
            getattr(self._client, self._operation.method)(**arguments)
        except Exception as error:
            # A received reply says more than botocore's exception.
            if self._received.reply is None:
                raise _explain(error, source) from error
        reply: HttpReply = attrs.evolve(self._received.reply, source=source)
        if len(reply.body) > most:
            message = too_large(f"HTTP {reply.status} from {source}", most)
            raise ProviderError("malformed_reply", message, status=reply.status)
        check_marks(reply.body, most, source=f"HTTP {reply.status} from {source}")
        return reply

    def _receive(self, response_dict: dict[str, Any], **_: object) -> None:
        headers = {name.lower(): text for name, text in response_dict["headers"].items()}
        body = response_dict["body"]
        if not isinstance(body, bytes):  # the stream of an operation whose reply may have any form
            body = body.read(self._received.most + 1)
        self._received.reply = HttpReply(
            response_dict["status_code"], dated(headers, time.time()), body
        )


def _unpack(block: Any) -> None:
    """Decode the base64 of an image or a document to the bytes that boto3 expects."""
    for media in block.values() if isinstance(block, dict) else ():
        source = media.get("source") if isinstance(media, dict) else None
        if isinstance(source, dict) and isinstance(source.get("bytes"), str):
            try:
                source["bytes"] = base64.b64decode(source["bytes"], validate=True)
            except ValueError as error:
                message = f"the bytes of a message are not base64: {error}"
                raise ProviderError("bad_request", message) from error


def _explain(error: Exception, source: str) -> ProviderError:
    """Return the error for a failure without a reply.

    Args:
        error: The exception of boto3.
        source: Method and URL of the request.
    """
    kind: ProviderErrorKind
    match error:
        case exceptions.ParamValidationError():
            kind, title, advice = (
                "bad_request",
                "boto3 refused to send",
                "check the prompt and the config",
            )
        case exceptions.SSLError() if "CERTIFICATE_VERIFY_FAILED" in str(error):
            kind, title = "tls", "invalid certificate for"
            advice = "check config.endpointUrl, or set AWS_CA_BUNDLE to the certificates to trust"
        case (
            exceptions.HTTPClientError()
            | exceptions.ConnectionError()
            | exceptions.IncompleteReadError()
        ):
            kind, title = "connection", "no complete reply from"
            advice = "check config.region, config.endpointUrl and the network"
        case _ if isinstance(error, NO_CREDENTIALS):
            kind, title = "auth", "no AWS credentials for"
            advice = (
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment or in a file given "
                "with --env-file, or config.profile"
            )
        case _:
            kind, title, advice = "unexpected", f"{type(error).__name__} from boto3 for", ""
    return ProviderError(kind, failure_text(title, source, advice=advice, detail=str(error)))
