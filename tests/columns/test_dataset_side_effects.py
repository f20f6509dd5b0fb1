"""Side effects with the names of columns."""

import pytest
import trio

from trioeval import Reply, Request, build_columns
from trioeval.run.build_dataset import Dataset


@pytest.mark.parametrize("effect", ["trace", "reasoning"])
@pytest.mark.parametrize("name", ["text", "topic"])
def test_a_side_effect_never_replaces_a_column(effect: str, name: str) -> None:
    """It replaces neither its own column nor another one."""

    async def model(_request: Request) -> Reply:  # noqa: ASYNC124 - as providers are
        return Reply(output="hello")

    topic = {"name": "topic", "type": "sampler", "sampler": "category", "values": ["apples"]}
    text = {"name": "text", "type": "llm", "provider": "model", "prompt": "Hi.", effect: name}

    async def main() -> Dataset:
        config = {"rows": 2, "columns": [topic, text]}
        return await build_columns(config, providers={"model": model}, warn=lambda _: None)

    assert list(trio.run(main).rows) == [{"topic": "apples", "text": "hello"}] * 2
