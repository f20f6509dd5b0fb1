"""The provider interface: an async callable that takes one request and returns one reply, or raises.

A provider sends one request and closes everything it opened. It neither retries nor limits calls: the
lane does. Cancelling the call ends it at once.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from trioeval.errors import UsageError
from trioeval.rates.throttle import RateHint
from trioeval.usage import Usage


@attrs.frozen(kw_only=True)
class ModelIdentity:
    """The identity of a model and its server, as far as it is known before a call. Holds no secret."""

    id: str
    """The provider's id in the suite."""
    family: str | None = None
    """The kind of service, such as `openai` or `azure`; None for a provider that is not a service."""
    model: str | None = None
    """The model's name at the service."""
    host: str | None = None
    """The server's host."""
    port: int | None = None
    """The server's port; None without a host."""


@attrs.frozen(kw_only=True)
class Request:
    """One request to a provider."""

    prompt: str
    """The rendered prompt text; chat prompts are their JSON or YAML text."""
    vars: Mapping[str, Any] = attrs.field(factory=dict)
    """The variables of the test, for providers that read them."""
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """Config keys that differ for this one call."""
    test_idx: int = 0
    prompt_idx: int = 0
    repeat_index: int = 0
    describe_row: Callable[[], Mapping[str, Any]] | None = attrs.field(
        default=None, eq=False, repr=False
    )
    """Returns the prompt and the test of its row as JSON data, for programs; None for a judge's request. A
    function, because only programs need them."""
    media: tuple["Media", ...] = ()
    """Media whose URIs are in the prompt with a mark; `inlined` replaces these by the bytes."""
    job: "KeptJob | None" = attrs.field(default=None, eq=False, repr=False)
    """The record of the job that the call creates at its service, for providers of such jobs; None if nothing
    is recorded."""


class KeptJob(Protocol):
    """The record of a job that a call has paid for, by which a later attempt finds it again."""

    def find(self) -> str | None:
        """Return the name of the job that an earlier attempt created, also one of a run that was killed."""
        ...

    def note(self, name: str, /) -> None:
        """Record the name of a new job."""
        ...

    async def keep(self, name: str, /) -> None:
        """Record the name of a new job, and wait until the record is durable."""
        ...

    def drop(self) -> None:
        """Remove the record: the job has ended without a usable reply."""
        ...


MEDIA_SCHEME = "trioeval://media/"
"""The beginning of the URIs that stand for media in outputs and prompts."""

DATA_MARK = "#data"
"""The end of a URI in a prompt in whose place a request has the bytes as a `data:` URI."""

BASE64_MARK = "#base64"
"""The end of a URI in a prompt in whose place a request has the bytes in base64."""


@attrs.define(repr=False)
class Media:
    """An image, audio or video of a reply: what it is, and where its bytes are.

    Example:
        >>> Media.of(b"GIF89a...").mime_type
        'image/gif'
    """

    mime_type: str
    """`image/png`, `audio/wav`, …, as its bytes show."""
    sha256: str
    """Digest of its bytes, in hexadecimal digits."""
    size: int
    """Number of bytes."""
    path: Path | None = attrs.field(default=None, eq=False, kw_only=True)
    """Its file; None until it is stored."""
    data: bytes | None = attrs.field(default=None, eq=False, kw_only=True)
    """Its bytes; None if only the file has them."""

    @classmethod
    def of(cls, data: bytes) -> "Media":
        """Return bytes as media; their type is read from their beginning.

        Raises:
            UsageError: The format is not supported.
        """
        from trioeval.providers.media import read_media

        return read_media(data)

    def __repr__(self) -> str:
        return f"<Media {self.mime_type} {self.size} bytes {self.sha256[:12]}>"

    @property
    def kind(self) -> str:
        """`image`, `audio` or `video`."""
        return self.mime_type.partition("/")[0]

    @property
    def file(self) -> str:
        """The name of its file: the digest, and the ending of its type."""
        from trioeval.providers.media import TYPES

        return f"{self.sha256}.{TYPES[self.mime_type]}"

    @property
    def uri(self) -> str:
        """The text that stands for it in outputs: `trioeval://media/<file>`."""
        return MEDIA_SCHEME + self.file

    def read(self) -> bytes:
        """Return its bytes. Blocks shortly.

        Raises:
            OSError: Its file cannot be read.
            ValueError: Its file is not the one that was stored, or it has none.
        """
        import hashlib

        data, path = self.data, self.path  # in this order: storing sets the path first
        if data is not None:
            return data
        if path is None:
            raise ValueError(f"the bytes of {self.uri} are not available")
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise ValueError(f"{path} is not the file that was stored")
        return data

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data, without its bytes."""
        return {
            "kind": self.kind,
            "mimeType": self.mime_type,
            "bytes": self.size,
            "sha256": self.sha256,
            "file": self.file,
            "uri": self.uri,
        }


@attrs.frozen(kw_only=True)
class Guardrails:
    """The result of the provider's own content filters for prompt and reply."""

    flagged: bool
    flagged_input: bool = False
    flagged_output: bool = False
    reason: str | None = None


@attrs.frozen
class ToolCall:
    """A call of a tool that a model requests, in the same form for all services.

    Example:
        >>> ToolCall("add", {"a": 2, "b": 2}).arguments["a"]
        2
    """

    name: str
    arguments: Any = attrs.field(factory=dict)
    """An object; the text as the model wrote it if that is not a JSON object."""
    id: str | None = None
    """The service's id, which the tool's result repeats; None if it has none."""

    def to_json(self) -> dict[str, Any]:
        """Return the call as JSON data, which `ToolCall(**data)` reads."""
        known = {} if self.id is None else {"id": self.id}
        return {**known, "name": self.name, "arguments": self.arguments}

    def to_chat(self) -> dict[str, Any]:
        """Return the call in the form of chat completions."""
        written = self.arguments
        if not isinstance(written, str):
            written = json.dumps(written, ensure_ascii=False)
        known = {} if self.id is None else {"id": self.id}
        function = {"name": self.name, "arguments": written}
        return {**known, "type": "function", "function": function}


_NOT_REPORTED = Usage()


@attrs.frozen(kw_only=True)
class Reply:
    """The result of one call to a provider.

    A provider gives what its service has sent: `text`, `tool_calls`, `refusal`; or `output`, for data such as
    parsed JSON or the vector of an embedding. Each follows from the other.

    Example:
        >>> Reply(text="It is 4.").output
        'It is 4.'
        >>> Reply(output="It is 4.").text
        'It is 4.'
        >>> Reply(tool_calls=(ToolCall("add", {"a": 2}),)).output
        [{'type': 'function', 'function': {'name': 'add', 'arguments': '{"a": 2}'}}]
        >>> Reply(refusal="I cannot help with that.").is_refusal
        True
    """

    output: Any = None
    """The value that assertions check, and that result files contain: a text or JSON data. If left out, it
    follows from text, tool calls and refusal; None if there are none, which is an empty reply."""
    _text: str | None = attrs.field(default=None, repr=False)
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools that the model requests, in order."""
    reasoning: str | None = attrs.field(default=None, repr=False)
    """The model's reasoning, or the service's summary of it; None if the reply has none."""
    finish_reason: str | None = None
    """`stop`, `length`, `tool_calls`, `content_filter`, or the provider's term in lower case."""
    refusal: str | None = None
    """The model's words or the filter's reason if the service reports a refusal; otherwise None."""
    usage: Usage = _NOT_REPORTED
    hint: RateHint | None = attrs.field(default=None, repr=False)
    """The provider's limits as reported by this reply; None if not reported."""
    cost: float | None = None
    """US dollars; None if no price is known."""
    guardrails: Guardrails | None = None
    """None if the provider reports nothing about filters."""
    log_probs: tuple[float, ...] | None = attrs.field(default=None, repr=False)
    """Natural logarithms of the probabilities of the reply's tokens; None if not requested."""
    first_token: float | None = None
    """Seconds from the request to the first token; None if not measured (`metrics: ttft`)."""
    media: tuple[Media, ...] = ()
    """Its images, audio and video; the output contains the URI of each, or its text or transcript."""
    raw: Any = attrs.field(default=None, repr=False)
    """The parsed body, if there is one; media in it are their URIs."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """`http` (status, headers without credentials), `id`, `model`."""

    def __attrs_post_init__(self) -> None:
        """Complete the output; a text that equals it is not stored twice."""
        if self._text is None and self.output is not None:
            return
        if self.output is None:
            object.__setattr__(self, "output", self._implied_output())
        if isinstance(self.output, str) and self._text == self.output:
            object.__setattr__(self, "_text", None)

    @property
    def text(self) -> str:
        """The visible answer: without reasoning and tool calls; empty if there is only data."""
        if self._text is not None:
            return self._text
        return self.output if isinstance(self.output, str) else ""

    @property
    def answer(self) -> Any:
        r"""The output without reasoning and tool calls: `text`, or an output that is data.

        Example:
            >>> Reply(output="Thinking: 2 + 2\n\n4", text="4", reasoning="2 + 2").answer
            '4'
        """
        return self.text if isinstance(self.output, str) else self.output

    @property
    def own_text(self) -> str | None:
        """The text if the output does not contain it alone; otherwise None. For code that stores replies."""
        return self._text

    @property
    def is_refusal(self) -> bool:
        """True if the service reports a refusal."""
        return self.refusal is not None

    def _implied_output(self) -> Any:
        if not self.tool_calls:
            return self.refusal if self._text is None else self._text
        for call in self.tool_calls:
            if not isinstance(call, ToolCall):
                raise UsageError(f"each of Reply.tool_calls must be a ToolCall, got {call!r}")
        calls = [call.to_chat() for call in self.tool_calls]
        if not self._text:
            return calls
        return {"role": "assistant", "content": self._text, "tool_calls": calls}


class Provider(Protocol):
    """An async callable from `Request` to `Reply`; a returned string is the reply's output.

    Raises:
        ProviderError: The call failed in a known way. Any other exception is recorded as `unexpected`.
    """

    async def __call__(self, request: Request, /) -> Reply | str:
        """Answer one request."""
        ...
