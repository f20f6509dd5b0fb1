"""A server of the Model Context Protocol on its standard streams, with the faults that `FAULT` names.

It uses the standard library only, so it starts at once. Tools with a `pipe` argument open that named pipe.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

FAULT = os.environ.get("FAULT", "")
NAMES = ("echo", "pid", "crash", "hang", "refuse", "child", "steps", "wrong", "secret")


def send(message: Mapping[str, Any]) -> None:
    """Write one message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def tool(name: str) -> dict[str, Any]:
    """Return the description of a tool."""
    more = {"outputSchema": {"type": "object", "required": ["x"]}} if name == "wrong" else {}
    return {"name": name, "description": f"Do {name}.", "inputSchema": {"type": "object"}, **more}


def call(name: str, given: Mapping[str, Any], token: Any) -> dict[str, Any]:
    """Return the result of a tool."""
    text = json.dumps(given, ensure_ascii=False)
    match name:
        case "pid":
            text = str(os.getpid())
        case "crash":
            print("no luck", file=sys.stderr, flush=True)
            os._exit(3)
        case "hang":
            with open(given["pipe"], "w") as pipe:  # noqa: PTH123 - no imports that cost time
                pipe.write("ready")
            time.sleep(1000)
        case "child":
            child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            text = str(child.pid)
        case "steps":
            for step in range(3):
                params = {"progressToken": token, "progress": step}
                send({"method": "notifications/progress", "params": params})
        case "wrong":
            return {"content": [], "structuredContent": {"y": 1}}
        case "secret":
            text = os.environ["API_KEY"]
        case _:
            pass
    return {"content": [{"type": "text", "text": text}], "isError": bool(given.get("fails"))}


def answer(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a request, or its error."""
    params = message.get("params", {})
    match message["method"]:
        case "initialize" if FAULT == "modern":
            data = {"supported": ["2026-07-28"], "requested": params["protocolVersion"]}
            return {"error": {"code": -32022, "message": "too old", "data": data}}
        case "initialize":
            info = {"name": "plain", "version": "1"}
            version = params["protocolVersion"]
            return {
                "result": {
                    "protocolVersion": version,
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
            }
        case "server/discover":
            return {
                "result": {
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                    "resultType": "complete",
                    "ttlMs": 0,
                    "cacheScope": "private",
                }
            }
        case "tools/list":
            start = int(params.get("cursor") or 0)
            shown = {"tools": [tool(name) for name in NAMES[start : start + 5]]}
            more = {"nextCursor": str(start + 5)} if start + 5 < len(NAMES) else {}
            modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            return {"result": {**shown, **more, **(modern if FAULT == "modern" else {})}}
        case "tools/call" if params["name"] == "refuse":
            return {"error": {"code": -32602, "message": "no such city"}}
        case "tools/call":
            token = params.get("_meta", {}).get("progressToken")
            result = call(params["name"], params.get("arguments", {}), token)
            return {"result": {"resultType": "complete", **result} if FAULT == "modern" else result}
        case "ping":
            print("pinged", file=sys.stderr, flush=True)
            return {"result": {}}
        case _:
            return {"error": {"code": -32601, "message": "no such method"}}


def main() -> None:
    """Serve until the input ends."""
    if FAULT == "exit":
        sys.exit("cannot find my data")
    if FAULT == "noise":
        print("\x1b[32mListening\x1b[0m on stdio", flush=True)
    if FAULT == "mute":
        print("Password:", flush=True)
        with open(os.environ["PIPE"], "w") as pipe:  # noqa: PTH123
            pipe.write("ready")
        time.sleep(1000)
    if FAULT == "long":
        print("x" * 9_000_000, flush=True)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            send({"id": message["id"], **answer(message)})


if __name__ == "__main__":
    main()
