"""Loading of promptfoo configurations, and whether they give the rows that promptfoo gives.

python tests/bench/promptfoo_corpus.py FOLDER
python tests/bench/promptfoo_corpus.py FOLDER --compare --node NODE --promptfoo MAIN_JS

FOLDER holds `manifest.jsonl`, one line for each configuration: `name` is its folder, `config` the
file in it, `source` where it is from, and `misleading`, where a person judged it so, the text of
the message that blames what is right. Without `--compare` each is planned, which calls no provider.
With it, those that load run with both tools against a local fake provider.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from promptfoo_rows import Comparison, compared

CLASSES = ("loads", "key missing", "refused clearly", "misleading", "crash", "hang")
KEYS = (
    *("OPENAI", "ANTHROPIC", "GEMINI", "GOOGLE", "MISTRAL", "GROQ", "XAI", "COHERE", "DEEPSEEK"),
    *("OPENROUTER", "PERPLEXITY", "TOGETHER", "FIREWORKS", "CEREBRAS", "AZURE", "AZURE_OPENAI"),
    *("HF", "REPLICATE", "CLOUDFLARE", "NVIDIA", "SAMBANOVA", "DEEPINFRA", "VOYAGE", "AI21"),
    *("HYPERBOLIC", "PORTKEY", "HELICONE", "AIML", "COMETAPI", "NSCALE", "LITELLM", "GITHUB"),
    *("TRUEFOUNDRY", "VERCEL", "ALIBABA", "DASHSCOPE", "MOONSHOT", "LLAMA", "ABLIT", "QUIVERAI"),
)
UNSUPPORTED = re.compile(
    r"^  column \d+: (?:openai:(?:agents|assistant|chatkit|codex|tts|speech)|anthropic:claude-agent"
    r"|bedrock:(?:agents|kb|nova-sonic)|azure:(?:foundry-agent|assistant)|mistral:embed"
    r"|xai:voice|google:live|vertex:live)",
    re.MULTILINE,
)
QUOTED = re.compile(r'"[^"]*"|\d+|`[^`]*`')


@dataclass(frozen=True)
class Planned:
    """One planned configuration."""

    name: str
    kind: str
    cause: str
    text: str


def environment(folder: Path) -> dict[str, str]:
    """The environment with a key for every service and a value for every `env.NAME` of the files."""
    found = {f"{name}_{end}": "key" for name in KEYS for end in ("API_KEY", "KEY", "TOKEN")}
    found |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "key", "AWS_REGION": "us-east-1"}
    found |= {"AZURE_API_HOST": "host.example.com", "AZURE_DEPLOYMENT": "model"}
    found |= {"CLOUDFLARE_ACCOUNT_ID": "account", "GOOGLE_CLOUD_PROJECT": "project"}
    found["GOOGLE_PROJECT_ID"] = "project"
    for file in folder.rglob("*.y*ml"):
        text = file.read_text(encoding="utf-8", errors="replace")
        for name in re.findall(r"\benv\.([A-Z][A-Z0-9_]+)", text):
            url = "http://127.0.0.1:9/v1"
            found.setdefault(name, url if "URL" in name or "ENDPOINT" in name else "value")
        for name in re.findall(r"apiKeyEnvar:\s*['\"]?([A-Z][A-Z0-9_]+)", text):
            found.setdefault(name, "key")
    return found | dict(os.environ)


def first_message(text: str) -> str:
    """The first message without its place."""
    for line in text.splitlines():
        at = re.match(r"\S+?:\d+:\d+: (.*)", line)
        if at:
            return re.sub(r"^\$[^ ]*: ", "", at[1])
        if line and not line.startswith(("warning", " ")):
            return re.sub(r"^(?:error: )?(?:\S+\.(?:ya?ml|json): )?", "", line)
    return ""


def classified(row: dict[str, str], code: int, text: str) -> str:
    """The class of a plan by its exit code, its text and the judgement of a person."""
    if code not in (0, 2) or "Traceback (most recent" in text:
        return "crash"
    judged = row.get("misleading", "")
    if judged and re.search(judged, text):
        return "misleading"
    if code == 0:
        return "misleading" if UNSUPPORTED.search(text) else "loads"
    messages = [line for line in text.splitlines() if re.match(r"\S+?:\d+:\d+: ", line)]
    if messages and all(re.search(r"needs an API key|is not set", line) for line in messages):
        return "key missing"
    return "refused clearly"


def planned(root: Path, row: dict[str, str], seconds: float) -> Planned:
    """Plan one configuration."""
    folder = root / row["name"]
    command = [sys.executable, "-m", "trioeval", row["config"], "--plan"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Planned(row["name"], "hang", f"no end after {seconds:g} s", "")
    text = done.stdout + done.stderr
    kind = classified(row, done.returncode, text)
    cause = "" if kind == "loads" else QUOTED.sub("…", first_message(text))
    return Planned(row["name"], kind, cause, text)


def table(rows: Sequence[Planned]) -> str:
    """The shares by class and the causes by count, each with an example."""
    counts = Counter(row.kind for row in rows)
    lines = [f"{len(rows)} configurations"]
    lines += [f"{counts[kind]:5} {counts[kind] / len(rows):7.1%}  {kind}" for kind in CLASSES]
    causes = Counter((row.kind, row.cause) for row in rows if row.cause)
    examples = {(row.kind, row.cause): row.name for row in rows}
    lines.append("causes:")
    for (kind, cause), count in causes.most_common():
        lines.append(f"{count:5}  {kind}: {cause}  ({examples[kind, cause]})")
    return "\n".join(lines)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--node", default="node")
    parser.add_argument("--promptfoo", default="", help="dist/src/main.js of the package")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", default="", help="regular expression of names")
    parser.add_argument("--details", type=Path, help="write every plan's text to this file")
    flags = parser.parse_args()
    manifest = (flags.folder / "manifest.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in manifest.splitlines()]
    rows = [row for row in rows if re.search(flags.only, row["name"])]
    root = flags.folder.resolve()
    if flags.compare:
        task = Comparison(root, flags.node, flags.promptfoo, flags.seconds)
        for line in compared(task, rows, flags.jobs):
            print(line, flush=True)
        return
    with ThreadPoolExecutor(flags.jobs) as pool:
        plans = list(pool.map(lambda row: planned(root, row, flags.seconds), rows))
    print(table(plans))
    if flags.details:
        lines = [json.dumps(vars(plan), ensure_ascii=False) + "\n" for plan in plans]
        flags.details.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
