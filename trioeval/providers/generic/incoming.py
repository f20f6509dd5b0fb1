"""The reply of a service, read as the suite says: is it a success, what of it is the output."""

import re
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.errors import ProviderError
from trioeval.faults import ProviderErrorKind
from trioeval.providers.answers import NOT_JSON, is_success, read_json, read_metadata
from trioeval.providers.base import Reply
from trioeval.providers.classify import classify, excerpt
from trioeval.providers.generic.body import is_json_type
from trioeval.providers.generic.status import SUCCESS
from trioeval.providers.generic.transform import NOTHING, Answer
from trioeval.providers.hints import read_hints
from trioeval.providers.prices import Price
from trioeval.providers.programs.results import read_result
from trioeval.providers.secrets import hide, hide_in, surely_keys
from trioeval.providers.wire import HttpReply
from trioeval.rates.hints import RateHint

_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.-]+)", re.IGNORECASE)
_HTML = re.compile(r"\s*(?:text/html|application/xhtml\+xml)\b", re.IGNORECASE)


@attrs.frozen(kw_only=True)
class Reading:
    """How the replies of an entry are read."""

    statuses: frozenset[int] = attrs.field(default=SUCCESS, repr=False)
    """Those that are a success."""
    price: Price | None = None
    """What tokens cost where the reply does not say what the call did."""
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Texts that no error may contain."""
    filled_in: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Those of them that only this call knows, so that nobody else hides them."""
    host: str = ""
    """Who replies."""

    def check(self, reply: HttpReply) -> None:
        """Whether a reply is a success.

        Raises:
            ProviderError: It is none: what its status and body say, or `malformed_reply` for the status of
                a success that `validateStatus` does not accept.
        """
        if reply.status in self.statuses:
            return
        if is_success(reply):
            what = f"HTTP {reply.status} is not a status that validateStatus accepts"
            raise self.failure("malformed_reply", what, reply)
        raise classify(reply, secrets=self.secrets, host=self.host)

    def whole(self, reply: HttpReply, answer: Answer) -> Any:
        """The output where no transform says what it is: the JSON that the body is, or its text.

        Raises:
            ProviderError: The body is empty (`empty_reply`), tells of an error, is not the JSON that it
                says it is, or is a page for people (`malformed_reply`).
        """
        declared = reply.headers.get("content-type", "")
        if answer.json is NOTHING:
            if not answer.text.strip():
                raise self.failure("empty_reply", "the reply has no body", reply)
            if is_json_type(declared):
                raise self.failure(
                    "malformed_reply", "the reply says that it is JSON, and is not", reply
                )
            if _HTML.match(declared):
                what = "the reply is an HTML page; if that is meant, say transformResponse: text"
                raise self.failure("malformed_reply", what, reply)
            return answer.text
        if answer.json is None:
            raise self.failure("empty_reply", "the reply is null", reply)
        if isinstance(answer.json, Mapping) and answer.json.get("error"):
            raise classify(reply, secrets=self.secrets, host=self.host)
        return answer.json

    def finish(self, value: Any, reply: HttpReply, answer: Answer) -> Reply:
        """The reply that a value means: the output itself, or an object with `output` or `error`, and more.

        Raises:
            ProviderError: `unexpected`: the object tells of an error, or is not right.
        """
        keys = surely_keys(self.filled_in)
        value = hide_in(value, keys)
        if isinstance(value, Mapping) and ("output" in value or value.get("error")):
            told = read_result(value, "call_api", name="the reply")
        else:
            told = Reply(output=value)
        cost = told.cost
        if cost is None and self.price is not None:
            cost = self.price.cost(told.usage)
        hint = read_hints(reply.headers, host=self.host)
        return attrs.evolve(
            told,
            cost=cost,
            hint=None if hint == RateHint() else hint,
            raw=None if answer.json is NOTHING else hide_in(answer.json, keys),
            metadata={**hide_in(read_metadata(reply, {}), self.filled_in), **told.metadata},
        )

    def failure(self, kind: ProviderErrorKind, message: str, reply: HttpReply) -> ProviderError:
        """An error that names the URL and shows the beginning of the body."""
        where = f" (HTTP {reply.status} from {reply.source})" if reply.source else ""
        message = hide(f"{message}{where}", self.secrets)
        return ProviderError(
            kind, message, status=reply.status, body_excerpt=excerpt(reply.body, self.secrets)
        )


def read_answer(reply: HttpReply, variables: Mapping[str, Any]) -> Answer:
    """What a transform sees of a reply; its headers are without credentials."""
    data = read_json(reply.body)
    return Answer(
        json=NOTHING if data is NOT_JSON else data,
        text=_decode(reply),
        context={"response": read_metadata(reply, {})["http"], "vars": dict(variables)},
    )


def _decode(reply: HttpReply) -> str:
    found = _CHARSET.search(reply.headers.get("content-type", ""))
    try:
        return reply.body.decode(found[1] if found else "utf-8", "replace")
    except (LookupError, ValueError):
        return reply.body.decode("utf-8", "replace")
