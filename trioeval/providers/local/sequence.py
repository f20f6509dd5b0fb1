"""The provider that says what it was told to say, one thing after another.

Config keys:

* `inputs`: what to answer, in order.
* `strict`: whether there being nothing left to say is an error; otherwise the last answer is repeated.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import (
    Key,
    Settings,
    Shared,
    Surroundings,
    is_flag,
    is_json_list,
    read_config,
)
from trioeval.usage import Usage


def _is_inputs(value: Any) -> bool:
    return is_json_list(value) and len(value) > 0


KEYS = (
    Key("inputs", "a list of at least one answer", _is_inputs),
    Key("strict", "true or false", is_flag),
)


@attrs.frozen
class SequenceSettings(Settings):
    """What is said."""

    inputs: tuple[Any, ...] = attrs.field(repr=False)
    strict: bool = False

    @property
    def lane_key(self) -> str:
        """All sequences share one lane."""
        return "sequence"

    @asynccontextmanager
    async def open(self, _shared: Shared) -> AsyncGenerator["SequenceProvider"]:
        """A sequence that starts from its beginning."""
        yield SequenceProvider(self)


@attrs.define(eq=False)
class SequenceProvider:
    """Answers each call with what comes next, whatever it is asked."""

    settings: SequenceSettings
    _said: int = 0

    async def __call__(self, _request: Request, /) -> Reply:
        """Answer one request. Always a checkpoint.

        Raises:
            ProviderError: `replay_miss`, when a strict sequence is over.
        """
        inputs, turn = self.settings.inputs, self._said
        self._said += 1
        await trio.lowlevel.checkpoint()
        if turn >= len(inputs) and self.settings.strict:
            raise ProviderError("replay_miss", f"the sequence of {len(inputs)} answers is over")
        output = inputs[min(turn, len(inputs) - 1)]
        return Reply(output=output, usage=Usage(prompt=0, completion=0, total=0), cost=0.0)


def read(
    prefix: str, rest: str, config: Mapping[str, Any], _around: Surroundings
) -> SequenceSettings | list[Problem]:
    """Read an entry; see `Reader`."""
    values, problems = read_config(config, KEYS)
    if rest:
        fault = f'"{prefix}:{rest}" says more than "sequence"'
        problems.append(Problem(".id", fault, 'write "sequence"'))
    if "inputs" not in config:
        hint = 'for example "inputs": ["yes", "no"]'
        problems.append(Problem(".config.inputs", "there is nothing to answer", hint))
    if problems:
        return problems
    return SequenceSettings(tuple(values["inputs"]), strict=bool(values.get("strict")))
