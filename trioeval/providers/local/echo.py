"""The provider that returns the prompt: for testing suites without a model.

It ignores its config, so replacing a suite's providers by `echo` is a dry run.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from trioeval.errors import Problem
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import EntryContext, ProviderResources, ProviderSettings
from trioeval.usage import Usage

_NO_TOKENS = Usage(prompt=0, completion=0, total=0)


@attrs.frozen
class EchoProvider:
    """Returns the prompt; costs nothing and uses no tokens."""

    async def __call__(self, request: Request, /) -> Reply:
        """Return the prompt. A checkpoint only if cancelled: the scheduler would cost as much as the row."""
        await trio.lowlevel.checkpoint_if_cancelled()
        return Reply(output=request.prompt, usage=_NO_TOKENS, cost=0.0)


@attrs.frozen
class EchoSettings(ProviderSettings):
    """The settings of an echo; there are none."""

    @property
    def ignores_variables(self) -> bool:
        """True: it reads only the prompt."""
        return True

    @property
    def lane_key(self) -> str:
        """All echoes share one lane."""
        return "echo"

    @asynccontextmanager
    async def open(self, _shared: ProviderResources) -> AsyncGenerator[EchoProvider]:
        """Open an echo."""
        yield EchoProvider()


def read(
    prefix: str, rest: str, _config: Mapping[str, Any], _context: EntryContext
) -> EchoSettings | list[Problem]:
    """Read an entry; see `Reader`."""
    if rest:
        return [Problem(".id", f'"{prefix}:{rest}" is not a valid id', 'write "echo"')]
    return EchoSettings()
