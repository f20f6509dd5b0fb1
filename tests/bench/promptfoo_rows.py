"""The rows of promptfoo and of trioeval for the same configurations, with a local fake provider.

Used by `promptfoo_corpus.py --compare`. Every provider that would need a network becomes a model
of the fake provider, whose replies are a function of the prompt, and so does every grader; local
providers (Python, JavaScript, echo) stay. Both tools then get the same file in a copy of the folder.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from pathlib import Path
from typing import Any

from trioeval.documents import read_document

LOCAL = re.compile(r"^(?:echo$|python:|(?:file://)?[^:]*\.(?:py|js|mjs|cjs|ts)(?::\w+)?$)")
GRADE = {"steps": ["one"], "pass": True, "score": 0.75, "reason": "graded", "category": "A"}
GRADE |= {"verdict": "yes"}
QUIET = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_SHARING": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
}
REFUSED = "refused"
Value = Any
Row = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """The folder of configurations, the program of Node, promptfoo's script and the time limit."""

    root: Path
    node: str
    promptfoo: str
    seconds: float


def reply(model: str, messages: Sequence[Value]) -> str:
    """The reply of the fake provider: a grade, JSON where the prompt speaks of it, or a sentence."""
    if not model.startswith("fake-"):
        return json.dumps(GRADE)
    last = messages[-1] if messages else ""
    content = last.get("content", "") if isinstance(last, dict) else last
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    mark = hashlib.sha256((model + text).encode()).hexdigest()[:8]
    if "JSON" in text:
        return json.dumps({"color": "yellow", "countries": ["Ecuador"], "mark": mark})
    return f"Reply {mark} to: {text}"


class Handler(BaseHTTPRequestHandler):
    """Chat completions and embeddings of the fake provider."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one request."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if self.path.endswith("/embeddings"):
            answer: Row = {"data": [{"index": 0, "embedding": [0.6, 0.8]}], "usage": usage}
        elif self.path.endswith("/responses"):
            asked = body["input"] if isinstance(body["input"], list) else [body["input"]]
            part = {"type": "output_text", "text": reply(body["model"], asked)}
            message = {"type": "message", "role": "assistant", "content": [part]}
            answer = {"id": "r", "status": "completed", "output": [message], "usage": usage}
        else:
            text = reply(body["model"], body.get("messages", [body.get("prompt", "")]))
            said = {"message": {"role": "assistant", "content": text}, "text": text}
            answer = {"choices": [said | {"index": 0, "finish_reason": "stop"}], "usage": usage}
        sent = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_parts: object) -> None:
        """Log nothing."""


@contextmanager
def fake_provider() -> Iterator[str]:
    """The base URL of a fake provider that serves while the block runs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()


def model(name: str, url: str, kind: str = "chat") -> Row:
    """A provider entry of a model of the fake provider."""
    return {"id": f"openai:{kind}:{name}", "config": {"apiBaseUrl": url, "apiKey": "key"}}


def provider(entry: Value, number: int, url: str) -> Value:
    """The entry itself when it is local, else the same column with a model of the fake provider."""
    kept: Row = {}
    name = entry
    if isinstance(entry, dict):
        name = entry.get("id") or next(iter(entry))
        inner = entry if "id" in entry else entry[name] or {}
        kept = {key: inner[key] for key in ("label", "transform", "prompts") if key in inner}
    if LOCAL.match(str(name)):
        return entry
    return {"label": str(name)} | model(f"fake-{number}", url) | kept


def graded(value: Value, url: str) -> Value:
    """The value with every `provider` in it a model of the fake provider."""
    if isinstance(value, list):
        return [graded(item, url) for item in value]
    if not isinstance(value, dict):
        return value
    graders = {"text": model("grader", url), "embedding": model("grader", url, "embedding")}
    return {
        key: (graders if key == "provider" and "vars" not in value else graded(item, url))
        for key, item in value.items()
        if not (key == "provider" and "vars" in value)
    }


def rewritten(suite: Row, url: str) -> Row:
    """The configuration with local providers and graders only, which writes no files of its own."""
    gone = {"outputPath", "redteam", "sharing", "env", "targets", "envFile", "commandLineOptions"}
    listed = suite.get("providers", suite.get("targets", []))
    entries = listed if isinstance(listed, list) else [listed]
    result = {key: value for key, value in suite.items() if key not in gone}
    result["providers"] = [provider(entry, n, url) for n, entry in enumerate(entries)]
    for key in ("tests", "scenarios", "assertionTemplates"):
        if key in result:
            result[key] = graded(result[key], url)
    default = result.get("defaultTest", {})
    if isinstance(default, dict):
        graders = {"text": model("grader", url), "embedding": model("grader", url, "embedding")}
        default = graded(default, url)
        result["defaultTest"] = default | {
            "options": (default.get("options") or {}) | {"provider": graders}
        }
    if isinstance(result.get("evaluateOptions"), dict):
        result["evaluateOptions"].pop("delay", None)
    return result


def messages(prompt: Value) -> Value:
    """A prompt or a variable; text that is JSON as its value, because white space does not count."""
    try:
        return json.loads(prompt) if isinstance(prompt, str) else prompt
    except ValueError:
        return prompt


def outcome(file: Path) -> list[Row]:
    """The compared parts of each row of a result file, in the order of tests and prompts."""
    rows = json.loads(file.read_text(encoding="utf-8"))["results"]["results"]
    rows.sort(key=lambda row: (row["testIdx"], row["promptIdx"]))
    return [
        {
            "vars": {key: messages(v) for key, v in row["vars"].items() if key != "_conversation"},
            "prompt": messages(row["prompt"]["raw"] or ""),
            "error": row["failureReason"] == 2,
            "output": row["failureReason"] != 2 and (row.get("response") or {}).get("output"),
            "assertions": [
                (part["assertion"]["type"], part["pass"], round(part["score"] or 0, 6))
                for part in (row.get("gradingResult") or {}).get("componentResults") or []
                if part.get("assertion")
            ],
            "success": row["success"],
            "score": round(row["score"] or 0, 6),
        }
        for row in rows
    ]


def _parts(value: Any, other: Any) -> list[Any]:
    """Return the first parts of two values that differ; the values themselves if they have none."""
    pairs: list[list[Any]] = []
    if isinstance(value, list) and isinstance(other, list):
        pairs = [list(pair) for pair in zip_longest(value, other)]
    elif isinstance(value, dict) and isinstance(other, dict):
        pairs = [[value.get(name), other.get(name)] for name in value]
    return next((pair for pair in pairs if pair[0] != pair[1]), [value, other])


def difference(ours: Sequence[Row], theirs: Sequence[Row]) -> str:
    """The first difference, or an empty text."""
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, {len(theirs)} in promptfoo"
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        for key, value in one.items():
            if value != other[key]:
                shown = json.dumps(_parts(value, other[key]), ensure_ascii=False)
                return f"row {number}, {key}: {shown[:600]}"
    return ""


def one(task: Comparison, row: dict[str, str], url: str) -> str:
    """Run one configuration with both tools; the first difference or an empty text."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "suite"
        shutil.copytree(task.root / row["name"], folder)
        if not row["config"].endswith((".yaml", ".yml", ".json")):
            return REFUSED
        suite = read_document(folder / row["config"]).data
        config = folder / "compared.json"
        config.write_text(json.dumps(rewritten(suite, url), ensure_ascii=False), encoding="utf-8")
        environ = os.environ | QUIET
        environ |= {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": url, "OPENAI_API_BASE_URL": url}
        environ |= {"PROMPTFOO_CONFIG_DIR": place, "PROMPTFOO_PYTHON": sys.executable}
        environ["PATH"] = f"{Path(task.node).parent}{os.pathsep}{environ['PATH']}"
        shared = [config.name, "--no-cache"]
        ours = [sys.executable, "-m", "trioeval", *shared, "--no-progress", "-o", "ours.json"]
        theirs = [
            task.node,
            task.promptfoo,
            "eval",
            "-c",
            *shared,
            "--no-table",
            "--no-progress-bar",
        ]
        theirs += ["-o", "theirs.json"]
        for command, file in ((ours, "ours.json"), (theirs, "theirs.json")):
            try:
                done = subprocess.run(
                    command,
                    cwd=folder,
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=task.seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return f"{file}: no end after {task.seconds:g} s"
            if not (folder / file).exists():
                if done.returncode == 2 and file == "ours.json":
                    return REFUSED
                return f"{file} is missing: {(done.stdout + done.stderr)[-600:]}"
        return difference(outcome(folder / "ours.json"), outcome(folder / "theirs.json"))


def compared(task: Comparison, rows: Sequence[dict[str, str]], jobs: int) -> Iterator[str]:
    """Run every configuration with both tools; a line for each as it is done, and how many are equal."""
    counts = Counter[str]()
    with fake_provider() as url, ThreadPoolExecutor(jobs) as pool:
        for row, text in zip(
            rows,
            pool.map(lambda row: one(task, row, url), rows),
            strict=True,
        ):
            counts[text if text in ("", REFUSED) else "differing"] += 1
            yield f"{row['name']}: {text or 'the same rows'}"
    done = counts[""] + counts["differing"]
    yield f"compared: {done}; the same rows: {counts['']}; not run here: {counts[REFUSED]}"
