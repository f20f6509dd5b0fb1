"""A server of four services that counts the tokens it charges, for replies of every kind."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.usage import Usage

Kind: TypeAlias = Literal[
    "ok",
    "cut_off",
    "cut_off_empty",
    "empty",
    "no_choice",
    "malformed",
    "filtered",
    "error",
    "down",
    "refused",
    "declined",
    "free_down",
]
"""A kind of reply: complete, cut off at its limit with and without an output, without any content, without a
choice, of a wrong form, removed by a filter; an error in a success, a 500 and a 400 with a usage, a
refused prompt with one, and a 500 without one."""

KINDS: tuple[Kind, ...] = (
    *("ok", "cut_off", "cut_off_empty", "empty", "no_choice", "malformed", "filtered", "error"),
    *("down", "refused", "declined", "free_down"),
)

SERVICES = ("chat", "responses", "anthropic", "gemini")
PRICE = {
    "input": 1_000_000,
    "output": 2_000_000,
    "tiers": {"flex": {"input": 500_000, "output": 1_000_000}},
}
"""1 US dollar for a token of a prompt, 2 for one of a completion; half of that in the tier `flex`."""


@attrs.frozen
class Charge:
    """One reply to send."""

    kind: Kind
    prompt: int = 0
    completion: int = 0
    text: str = "yes"
    """The text of a reply that has one."""

    @property
    def usage(self) -> Usage | None:
        """The tokens that are charged; None for a reply without a usage."""
        if self.kind == "free_down":
            return None
        return Usage(
            prompt=self.prompt, completion=self.completion, total=self.prompt + self.completion
        )

    @property
    def content(self) -> str | None:
        """The text, as far as it is sent."""
        return {"ok": self.text, "cut_off": f"{self.text} and"}.get(self.kind)

    @property
    def status(self) -> int:
        """The status of the reply."""
        return {"down": 500, "free_down": 500, "refused": 400, "declined": 400}.get(self.kind, 200)


def _error(charge: Charge) -> dict[str, Any]:
    code = "content_filter" if charge.kind == "declined" else "server_error"
    return {"message": "something failed", "type": code, "code": code}


def _chat(charge: Charge) -> dict[str, Any]:
    reasons = {"cut_off": "length", "cut_off_empty": "length", "filtered": "content_filter"}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": charge.content},
        "finish_reason": reasons.get(charge.kind, "stop"),
    }
    match charge.kind:
        case "no_choice":
            body: dict[str, Any] = {"choices": []}
        case "malformed":
            body = {"choices": [{"index": 0}]}
        case "error" | "down" | "free_down" | "refused" | "declined":
            body = {"error": _error(charge)}
        case _:
            body = {"choices": [choice]}
    usage = {
        "prompt_tokens": charge.prompt,
        "completion_tokens": charge.completion,
        "total_tokens": charge.prompt + charge.completion,
    }
    return body if charge.usage is None else body | {"usage": usage}


def _responses(charge: Charge) -> dict[str, Any]:
    text = charge.content
    reason = {"filtered": "content_filter"}.get(charge.kind, "max_output_tokens")
    is_whole = charge.kind in ("ok", "empty", "no_choice")
    parts = [] if text is None else [{"type": "output_text", "text": text}]
    message = {"type": "message", "role": "assistant", "content": parts}
    match charge.kind:
        case "malformed":
            body: dict[str, Any] = {"status": "completed"}
        case "error":
            body = {"status": "failed", "error": _error(charge), "output": []}
        case "down" | "free_down" | "refused" | "declined":
            body = {"error": _error(charge)}
        case _:
            body = {
                "status": "completed" if is_whole else "incomplete",
                "incomplete_details": None if is_whole else {"reason": reason},
                "output": [message] if parts else [],
            }
    usage = {
        "input_tokens": charge.prompt,
        "output_tokens": charge.completion,
        "total_tokens": charge.prompt + charge.completion,
    }
    return body if charge.usage is None else body | {"usage": usage}


def _anthropic(charge: Charge) -> dict[str, Any]:
    reasons = {"cut_off": "max_tokens", "cut_off_empty": "max_tokens", "filtered": "refusal"}
    text = charge.content
    match charge.kind:
        case "malformed":
            body: dict[str, Any] = {"type": "message"}
        case "error" | "down" | "free_down" | "refused" | "declined":
            body = {"type": "error", "error": _error(charge)}
        case _:
            body = {
                "type": "message",
                "content": [] if text is None else [{"type": "text", "text": text}],
                "stop_reason": reasons.get(charge.kind, "end_turn"),
            }
    usage = {"input_tokens": charge.prompt, "output_tokens": charge.completion}
    return body if charge.usage is None else body | {"usage": usage}


def _gemini(charge: Charge) -> dict[str, Any]:
    reasons = {"cut_off": "MAX_TOKENS", "cut_off_empty": "MAX_TOKENS", "filtered": "SAFETY"}
    text = charge.content
    parts = [] if text is None else [{"text": text}]
    candidate = {
        "content": {"role": "model", "parts": parts},
        "finishReason": reasons.get(charge.kind, "STOP"),
    }
    match charge.kind:
        case "no_choice":
            body: dict[str, Any] = {"modelVersion": "m"}
        case "malformed":
            body = {"candidates": ["what"]}
        case "error" | "down" | "free_down" | "refused" | "declined":
            body = {"error": _error(charge)}
        case _:
            body = {"candidates": [candidate]}
    usage = {
        "promptTokenCount": charge.prompt,
        "candidatesTokenCount": charge.completion,
        "totalTokenCount": charge.prompt + charge.completion,
    }
    return body if charge.usage is None else body | {"usageMetadata": usage}


BODIES: Mapping[str, Callable[[Charge], dict[str, Any]]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


@attrs.define
class BillingServer:
    """The running server."""

    url: str = ""
    script: dict[str, list[Charge]] = attrs.field(factory=dict)
    """The replies of each service to each prompt, in order; the last one is repeated."""
    charged: list[Usage] = attrs.field(factory=list)
    """The usage of every reply that was sent."""
    is_flex: bool = False
    """True if all replies report that they were served in the tier `flex`."""
    _left: dict[tuple[str, str], list[Charge]] = attrs.field(factory=dict)
    _lock: Lock = attrs.field(factory=Lock)

    @property
    def total(self) -> Usage:
        """The sum of what was charged."""
        return Usage.sum([Usage(prompt=0, completion=0, total=0), *self.charged])

    @property
    def cost(self) -> float:
        """The US dollars that was charged, by `PRICE`."""
        dollars = (self.total.prompt or 0) + 2 * (self.total.completion or 0)
        return dollars / 2 if self.is_flex else dollars

    def begin(self, rows: Sequence[Sequence[Charge]]) -> None:
        """Forget what was charged, and send these replies to the prompts `<row 0>`, `<row 1>` and so on."""
        self.charged.clear()
        self._left.clear()
        self.script = {f"row {number}": [*charges] for number, charges in enumerate(rows)}

    def entries(self, **config: Any) -> list[dict[str, Any]]:
        """Return one provider of each service; none waits before it tries again."""
        common = {"apiKey": "k", "price": PRICE, **config}
        lane = {"lane": {"retryDelay": 0}}
        url = self.url
        return [
            {"id": "openai:chat:m", "config": {"apiBaseUrl": f"{url}/v1", **common}, **lane},
            {"id": "openai:responses:m", "config": {"apiBaseUrl": f"{url}/v1", **common}, **lane},
            {"id": "anthropic:messages:m", "config": {"apiBaseUrl": url, **common}, **lane},
            {"id": "google:gemini-m", "config": {"apiBaseUrl": url, **common}, **lane},
        ]

    def reply(self, path: str, request: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the next reply, and charge it."""
        service = next(name for name, mark in _MARKS.items() if mark in path)
        with self._lock:
            name = next(prompt for prompt in self.script if f"<{prompt}>".encode() in request)
            left = self._left.setdefault((service, name), [*self.script[name]])
            charge = left.pop(0) if len(left) > 1 else left[0]
            if charge.usage is not None:
                self.charged.append(charge.usage)
        body = BODIES[service](charge)
        place = body.get(_TIERS[service][0], {}) if _TIERS[service][0] else body
        if self.is_flex:
            place[_TIERS[service][1]] = "flex"
        return charge.status, json.dumps(body).encode()


_MARKS = {
    "chat": "chat/completions",
    "responses": "/responses",
    "anthropic": "/messages",
    "gemini": ":generateContent",
}


_TIERS = {
    "chat": ("", "service_tier"),
    "responses": ("", "service_tier"),
    "anthropic": ("usage", "service_tier"),
    "gemini": ("usageMetadata", "serviceTier"),
}
"""The object that reports the tier, and its member."""


def _handler_of(server: BillingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one piece
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = self.rfile.read(int(self.headers["content-length"]))
            status, body = server.reply(self.path, request)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            pass

    return Handler


@contextmanager
def billing_server() -> Iterator[BillingServer]:
    """Serve on loopback until the block ends."""
    server = BillingServer()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(server)) as http:
        http.daemon_threads = True
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
