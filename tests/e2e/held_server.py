"""A provider whose replies a test controls, so that the state at a kill is known."""

import json
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs

PATIENCE = 60.0
"""Seconds after which a waiting test fails."""


@attrs.define(eq=False)
class HeldServer:
    """An OpenAI-compatible provider that replies with the prompt."""

    url: str = ""
    prompts: list[str] = attrs.field(factory=list)
    """The prompts of all requests, in the order of arrival."""
    answered: list[str] = attrs.field(factory=list)
    """The prompts of answered requests."""
    held: int = 0
    """The number of held requests."""
    _most: float = float("inf")
    """The number of requests to answer before all others are held."""
    _before: frozenset[str] = frozenset()
    """Prompts that are answered before anything is held."""
    _victim: tuple[int, int, str] | None = None
    """A process and the request at which it is killed: its number among those that begin with a text."""
    _executions: int = 0
    """Processes that made a request and were killed."""
    _refused_models: set[str] = attrs.field(factory=set)
    _changed: threading.Condition = attrs.field(factory=threading.Condition)

    def hold_after(self, more: int, prompts: Iterable[str] = ()) -> None:
        """Answer so many requests from now on, and more until these prompts are answered; hold the rest."""
        with self._changed:
            self._most = len(self.answered) + more
            self._before = frozenset(prompts)

    def release(self) -> None:
        """Answer everything from now on, including held requests."""
        with self._changed:
            self._most = float("inf")
            self._changed.notify_all()

    def refuse(self, *models: str) -> None:
        """Refuse the key for these models, and accept it for all others."""
        with self._changed:
            self._refused_models = {*models}

    def wait_held(self, requests: int) -> None:
        """Return when a number of requests are held."""
        with self._changed:
            met = self._changed.wait_for(lambda: self.held >= requests, PATIENCE)
            assert met, (len(self.prompts), len(self.answered))

    def kill_at(self, request: int, pid: int, beginning: str = "") -> None:
        """Kill a process in the step in which its request with this number is read.

        Args:
            request: The number, from 1, among requests whose prompt begins with `beginning`.
            pid: The id of the process.
            beginning: The beginning of the prompt.
        """
        with self._changed:
            self._victim = pid, request, beginning

    def forget_held(self) -> None:
        """Drop held requests, whose clients are dead; hold no further requests."""
        with self._changed:
            self._executions += 1
            self.held, self._most = 0, float("inf")
            self._changed.notify_all()

    def receive(self, prompt: str, model: str) -> int:
        """Return the status of the reply when it may be sent.

        Raises:
            ConnectionAbortedError: Its client is dead.
        """
        with self._changed:
            self.prompts.append(prompt)
            if self._is_last(prompt):
                raise ConnectionAbortedError
            execution = self._executions
            if len(self.answered) >= self._most and not self._before:
                self.held += 1
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: len(self.answered) < self._most or self._executions != execution
                )
                if self._executions != execution:
                    raise ConnectionAbortedError
                self.held -= 1
            self.answered.append(prompt)
            self._before -= {prompt}
            return 401 if model in self._refused_models else 200

    def _is_last(self, prompt: str) -> bool:
        """True if the client was killed at this request."""
        if self._victim is None:
            return False
        pid, request, beginning = self._victim
        number = sum(one.startswith(beginning) for one in self.prompts)
        if number < request or not prompt.startswith(beginning):
            return False
        os.kill(pid, signal.SIGKILL)
        self._victim = None
        return True


def _text_of(content: str | list[dict[str, Any]]) -> str:
    """Return the text of a message, which may have images beside it."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def handler_of(server: HeldServer) -> type[BaseHTTPRequestHandler]:
    """The handler of a connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one piece
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            prompt = _text_of(request["messages"][-1]["content"])
            status = server.receive(prompt, request["model"])
            reply: dict[str, Any] = {"error": {"message": "wrong key", "type": "auth"}}
            if status == 200:
                message = {"role": "assistant", "content": f"<{prompt}>"}
                usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
                reply = {"choices": [{"index": 0, "message": message}], "usage": usage}
            body = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            pass

    return Handler


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, _request: object, _address: object) -> None:
        """Ignore clients that were killed, which is the purpose of this server."""


@contextmanager
def held_server() -> Iterator[HeldServer]:
    """A provider that answers at once until `hold_after` is called."""
    server = HeldServer()
    with _Quiet(("127.0.0.1", 0), handler_of(server)) as http:
        server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.release()
            http.shutdown()
            thread.join()
