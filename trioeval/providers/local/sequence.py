# Separate from `providers.abilities`: it is a provider of its own, found by its name.
"""The provider that returns configured replies, one after another.

Config keys:

* `inputs`: the replies, in order.
* `strict`: whether a call after the last reply is an error; otherwise the last reply is repeated.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import (
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    is_flag,
    is_json_list,
    read_config,
)
from trioeval.usage import Usage


def _is_inputs(value: Any) -> bool:
    return is_json_list(value) and len(value) > 0


KEYS = (
    Key("inputs", "a list of at least one reply", _is_inputs),
    Key("strict", "true or false", is_flag),
)


@attrs.frozen
class SequenceSettings(ProviderSettings):
    """The replies."""

    inputs: tuple[Any, ...] = attrs.field(repr=False)
    strict: bool = False

    @property
    def ignores_variables(self) -> bool:
        """True: it reads only the prompt."""
        return True

    @property
    def lane_key(self) -> str:
        """All sequences share one lane."""
        return "sequence"

    @asynccontextmanager
    async def open(self, _shared: ProviderResources) -> AsyncGenerator["SequenceProvider"]:
        """Open a sequence at its beginning."""
        yield SequenceProvider(self)


@attrs.define(eq=False, repr=False)
class SequenceProvider:
    """Returns the next reply for each call, whatever the request."""

    settings: SequenceSettings
    _turn: int = 0

    async def __call__(self, _request: Request, /) -> Reply:
        """Return the next reply. Always a checkpoint.

        Raises:
            ProviderError: `replay_miss`, after the end of a strict sequence.
        """
        inputs, turn = self.settings.inputs, self._turn
        self._turn += 1
        await trio.lowlevel.checkpoint()
        if turn >= len(inputs) and self.settings.strict:
            replies = "1 reply" if len(inputs) == 1 else f"{len(inputs)} replies"
            raise ProviderError("replay_miss", f"the sequence has only {replies}")
        output = inputs[min(turn, len(inputs) - 1)]
        return Reply(output=output, usage=Usage(prompt=0, completion=0, total=0), cost=0.0)


def read(
    prefix: str, rest: str, config: Mapping[str, Any], _context: EntryContext
) -> SequenceSettings | list[Problem]:
    """Read an entry; see `Reader`."""
    values, problems = read_config(config, KEYS)
    if rest:
        fault = f'"{prefix}:{rest}" is not a valid id'
        problems.append(Problem(".id", fault, 'write "sequence"'))
    if "inputs" not in config:
        hint = 'for example "inputs": ["yes", "no"]'
        problems.append(Problem(".config.inputs", "missing", hint))
    if problems:
        return problems
    return SequenceSettings(tuple(values["inputs"]), strict=bool(values.get("strict")))
