"""A server of the official SDK: on its standard streams, or with the argument `http` on loopback.

Over HTTP it prints its URL when it accepts connections, and requires the token "sesame".
"""

import socket
import sys
from typing import Any

import uvicorn
from mcp.server import MCPServer

server = MCPServer("calculator")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def divide(a: int, b: int) -> float:
    """Divide two numbers."""
    return a / b


app = server.streamable_http_app()


async def guarded(scope: Any, receive: Any, send: Any) -> None:
    """Require a token."""
    token = dict(scope.get("headers", ())).get(b"authorization")
    if scope["type"] == "http" and token != b"Bearer sesame":
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b'{"error": "invalid_token"}'})
    else:
        await app(scope, receive, send)


if __name__ == "__main__":
    if "http" in sys.argv:
        listener = socket.create_server(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        uvicorn.Server(uvicorn.Config(guarded, log_level="warning")).run([listener])
    else:
        server.run()
