"""The provider that says what it was asked: for trying out suites without a model.

It looks at no config, so a suite whose providers are replaced by `echo` is a dry run of it.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from trioeval.errors import Problem
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import Settings, Shared, Surroundings
from trioeval.usage import Usage


@attrs.frozen
class EchoProvider:
    """Answers with the prompt; costs nothing and uses no tokens."""

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request. Always a checkpoint, so that a long run can be cancelled."""
        await trio.lowlevel.checkpoint()
        return Reply(output=request.prompt, usage=Usage(prompt=0, completion=0, total=0), cost=0.0)


@attrs.frozen
class EchoSettings(Settings):
    """There is nothing to say of an echo."""

    @property
    def lane_key(self) -> str:
        """All echoes share one lane."""
        return "echo"

    @asynccontextmanager
    async def open(self, _shared: Shared) -> AsyncGenerator[EchoProvider]:
        """An echo."""
        yield EchoProvider()


def read(
    prefix: str, rest: str, _config: Mapping[str, Any], _around: Surroundings
) -> EchoSettings | list[Problem]:
    """Read an entry; see `Reader`."""
    if rest:
        return [Problem(".id", f'"{prefix}:{rest}" says more than "echo"', 'write "echo"')]
    return EchoSettings()
