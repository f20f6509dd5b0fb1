"""Run a job of `compare.py` with Inspect AI: one task, all models in one `eval`."""

import json
import sys
from pathlib import Path

from inspect_ai import Task, eval  # noqa: A004 - the name that the tool gives it
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
task = Task(
    dataset=MemoryDataset([Sample(input=prompt, target="ok") for prompt in job["prompts"]]),
    solver=generate(),
    scorer=includes(),
)
models = [
    get_model(f"openai/{model['model']}", base_url=model["url"], responses_api=False)
    for model in job["models"]
]
logs = eval(
    task,
    model=models,
    max_connections=job["concurrency"],
    max_tasks=len(models),
    fail_on_error=False,
    display="none",
    log_dir="logs",
)
sys.exit(any(log.status != "success" for log in logs))
