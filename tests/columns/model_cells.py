"""Cells of one column, made by callables as providers in virtual time."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from journalled import Model

from trioeval import Reply, Request
from trioeval.columns.graph import MakeJob
from trioeval.columns.makers.base import CellMaker, CellOrder, JobCosts
from trioeval.columns.makers.conversations import CellServices
from trioeval.columns.makers.llm import LlmMaker
from trioeval.columns.model import LlmColumn, ModelCallSettings
from trioeval.evaluation.metering import CallMeter
from trioeval.evaluation.provider_calls import ReplySource
from trioeval.kernel import Calls, Done, Failed, Job, Lanes, LaneSpec, Outcome, Plan, collect
from trioeval.providers import OpenProvider
from trioeval.providers.local.custom import CustomProvider
from trioeval.providers.resolve import ProviderSpec, resolve
from trioeval.suite.model import ProviderEntry
from trioeval.templates import Templates
from trioeval.testing import run_virtual

Row = Mapping[str, Any]

CHAT = "openai:chat:gpt-4.1"
"""A service that supports schemas."""


def spec_of(entry: ProviderEntry, model: Any = None) -> ProviderSpec:
    """Return the spec of an entry, which may be the id of a callable."""
    is_known = entry.id.partition(":")[0] in {"echo", "openai", "sim"}
    return resolve(
        entry.id,
        entry.config,
        environ={"OPENAI_API_KEY": "sk-0123456789abcdef"},
        directory=Path(),
        templates=Templates(),
        custom={} if is_known else {entry.id: model},
    )


def cells_of(
    model: Any,
    *,
    entry: str = "model",
    config: Row | None = None,
    env: Mapping[str, str] | None = None,
    seed: int = 0,
    task: str | None = "t",
    **more: Any,
) -> CellServices:
    """Return the services of one provider whose replies come from a callable."""
    entry_config = ProviderEntry(id=entry, config=config or {})
    spec = spec_of(entry_config, model)
    provider = OpenProvider(spec, 0, CustomProvider(entry, model), spec.secrets, None)
    asker = ReplySource(
        providers=[provider],
        entries=[entry_config],
        lanes=["m"],
        meter=CallMeter([spec.metering], ["m"], bounds_only=False),
        row_ids=str,
        task=task,
        **more,
    )
    templates = Templates(env=env or {}, strict=True)
    return CellServices(asker=asker, templates=templates, seed=seed)


def writer(cells: CellServices, prompt: str = "Write about {{ topic }}.", **more: Any) -> LlmMaker:
    """Return the maker of a column `text`; keys of `ModelCallSettings` are passed to it."""
    named = {field.name for field in attrs.fields(ModelCallSettings)}
    asking = {name: value for name, value in more.items() if name in named}
    own = {name: value for name, value in more.items() if name not in named}
    column = LlmColumn(
        name="text", asking=ModelCallSettings(provider=0, prompt=prompt, **asking), **own
    )
    return LlmMaker(column, 0, cells)


@attrs.define
class Made:
    """The results of the cells of one run."""

    outcomes: list[Outcome[Row]] = attrs.field(factory=list)
    tallies: list[JobCosts] = attrs.field(factory=list)

    @property
    def values(self) -> list[Any]:
        """Return the value of each cell, or its error."""
        return [
            one.value if isinstance(one, Done) else one.error if isinstance(one, Failed) else one
            for one in self.outcomes
        ]

    @property
    def value(self) -> Any:
        """Return the value of the only cell."""
        (found,) = self.values
        return found


async def make_cells(maker: CellMaker, rows: Sequence[Row], *, width: int = 8, **how: Any) -> Made:
    """Make one cell per row, with at most `width` concurrent calls; other arguments are for the run."""
    made = Made(tallies=[JobCosts() for _ in rows])

    async def perform(job: Job[None], calls: Calls[None]) -> Row:
        order = CellOrder(MakeJob(0, 0, job.index), values=dict(rows[job.index]))
        order.tally = made.tallies[job.index]
        return await maker.make(order, calls)

    plan = Plan.of([Job(index, maker.lane, None) for index in range(len(rows))])
    lanes = Lanes([LaneSpec(maker.lane, width)])
    made.outcomes = sorted(
        await collect(plan, perform, lanes=lanes, **how), key=lambda one: one.index
    )
    return made


def made(maker: CellMaker, *rows: Row, **how: Any) -> Made:
    """Make one cell per row in virtual time."""
    return run_virtual(lambda: make_cells(maker, rows, **how))


def saying(*outputs: Any, **more: Any) -> Model:
    """Return a model that gives several outputs in order, and repeats the last one; data becomes JSON."""
    texts = [one if isinstance(one, str) else json.dumps(one) for one in outputs]
    left = itertools.chain(texts, itertools.repeat(texts[-1]))
    return Model(says=lambda _: next(left), **more)


@attrs.define
class FunctionModel:
    """A provider that replies with the result of a function of the request.

    A reply, a text, or an exception to raise.
    """

    says: Callable[[Request], Any]
    requests: list[Request] = attrs.field(factory=list)

    async def __call__(self, request: Request) -> Reply:  # noqa: ASYNC124 - answers at once
        self.requests.append(request)
        result = self.says(request)
        if isinstance(result, Exception):
            raise result
        return result if isinstance(result, Reply) else Reply(output=result)

    def messages(self, number: int = -1) -> list[Row]:
        """Return the messages that it was sent as JSON."""
        found: list[Row] = json.loads(self.requests[number].prompt)
        return found
