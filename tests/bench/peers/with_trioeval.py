"""Run a job of `compare.py` with trioeval: one lane per model, with its declared rate."""

import json
import os
import sys
from pathlib import Path

job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
providers = [
    {
        "id": f"openai:chat:{model['model']}",
        "config": {"apiBaseUrl": model["url"]},
        "lane": {key: model[key] for key in ("rpm", "burst") if key in model},
    }
    for model in job["models"]
]
suite = {
    "providers": providers,
    "prompts": ["{{prompt}}"],
    "defaultTest": {"assert": [{"type": "contains", "value": "ok"}]},
    "tests": [{"vars": {"prompt": prompt}} for prompt in job["prompts"]],
    "evaluateOptions": {"maxConcurrency": job["concurrency"]},
}
Path("suite.json").write_text(json.dumps(suite), encoding="utf-8")
command = [sys.executable, "-m", "trioeval", "suite.json", "--no-cache", "--no-table"]
os.execv(command[0], command)  # noqa: S606 - the tool replaces this process
