"""Functions of all adapters for exchanges: requests, statuses, JSON, metadata and reasoning.

Everything read here comes from a server: no field is assumed to exist or to have its type.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NoReturn

import trio

from trioeval.errors import ProviderError, ProviderErrorKind
from trioeval.providers.base import Guardrails, Reply, ToolCall
from trioeval.providers.config import is_integer
from trioeval.providers.http.endpoint import Endpoint, is_secret_header
from trioeval.providers.http.failures import (
    classify,
    clip,
    excerpt,
    failure_text,
    find_refusal,
    reply_text,
)
from trioeval.providers.http.rate_hints import read_hint
from trioeval.providers.http.streams import load_event, read_events
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest, request_source
from trioeval.providers.secrets import hide

FILTERED = "[filtered by the provider]"
"""The output if a content filter removed everything."""

NOT_JSON = object()
"""The result for a text that is not JSON."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a valid JSON value")


# A model's text is either JSON or not; a server's reply with a NaN is still a reply.
_STRICT = json.JSONDecoder(parse_constant=_refuse_constant)
_LENIENT = json.JSONDecoder(parse_constant=lambda _: None)


def is_success(reply: HttpReply) -> bool:
    """Return whether the status is a 2xx."""
    return HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES


def read_object(endpoint: Endpoint, reply: HttpReply) -> dict[str, Any]:
    """Return the JSON object in the body of a success.

    Raises:
        ProviderError: `malformed_reply`: the body is not a JSON object.
    """
    data = read_json(reply.body)
    if data is NOT_JSON:
        fault = "the reply is not JSON"
    elif not isinstance(data, dict):
        fault = "the reply is not a JSON object"
    else:
        return data
    raise failure(
        "malformed_reply",
        fault,
        reply,
        endpoint.secrets,
        model=endpoint.model,
        advice=f"check {endpoint.url_source}",
    )


def read_failure(endpoint: Endpoint, reply: HttpReply) -> Reply:
    """Return the reply for a refused prompt.

    Raises:
        ProviderError: For any other failure.
    """
    found = find_refusal(reply)
    if found is None:
        raise classify(
            reply,
            secrets=endpoint.secrets,
            host=endpoint.host,
            model=endpoint.model,
            key_source=endpoint.key_source,
            url_source=endpoint.url_source,
        )
    message = hide(found.message or FILTERED, endpoint.secrets)
    flags = hide(", ".join(found.flags or ()), endpoint.secrets)
    return Reply(
        text=message,
        hint=read_hint(reply.headers, host=endpoint.host),
        finish_reason="content_filter",
        refusal=message,
        guardrails=Guardrails(flagged=True, flagged_input=True, reason=flags or message),
        raw=read_json(reply.body),
        metadata=read_metadata(reply, {}),
    )


def read_json(body: bytes | str) -> Any:
    """Return the parsed text, or `NOT_JSON`.

    Values that files and terminals cannot hold are replaced: halves of surrogate pairs become "?". Infinities
    and NaN are not JSON in a text; in bytes, the body of a reply, they become null.
    """
    try:
        if isinstance(body, str):
            data = _STRICT.decode(body)
        else:
            data = _LENIENT.decode(body.decode(json.detect_encoding(body)))
        half = ("\\ud", "\\uD") if isinstance(body, str) else (b"\\ud", b"\\uD")
        if half[0] in body or half[1] in body:  # type: ignore[operator] # both are of one type
            data = json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return NOT_JSON
    return data


def read_accounts(reply: HttpReply) -> list[dict[str, Any]]:
    """Return the objects of a reply that may report its usage: the body, or those events of a stream.

    Args:
        reply: A reply of any status, or the part of a stream that has arrived.
    """
    if not reply.is_stream:
        data = read_json(reply.body)
        return [data] if isinstance(data, dict) else []
    # Most events are parts of a text, and need not be parsed.
    events = (one for one in read_events(reply.body) if "usage" in one.data)
    return [data for data in map(load_event, events) if isinstance(data, dict)]


def field(data: Any, *names: str) -> Any:
    """Return a field at the end of a path of names; None if any part is missing or not an object."""
    for name in names:
        if not isinstance(data, dict):
            return None
        data = data.get(name)
    return data


def count(data: Any, *names: str) -> int | None:
    """Return a field that is a whole number from 0 to the largest index; None for anything else."""
    value = field(data, *names)
    return value if is_integer(value) and 0 <= value <= sys.maxsize else None


def read_number(value: Any) -> float | None:
    """Return a finite number; None for any other value."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def text(data: Any, *names: str) -> str | None:
    """Return a field that is a non-empty text; None for anything else."""
    value = field(data, *names)
    return value if isinstance(value, str) and value else None


def objects(data: Any, *names: str) -> list[dict[str, Any]]:
    """Return the objects in a field that is a list; empty for anything else."""
    value = field(data, *names)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def read_metadata(reply: HttpReply, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return status, headers without credentials, and id and model if the body has them."""
    headers = {name: value for name, value in reply.headers.items() if not is_secret_header(name)}
    named = {name: data[name] for name in ("id", "model") if isinstance(data.get(name), str)}
    return {"http": {"status": reply.status, "headers": headers}, **named}


def failure(
    kind: ProviderErrorKind,
    fault: str,
    reply: HttpReply,
    secrets: Sequence[str],
    *,
    model: str = "",
    advice: str = "",
) -> ProviderError:
    """Return an error that names the URL of a reply and shows the beginning of its body, without secrets.

    Args:
        kind: The kind of error.
        fault: What is wrong with the reply.
        reply: The reply.
        secrets: Texts that neither message nor excerpt may contain.
        model: The model's name; empty if there is none.
        advice: What to check or change.
    """
    message = reply_text(reply, secrets, model=model, fault=hide(fault, secrets), advice=advice)
    return ProviderError(
        kind,
        message,
        status=reply.status,
        body_excerpt=excerpt(reply.body, secrets),
    )


def empty(
    field_name: str, answer: Reply, endpoint: Endpoint, reply: HttpReply, *, limit: str
) -> ProviderError:
    """Return the error for a reply without any content, not even an empty text; it still cost money.

    A reply that was cut off before any content is not retried: it would be cut off again.

    Args:
        field_name: The part that is empty.
        answer: The reply as far as it was read.
        endpoint: The endpoint that replied.
        reply: The HTTP reply.
        limit: The config key of the maximum length of a reply.
    """
    fault, is_cut_off = f"{field_name} is empty", answer.finish_reason == "length"
    if answer.finish_reason is not None:
        fault += f" (finish reason {clip(answer.finish_reason, endpoint.secrets)})"
    advice = f"raise {limit}, or shorten the prompt" if is_cut_off else ""
    return ProviderError(
        "empty_reply",
        reply_text(reply, endpoint.secrets, model=endpoint.model, fault=fault, advice=advice),
        status=reply.status,
        body_excerpt=excerpt(reply.body, endpoint.secrets),
        retries=0 if is_cut_off else None,
        usage=answer.usage,
        money=answer.cost,
        hint=answer.hint,
        finish_reason=answer.finish_reason,
    )


def attempt_timeout(source: str, timeout: float, setting: str = "timeoutMs") -> ProviderError:
    """Return the error for a call without a complete reply in time.

    Args:
        source: Method and URL, from `request_source`.
        timeout: Seconds.
        setting: The key of the suite that sets them.
    """
    title = f"no complete reply within {timeout:g} seconds from"
    advice = f"raise {setting}, or check that the server is not overloaded"
    return ProviderError("attempt_timeout", failure_text(title, source, advice=advice))


# Parts that every service has in some form.


def read_call(name: str, arguments: Any, call_id: str | None) -> ToolCall:
    """Return a tool call; arguments that are the text of a JSON object are parsed.

    Args:
        name: The name of the tool.
        arguments: Its arguments as the service sends them; None if it omits them.
        call_id: The service's id of the call; None if it has none.

    Example:
        >>> read_call("add", '{"a": 1}', "c1").arguments
        {'a': 1}
        >>> read_call("add", '{"a": ', "c1").arguments
        '{"a": '
    """
    if arguments is None or arguments == "":
        return ToolCall(
            name, {}, call_id
        )  # services omit the arguments of a function without parameters
    if isinstance(arguments, str) and isinstance(data := read_json(arguments), dict):
        arguments = data
    elif not isinstance(arguments, str | dict):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(name, arguments, call_id)


def joined(parts: Iterable[str | None], between: str) -> str | None:
    """Return the texts that are not empty as one; None if there are none."""
    return between.join(filter(None, parts)) or None


async def exchange(
    client: HttpClient,
    request: HttpRequest,
    timeout: float,  # noqa: ASYNC109 - configured in the suite, and reported as the failure of one attempt
    *,
    on_part: Callable[[bytes], object] | None = None,
) -> HttpReply:
    """Send a request and wait for its reply within a time limit. Always a checkpoint.

    Args:
        client: The HTTP client.
        request: The request to send.
        timeout: Seconds, > 0.
        on_part: Called with each part of the body when it arrives.

    Raises:
        ProviderError: See `HttpClient.send`; or `attempt_timeout`.
    """
    with trio.move_on_after(timeout):
        return await client.send(request, on_part=on_part)
    raise attempt_timeout(request_source(request.method, request.url), timeout)
