"""Run a job of `compare.py` with pydantic-evals: one dataset per model, evaluated side by side."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Contains

job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


async def evaluate(model: dict[str, Any]) -> None:
    """Evaluate all prompts on one model."""
    provider = OpenAIProvider(base_url=model["url"], api_key="none")
    agent = Agent(OpenAIChatModel(model["model"], provider=provider))

    async def ask(prompt: str) -> str:
        return str((await agent.run(prompt)).output)

    cases = [Case(inputs=prompt) for prompt in job["prompts"]]
    dataset = Dataset(name="comparison", cases=cases, evaluators=[Contains(value="ok")])
    await dataset.evaluate(ask, max_concurrency=job["concurrency"], progress=False)


async def main() -> None:
    """Evaluate all models at once."""
    await asyncio.gather(*(evaluate(model) for model in job["models"]))


asyncio.run(main())
