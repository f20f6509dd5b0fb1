"""The servers that a run trusts according to the environment: real connections."""

import contextlib
import json
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import trio
import trustme

import trioeval
from trioeval.run import Row, prepare


class _Answer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "hello"}
        body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_parts: object) -> None:
        """Discard the message."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Yield the address of a server with its own authority, whose certificate is `ca.pem`."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    with HTTPServer(("localhost", 0), _Answer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://localhost:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def row_of(folder: Path, url: str, **environ: str) -> Row:
    config = {"apiBaseUrl": url, "apiKey": "k"}
    lane = {"maxRetries": 0}
    suite = trioeval.parse_suite(
        {
            "providers": [{"id": "openai:chat:m", "config": config, "lane": lane}],
            "prompts": ["hi"],
        },
        directory=folder,
    )
    prepared = prepare(suite, environ=environ)

    async def main() -> list[Row]:
        with trio.fail_after(60):
            return await trioeval.collect(prepared)

    (row,) = trio.run(main)
    return row


@pytest.mark.slow
def test_the_environment_determines_the_trusted_servers(tmp_path: Path) -> None:
    """It is trusted by its authority, or without verification; otherwise it is not."""
    with served(tmp_path) as url:
        refused = row_of(tmp_path, url)
        assert refused.error_kind == "tls"
        assert row_of(tmp_path, url, PROMPTFOO_CA_CERT_PATH="ca.pem").output == "hello"
        assert row_of(tmp_path, url, TRIOEVAL_INSECURE_SSL="true").output == "hello"
        assert row_of(tmp_path, url, TRIOEVAL_INSECURE_SSL="false").error_kind == "tls"


def test_certificates_that_cannot_be_used_are_reported_before_the_first_call(
    tmp_path: Path,
) -> None:
    """The message names the variable."""
    (tmp_path / "no.pem").write_text("nothing")
    suite = trioeval.parse_suite({"providers": ["echo"]}, directory=tmp_path)
    for name, fault in (
        ("no.pem", "holds no certificate in PEM"),
        ("gone.pem", "cannot be read: No such file or directory"),
    ):
        with pytest.raises(trioeval.SuiteError, match=f"{name} of CA_CERT_PATH {fault}"):
            prepare(suite, environ={"PROMPTFOO_CA_CERT_PATH": name})
