"""What judges ask that is neither a model nor in this process: workers that run code, commands, servers."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from trioeval.grading.outside import Commands
from trioeval.providers.programs.workers import Encoded
from trioeval.providers.wire import TlsSettings
from trioeval.suite.sources.around import Around
from trioeval.tasks.commands import SuiteCommands
from trioeval.tasks.scripts import LIMIT, Scripts, open_scripts
from trioeval.tasks.user_code import UserCode
from trioeval.tasks.webhooks import Webhooks, open_webhooks

WORKERS = 4
"""Most processes that the code of one function has where nobody says how many: one that hangs must not keep
all other rows waiting."""

MEMORY_MB = 4096
"""Mebibytes that each of them may have where nobody says how many."""


@attrs.frozen
class Means:
    """What the judges of one run share."""

    scripts: Scripts
    webhooks: Webhooks
    commands: Commands
    directory: Path
    """Of the suite; absolute."""
    limit: float
    """Seconds that a script may take."""

    def code(self, context: Callable[[], Encoded]) -> UserCode:
        """What runs the code of one assertion, which is told what `context` makes."""
        return UserCode(self.scripts, context, self.limit)


@asynccontextmanager
async def open_means(
    around: Around, tls: TlsSettings | None = None, *, hosts: frozenset[str] | None = None
) -> AsyncGenerator[Means]:
    """What the judges of one run share, for as long as the block; no process starts before it is needed.

    Args:
        around: Where code runs. Its `PYTHON_WORKERS` says how many processes each function has, its
            `SCRIPT_TIMEOUT_MS` how long a script may take, and its `SCRIPT_MEMORY_MB` how much memory it may
            have (0 does not limit it).
        tls: How servers are trusted; None is the usual way.
        hosts: The only hosts that requests may go to; None allows all.
    """
    environ = around.environ
    workers = _number(around.variable("PYTHON_WORKERS")) or min(
        max(os.cpu_count() or 1, 2), WORKERS
    )
    memory = _number(around.variable("SCRIPT_MEMORY_MB"))
    limit = (_number(around.variable("SCRIPT_TIMEOUT_MS")) or LIMIT * 1000) / 1000
    async with (
        open_scripts(
            around.directory,
            environ,
            workers=workers,
            memory_mb=MEMORY_MB if memory is None else memory,
            trust=around.trust,
        ) as scripts,
        open_webhooks(environ, tls, hosts=hosts) as webhooks,
    ):
        commands = SuiteCommands(around.directory, environ, around.trust)
        yield Means(scripts, webhooks, commands, around.directory, limit)


def _number(wanted: str) -> int | None:
    return int(wanted) if wanted.isdecimal() else None
