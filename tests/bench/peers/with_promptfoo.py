"""Run a job of `compare.py` with promptfoo: `with_promptfoo.py JOB PROMPTFOO`."""

import json
import os
import sys
from pathlib import Path

job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
suite = {
    "providers": [
        {"id": f"openai:chat:{model['model']}", "config": {"apiBaseUrl": model["url"]}}
        for model in job["models"]
    ],
    "prompts": ["{{prompt}}"],
    "defaultTest": {"assert": [{"type": "contains", "value": "ok"}]},
    "tests": [{"vars": {"prompt": prompt}} for prompt in job["prompts"]],
}
Path("promptfooconfig.json").write_text(json.dumps(suite), encoding="utf-8")
command = [sys.argv[2], "eval", "-c", "promptfooconfig.json", "--no-cache", "--no-table"]
command += ["-j", str(job["concurrency"]), "--no-progress-bar", "-o", "out.json"]
environ = os.environ | {
    "PROMPTFOO_CONFIG_DIR": str(Path.cwd()),
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
}
os.execve(command[0], command, environ)  # noqa: S606 - the tool replaces this process
