"""The output in a reply: `transformResponse`, parsed once into an object that is applied to each reply.

The form determines the language:

* a member path from `json`, `text` or `context` (`json.choices[0].message.content`);
* JSONPath, which begins with `$`; a path for a single value returns that, any other a list of all;
* JMESPath, which begins with `jmespath:`;
* anything else is JavaScript, an expression or a function of `(json, text, context)`, run in a worker.

Expensive queries run in a worker as well: see `trioeval.scripting.queries.program`.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from trioeval.errors import ProviderError, ProviderErrorKind, TrioevalError
from trioeval.providers.base import Reply
from trioeval.providers.config import show
from trioeval.providers.generic.keys import SUCCESS
from trioeval.providers.generic.request import is_json_type
from trioeval.providers.http.failures import classify
from trioeval.providers.http.rate_hints import read_hint
from trioeval.providers.http.replies import NOT_JSON, failure, is_success, read_json, read_metadata
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.prices import Price
from trioeval.providers.programs.exec import read_result
from trioeval.providers.programs.workers import OutOfMemoryError, Workers, WorkerSpec
from trioeval.providers.secrets import hide_in, surely_keys
from trioeval.scripting import WORKER
from trioeval.scripting.engine import program as engine
from trioeval.scripting.javascript import Script
from trioeval.scripting.queries import program
from trioeval.usage import Usage

# The worker processes that run a provider's JavaScript.


WORKERS = 2
"""Maximum number of scripts, and of queries, of one provider or suite that run at once."""


def engine_workers(directory: Path, environ: Mapping[str, str]) -> WorkerSpec:
    """Return the specification of the workers that run scripts.

    Args:
        directory: Their working directory; absolute.
        environ: Their environment.
    """
    return WorkerSpec.of_own("JavaScript", engine.__file__, directory, environ, WORKERS)


def node_workers(directory: Path, environ: Mapping[str, str]) -> WorkerSpec:
    """Return the specification of the workers that run scripts which need Node.

    Args:
        directory: Their working directory; absolute.
        environ: Their environment.
    """
    return WorkerSpec.in_node("JavaScript", WORKER, "script:", directory, environ, workers=WORKERS)


NOTHING = object()
"""The result for a missing value."""

_MEMBER = r"""\??\.([A-Za-z_$][\w$]*)|(?:\?\.)?\[(?:(\d+)|'([^'\\]*)'|"([^"\\]*)")\]"""
_STEP = re.compile(_MEMBER)
_PATH = re.compile(rf"(json|text|context)((?:{_MEMBER})*)")
_JMESPATH = "jmespath:"
_FILE = "file://"


class TransformError(TrioevalError):
    """A transform without a result for this reply; the message says why."""


@attrs.frozen(kw_only=True)
class TransformInput:
    """The input of a transform."""

    json: Any
    """The parsed body; `NOTHING` if it is not JSON."""
    text: str
    context: Mapping[str, Any]
    """`response` (status and headers) and `vars`."""

    def arguments(self) -> list[Any]:
        """Return the three arguments for code as JSON data; a value that is not JSON is null, or its text."""
        data = None if self.json is NOTHING else self.json
        return [data, self.text, plain(self.context)]


def plain(data: Any) -> Any:
    """Convert data of a suite, such as variables, to JSON data: a date becomes its text."""
    return json.loads(json.dumps(data, default=str))


@attrs.frozen
class MemberPath:
    """A path of members, in the notation of JavaScript and Python."""

    written: str
    root: str
    steps: tuple[str | int, ...] = ()

    def apply(self, answer: TransformInput, /) -> Any:
        """Return the value at the end of the path.

        Raises:
            TransformError: The value is missing or null.
        """
        value = getattr(answer, self.root)
        for step in self.steps:
            value = _member(value, step)
        return _transformed(value, answer, self.written, needs_json=self.root == "json")


@attrs.frozen
class ReplyQuery:
    """A query of RFC 9535, or in the language of jmespath.org."""

    written: str
    language: program.Language

    def is_quick(self, size: int) -> bool:
        """Return whether it is fast enough to run while other tasks wait.

        Args:
            size: Size of the document as JSON, in bytes or characters.
        """
        return size <= program.CHEAP and program.is_cheap(self.language, self.written)

    def arguments(self, answer: TransformInput) -> list[Any]:
        """Return the arguments for `program.run`.

        Raises:
            TransformError: The reply is not JSON.
        """
        _transformed(answer.json, answer, self.written, needs_json=True)
        return [self.language, self.written, answer.json]

    def output(self, result: Mapping[str, Any]) -> Any:
        """Return the value that the query found; for a JSONPath of several values, the list of all.

        Args:
            result: The result of `program.run`.

        Raises:
            TransformError: It found nothing, or failed.
        """
        if "error" in result:
            raise self.failure(result["error"])
        values = result["values"]
        if not values or (result["singular"] and values[0] is None):
            raise TransformError(f"{self.written} finds nothing in the reply")
        return values[0] if result["singular"] else values

    def failure(self, why: str) -> TransformError:
        """Return the error for a failed query."""
        return TransformError(f"{self.written} fails: {why}")

    def apply(self, answer: TransformInput, /) -> Any:
        """Return the output of a cheap query, run in this process.

        Raises:
            TransformError: The query found nothing, or failed.
        """
        return self.output(program.run(*self.arguments(answer)))


Transform: TypeAlias = MemberPath | ReplyQuery
"""Finds the output in a reply."""


def read_transform(text: str, environ: Mapping[str, str] | None = None) -> Transform | Script | str:
    """Return the transform in a text, or its fault, for the sentence "it …".

    Args:
        text: As in the suite.
        environ: The environment in which Node is looked for; that of this process if None.
    """
    code = text.strip()
    if found := _PATH.fullmatch(code):
        steps = tuple(
            int(index) if index else name or single or double
            for name, index, single, double in _STEP.findall(found[2])
        )
        return MemberPath(code, found[1], steps)
    if code.startswith("$"):
        return _read_query("jsonpath", code, "JSONPath")
    if code.startswith(_JMESPATH):
        return _read_query("jmespath", code.removeprefix(_JMESPATH).strip(), "JMESPath")
    if code.startswith(_FILE):
        return "names a file that is neither Python nor JavaScript; use file://<file.py>, or the code itself"
    script = Script(code, ("json", "text", "context"))
    return script.fault(environ) or script


def script_output(script: Script, result: Mapping[str, Any]) -> Any:
    """Return the output of a script, from its engine's result.

    Raises:
            TransformError: It failed, or returned nothing.
    """
    shown = show(script.code)
    if "error" in result:
        raise TransformError(f"{shown} fails: {result['error']}")
    if result["value"] is None:
        raise TransformError(f"{shown} finds nothing in the reply")
    return result["value"]


def _transformed(
    value: Any, answer: TransformInput, written: str, *, needs_json: bool = False
) -> Any:
    if needs_json and answer.json is NOTHING:
        raise TransformError(f"the reply is not JSON, which {written} needs")
    if value is NOTHING or value is None:
        raise TransformError(f"{written} finds nothing in the reply")
    return value


def _member(value: Any, step: str | int) -> Any:
    match value, step:
        case Mapping(), str() if step in value:
            return value[step]
        case list(), int() if step < len(value):
            return value[step]
        case list(), "length":
            return len(value)
        case _:
            return NOTHING


def _read_query(language: program.Language, query: str, name: str) -> ReplyQuery | str:
    fault = program.fault(language, query)
    return ReplyQuery(query, language) if fault is None else f"is not a valid {name}: {fault}"


def query_workers(directory: Path, environ: Mapping[str, str]) -> WorkerSpec:
    """Return the specification of the workers that evaluate queries.

    Args:
        directory: Their working directory; absolute.
        environ: Their environment.
    """
    return attrs.evolve(
        WorkerSpec.of_own("the query", program.__file__, directory, environ, WORKERS),
        memory_mb=program.MEMORY_MB,
        largest=program.LARGEST,
        grace=0.0,
        limit_key=None,
    )


async def apply_query(
    query: ReplyQuery,
    answer: TransformInput,
    size: int,
    workers: Workers,
    *,
    limit: float = program.TIME_LIMIT,
) -> Any:
    """Return the result of a query. A checkpoint unless it is cheap.

    Args:
        query: The query.
        answer: The reply.
        size: Size of the document as JSON, in bytes or characters.
        workers: From `query_workers`.
        limit: Maximum seconds for a query that is not cheap, > 0.

    Raises:
        TransformError: It finds nothing, fails, or exceeds its time or memory.
    """
    if query.is_quick(size):
        return query.apply(answer)
    arguments = query.arguments(answer)
    try:
        return query.output(await workers.call(arguments, limit))
    except OutOfMemoryError as error:
        raise query.failure(f"it takes more than {program.MEMORY_MB} MiB of memory") from error
    except ProviderError as error:
        if error.kind == "attempt_timeout":
            raise query.failure(f"it takes longer than {limit:g} seconds") from error
        raise query.failure(error.message) from error


# The reply of a service, read as the suite configures it: success or failure, and the output.


_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.-]+)", re.IGNORECASE)
_HTML = re.compile(r"\s*(?:text/html|application/xhtml\+xml)\b", re.IGNORECASE)


_CHECK_REQUEST = "check the URL and the request"

KEY_SOURCE = "auth or headers in the config"
"""The place of the credential, for messages."""


@attrs.frozen(kw_only=True)
class ReplyReading:
    """The settings for reading the replies of an entry."""

    statuses: frozenset[int] = attrs.field(default=SUCCESS, repr=False)
    """Statuses of a success."""
    price: Price | None = None
    """Price of tokens if the reply does not report the cost of the call."""
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Texts that no error may contain."""
    filled_in: tuple[str, ...] = attrs.field(default=(), repr=False)
    """Those of the secrets that only this call knows, so that they are hidden only here."""
    host: str = ""
    """The host that replies."""

    def check(self, reply: HttpReply) -> None:
        """Raise unless a reply is a success.

        Raises:
            ProviderError: The failure in status and body, or `malformed_reply` for the status of a success
                that `validateStatus` does not accept.
        """
        if reply.status in self.statuses:
            return
        if is_success(reply):
            fault = "validateStatus does not accept this status"
            advice = "check the URL, or add the status to validateStatus"
            raise self.failure("malformed_reply", fault, reply, advice)
        raise self.classified(reply)

    def whole(self, reply: HttpReply, answer: TransformInput) -> Any:
        """Return the output without a transform: the JSON in the body, or its text.

        Raises:
            ProviderError: The body is empty (`empty_reply`), is an error, is not JSON despite its content
                type, or is an HTML page (`malformed_reply`).
        """
        declared = reply.headers.get("content-type", "")
        if answer.json is NOTHING:
            if not answer.text.strip():
                raise self.failure("empty_reply", "the reply has no body", reply, _CHECK_REQUEST)
            advice = "check the URL; if that is intended, set transformResponse: text"
            if is_json_type(declared):
                fault = "the reply is not JSON, despite its content-type"
                raise self.failure("malformed_reply", fault, reply, advice)
            if _HTML.match(declared):
                raise self.failure("malformed_reply", "the reply is an HTML page", reply, advice)
            return answer.text
        if answer.json is None:
            raise self.failure("empty_reply", "the reply is null", reply, _CHECK_REQUEST)
        if isinstance(answer.json, Mapping) and answer.json.get("error"):
            raise self.classified(reply)
        return answer.json

    def finish(self, value: Any, reply: HttpReply, answer: TransformInput) -> Reply:
        """Return the reply for a value: the output itself, or an object with `output` or `error`, and more.

        Raises:
            ProviderError: `unexpected`: the object has an error, or is invalid.
        """
        keys = surely_keys(self.filled_in)
        value = hide_in(value, keys)
        if isinstance(value, Mapping) and ("output" in value or value.get("error")):
            try:
                result = read_result(value, "call_api", name="the reply")
            except ProviderError as error:
                money = self._cost(error.usage, error.money)
                raise error.restated(error.message, money=money) from error
        else:
            result = Reply(output=value)
        return attrs.evolve(
            result,
            cost=self._cost(result.usage, result.cost),
            hint=read_hint(reply.headers, host=self.host),
            raw=None if answer.json is NOTHING else hide_in(answer.json, keys),
            metadata={**hide_in(read_metadata(reply, {}), self.filled_in), **result.metadata},
        )

    def _cost(self, usage: Usage, reported: float | None) -> float | None:
        if reported is not None or self.price is None:
            return reported
        return self.price.cost(usage)

    def classified(self, reply: HttpReply) -> ProviderError:
        """Return the error for a failed reply."""
        return classify(reply, secrets=self.secrets, host=self.host, key_source=KEY_SOURCE)

    def failure(
        self, kind: ProviderErrorKind, fault: str, reply: HttpReply, advice: str
    ) -> ProviderError:
        """Return an error that names the URL and shows the beginning of the body.

        Args:
            kind: The kind of error.
            fault: What is wrong with the reply.
            reply: The reply.
            advice: What to check or change.
        """
        return failure(kind, fault, reply, self.secrets, advice=advice)


def read_answer(reply: HttpReply, variables: Mapping[str, Any]) -> TransformInput:
    """Return the input of a transform for a reply; its headers are without credentials."""
    data = read_json(reply.body)
    return TransformInput(
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
