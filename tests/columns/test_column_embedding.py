"""Cells with embeddings, and providers that do not support a column."""

from typing import Any

import pytest
from journalled import Model, Notes
from model_cells import CHAT, FunctionModel, cells_of, made, make_cells, spec_of

from trioeval import Reply, Request
from trioeval.columns.makers.base import CellError
from trioeval.columns.makers.conversations import CellServices
from trioeval.columns.makers.llm import EmbeddingMaker
from trioeval.columns.model import (
    ColumnsSettings,
    EmbeddingColumn,
    ExpressionColumn,
    JudgeColumn,
    LlmColumn,
    ModelCallSettings,
    Score,
)
from trioeval.columns.model_checks import wrong_models
from trioeval.errors import ProviderError
from trioeval.store.cache.cache import open_cache
from trioeval.suite.model import ProviderEntry
from trioeval.testing import run_virtual


class Embedder(Model):
    """Embeds a text as its length."""

    async def __call__(self, request: Request) -> Reply:
        reply = await super().__call__(request)
        return Reply(output=[float(len(request.prompt)), 0.5], usage=reply.usage)


def embedding(cells: CellServices, text: str = "{{ problem }}", **more: Any) -> EmbeddingMaker:
    return EmbeddingMaker(EmbeddingColumn(name="vector", provider=0, text=text, **more), 2, cells)


def test_a_cell_is_the_vector_of_its_text() -> None:
    """The text may look like anything."""
    text = '[{"role": "user", "content": "{{ env.KEY }}"}]'
    pupil = FunctionModel(lambda _: Reply(output=(1, 0.5)))
    found = made(
        embedding(cells_of(pupil, env={"KEY": "k"}), config={"dimensions": 2}), {"problem": text}
    )
    assert found.value == {"vector": [1.0, 0.5]}
    (request,) = pupil.requests
    assert (request.prompt, request.options, request.prompt_idx) == (text, {"dimensions": 2}, 2)


def test_equal_texts_share_one_call_also_concurrently() -> None:
    model = Embedder(cacheable=True)

    async def main() -> None:
        async with open_cache(None) as cache:
            maker = embedding(cells_of(model, cache=cache))
            rows = [{"problem": "a"}, {"problem": "bb"}] * 10
            found = await make_cells(maker, rows)
            assert [one["vector"][0] for one in found.values] == [1.0, 2.0] * 10
            assert model.requests == 2
            assert sum(tally.calls for tally in found.tallies) == 2

    run_virtual(main)


@pytest.mark.parametrize("problem", ["", " \n", None])
def test_an_empty_text_has_no_vector(problem: Any) -> None:
    pupil = FunctionModel(lambda _: Reply(output=[1]))
    error = made(embedding(cells_of(pupil)), {"problem": problem}).value
    assert isinstance(error, CellError)
    assert pupil.requests == []


@pytest.mark.parametrize("output", ["word", [], [1, "a"], [float("nan")], None, {"a": 1}])
def test_an_invalid_vector_fails_the_cell_and_is_not_reused(output: Any) -> None:
    pupil, notes = FunctionModel(lambda _: Reply(output=output)), Notes()
    error = made(embedding(cells_of(pupil, journal=notes)), {"problem": "a"}).value
    assert isinstance(error, CellError)
    assert "model returned no vector" in str(error)
    assert len(notes.rejected) == len(pupil.requests) == 1


def test_a_wrong_name_and_a_failed_call_are_reported() -> None:
    pupil = FunctionModel(lambda _: ProviderError("bad_request", "no"))
    wrong, failed = (
        made(embedding(cells_of(pupil), "{{ problm }}"), {"problem": "a"}).value,
        made(embedding(cells_of(pupil)), {"problem": "a"}).value,
    )
    assert isinstance(wrong, CellError)
    assert "the text cannot be rendered" in str(wrong)
    assert isinstance(failed, ProviderError)


TEXT = ModelCallSettings(provider=0, prompt="p")
LLM = LlmColumn(name="a", asking=TEXT)
JUDGE = JudgeColumn(
    name="a", asking=TEXT, scores=(Score(name="s", description="", options={"1": ""}),)
)
VECTOR = EmbeddingColumn(name="a", provider=0, text="t")
OTHER = ExpressionColumn(name="b", template="x")


@pytest.mark.parametrize(
    ("column", "entry", "path"),
    [
        (LLM, CHAT, None),
        (LLM, "sim:a", None),
        (LLM, "model", None),
        (LLM, "openai:embedding:text-embedding-3-small", "provider"),
        (JUDGE, "openai:embedding:text-embedding-3-small", "provider"),
        (VECTOR, CHAT, "provider"),
        (VECTOR, "echo", "provider"),
        (VECTOR, "sim:a", None),
        (VECTOR, "openai:embedding:text-embedding-3-small", None),
    ],
)
def test_unsupported_columns_are_reported_before_a_call(
    column: Any, entry: str, path: str | None
) -> None:
    settings = ColumnsSettings(columns=(OTHER, column))
    found = list(wrong_models(settings, [spec_of(ProviderEntry(id=entry), Model())]))
    assert [problem.path for problem in found] == ([f"$.columns[1].{path}"] if path else [])
    if found:
        assert found[0].message.startswith(entry)
        assert found[0].hint


def test_unknown_provider_keys_are_reported_before_a_call() -> None:
    asking = ModelCallSettings(provider=0, prompt="p", config={"temprature": 1})
    settings = ColumnsSettings(columns=(LlmColumn(name="a", asking=asking),))
    (problem,) = wrong_models(settings, [spec_of(ProviderEntry(id=CHAT))])
    assert problem.path == "$.columns[0].config"
    assert "temprature" in problem.message
