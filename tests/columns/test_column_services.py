"""Cells from services over real sockets."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
import trio
from loopback import Answer, Seen, as_json, serve
from model_cells import CHAT, cells_of, make_cells, writer

from trioeval.columns.makers.conversations import CellServices
from trioeval.columns.makers.llm import EmbeddingMaker, JudgeMaker, schema_of
from trioeval.columns.model import EmbeddingColumn, JudgeColumn, ModelCallSettings, Score
from trioeval.kernel import Done
from trioeval.providers import open_providers
from trioeval.providers.fake import FakeSettings, ScriptedReplies, serve_fake
from trioeval.run.build_dataset import build_columns
from trioeval.templates import Templates

pytestmark = pytest.mark.network

APPLES = {"topic": "apples"}
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


async def opened(
    url: str, body: Callable[[CellServices], Awaitable[None]], entry: str = CHAT
) -> None:
    """Call a function with cells that use a real provider at an address."""
    found = cells_of(None, entry=entry, config={"apiBaseUrl": url})
    specs = [one.spec for one in found.asker.providers]
    async with open_providers(specs, Templates()) as providers:
        await body(attrs.evolve(found, asker=attrs.evolve(found.asker, providers=providers)))


def completion(content: str, **message: str) -> Answer:
    message_data = {"role": "assistant", "content": content, **message}
    return as_json({"choices": [{"message": message_data, "finish_reason": "stop"}]})


def requests_for(
    respond: Callable[[Seen], Answer],
    body: Callable[[CellServices], Awaitable[None]],
    entry: str = CHAT,
) -> list[Seen]:
    """Return the requests that a server received."""
    seen: list[Seen] = []

    async def main() -> None:
        with trio.fail_after(60):
            async with serve(respond) as server:
                await opened(server.url, body, entry)
                seen.extend(server.seen)

    trio.run(main)
    return seen


def test_a_service_is_called_until_its_reply_is_usable() -> None:
    async def body(cells: CellServices) -> None:
        found = await make_cells(writer(cells, schema=SCHEMA, corrections=1), [APPLES])
        assert found.value == {"text": {"n": 7}}
        assert found.tallies[0].calls == 3

    async def main() -> None:
        settings = FakeSettings(replies=ScriptedReplies(("", "seven", '{"n": 7}')))
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                address = await nursery.start(serve_fake, settings)
                await opened(address.base_url, body)
                nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_service_gets_the_schema_and_the_config_of_the_column() -> None:
    async def body(cells: CellServices) -> None:
        maker = writer(cells, schema=SCHEMA, reasoning="why", config={"temperature": 0})
        (outcome,) = (await make_cells(maker, [APPLES])).outcomes
        assert isinstance(outcome, Done)
        assert outcome.value == {"text": {"n": 7}, "why": "Seven."}

    (seen,) = requests_for(lambda _: completion('{"n": 7}', reasoning="Seven."), body)
    sent = json.loads(seen.body)
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    assert sent["temperature"] == 0


def test_a_judge_service_gets_its_scores_as_schema() -> None:
    score = Score(name="fit", description="Does it fit?", options={"1": "no", "5": "yes"})

    async def body(cells: CellServices) -> None:
        asking = ModelCallSettings(provider=0, prompt="{{ topic }}")
        maker = JudgeMaker(JudgeColumn(name="q", asking=asking, scores=(score,)), 0, cells)
        found = await make_cells(maker, [APPLES])
        assert found.value == {"q": {"fit": {"score": 5, "reasoning": "r"}}}

    (seen,) = requests_for(lambda _: completion('{"fit": {"reasoning": "r", "score": 5}}'), body)
    sent = json.loads(seen.body)
    assert sent["response_format"]["json_schema"]["schema"] == schema_of([score])
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]


def test_vectors_come_from_an_embedding_service() -> None:
    async def body(cells: CellServices) -> None:
        column = EmbeddingColumn(name="v", provider=0, text="{{ topic }}", config={"dimensions": 2})
        found = await make_cells(EmbeddingMaker(column, 0, cells), [APPLES])
        assert found.value == {"v": [0.5, -1.0]}

    def respond(_seen: Seen) -> Answer:
        return as_json({"data": [{"embedding": [0.5, -1]}], "usage": {"prompt_tokens": 2}})

    (seen,) = requests_for(respond, body, "openai:embedding:text-embedding-3-small")
    assert seen.target.endswith("/embeddings")
    assert json.loads(seen.body)["input"] == "apples"
    assert json.loads(seen.body)["dimensions"] == 2


def test_a_request_that_exceeds_a_limit_costs_its_row_one_request(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n" + "".join(f"{n}\n" for n in range(12)))
    text = "Request too large for m on tokens per min (TPM): Limit 30000, Requested 41234."

    def respond(seen: Seen) -> Answer:
        if b"row 3." in seen.body:
            return as_json({"error": {"message": text, "code": "rate_limit_exceeded"}}, 429)
        return completion("fine")

    async def main() -> None:
        with trio.fail_after(60):
            async with serve(respond) as server:
                config = {"apiBaseUrl": server.url, "apiKey": "k"}
                entry = {"id": "openai:chat:m", "label": "m", "config": config}
                dataset = await build_columns(
                    {
                        "rows": 12,
                        "groupSize": 4,
                        "columns": [
                            {"type": "seed", "file": "rows.csv", "columns": ["id"]},
                            {
                                "name": "text",
                                "type": "llm",
                                "provider": "m",
                                "prompt": "row {{ id }}.",
                            },
                        ],
                    },
                    providers=[entry],
                    directory=tmp_path,
                )
                assert dataset.result.written == 11
                assert dataset.result.dropped == {"failed": 1}
                assert sum(b"row 3." in seen.body for seen in server.seen) == 1

    trio.run(main)
