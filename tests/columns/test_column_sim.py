"""A dataset without network or key: simulated models write word problems and judge them."""

import json
from typing import Any

import attrs
from model_cells import Made, cells_of, make_cells, writer

from trioeval.columns.makers.base import CellError
from trioeval.columns.makers.conversations import CellServices
from trioeval.columns.makers.llm import JudgeMaker
from trioeval.columns.model import JudgeColumn, ModelCallSettings, Score
from trioeval.providers import open_providers
from trioeval.templates import Templates
from trioeval.testing import run_virtual

ROWS = [{"name": name, "a": a, "b": 3} for a in range(10) for name in ("Ada", "Bo")]
TELLS = "{{ name }} has {{ a }} apples and buys {{ b }}. How many are there?"
CLARITY = Score(name="clarity", description="Is it clear?", options={"1": "no", "5": "yes"})
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def simulated(body: Any, **config: Any) -> Any:
    """Return the result of a body that gets cells of a simulated model."""
    found = cells_of(None, entry="sim:pupil", config=config)
    async with open_providers([one.spec for one in found.asker.providers], Templates()) as opened:
        return await body(attrs.evolve(found, asker=attrs.evolve(found.asker, providers=opened)))


def written(**config: Any) -> Made:
    """Return the problems of some rows, while servers fail and lanes are throttled."""

    async def body(cells: CellServices) -> Made:
        return await make_cells(writer(cells, "{{ name }} {{ a }} {{ b }}"), ROWS, salvage_rounds=2)

    made: Made = run_virtual(
        lambda: simulated(body, answer=TELLS, errorRate=0.2, throttleRate=0.2, **config)
    )
    return made


def test_word_problems_are_generated_in_spite_of_failures() -> None:
    first, again = written(), written()
    assert first.values[1] == {"text": "Bo has 0 apples and buys 3. How many are there?"}
    assert len({one["text"] for one in first.values}) == len(ROWS)
    assert again.values == first.values
    assert sum(tally.calls for tally in first.tallies) > len(ROWS)


def test_a_simulated_judge_gives_two_scores() -> None:
    def says(score: int) -> str:
        return json.dumps({"clarity": {"reasoning": "by its words", "score": score}})

    async def body(cells: CellServices) -> Made:
        asking = ModelCallSettings(provider=0, prompt="{{ name }} {{ a }}")
        column = JudgeColumn(name="quality", asking=asking, scores=(CLARITY,))
        return await make_cells(JudgeMaker(column, 0, cells), ROWS)

    made = run_virtual(lambda: simulated(body, answer=says(5), wrongAnswer=says(1), quality=0.7))
    scores = [one["quality"]["clarity"]["score"] for one in made.values]
    assert set(scores) == {1, 5}
    assert scores.count(5) > scores.count(1)


def test_mistakes_may_be_corrected_after_a_restart() -> None:
    async def body(cells: CellServices) -> Made:
        return await make_cells(writer(cells, "{{ a }} {{ name }}", schema=SCHEMA), ROWS)

    config = {"answer": '{"n": {{ a + b }}}', "quality": 0.5}
    made = run_virtual(lambda: simulated(body, **config))
    right = [one for one in made.values if not isinstance(one, CellError)]
    assert len(right) > len(ROWS) * 0.9
    assert {"text": {"n": 12}} in right
    assert sum(tally.calls for tally in made.tallies) > len(ROWS)
