"""How a run is told of while it goes on, and in which way."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import attrs

from trioeval.cli.flags import ProgressMode
from trioeval.cli.progress.log import RunLog
from trioeval.cli.progress.plain import show_lines
from trioeval.cli.progress.streams import is_github
from trioeval.report.run_state import RunState
from trioeval.suite.tests import Strip

_DUMB = frozenset({"dumb", "unknown"})
"""Terminals on which nothing can be drawn."""


def choose_mode(
    asked: ProgressMode | None, environ: Mapping[str, str], *, is_terminal: bool
) -> ProgressMode:
    """How the progress of a run is shown.

    Args:
        asked: What was asked for; None if nothing was.
        environ: The variables of the process.
        is_terminal: Whether stderr is one.

    Example:
        >>> choose_mode(None, {"TERM": "xterm"}, is_terminal=True)
        'live'
        >>> choose_mode(None, {"TERM": "dumb"}, is_terminal=True)
        'plain'
    """
    if asked is not None:
        return asked
    if is_github(environ):
        return "github"
    is_dumb = environ.get("TERM", "").lower() in _DUMB
    return "live" if is_terminal and not is_dumb else "plain"


@attrs.define
class Progress:
    """Shows how a run stands, again and again."""

    state: Callable[[], RunState]
    more: Callable[[], Sequence[str]]
    """Gives further lines, those of questions, datasets and agents; they are inert."""
    log: RunLog

    async def show(self) -> None:
        """Show it until cancelled, or until nobody can see it."""
        await self.log.show(self.state, self.more)


class PlainLog(RunLog):
    """Tells of a run in lines."""

    async def show(
        self, state: Callable[[], RunState], more: Callable[[], Sequence[str]], /
    ) -> None:
        """Tell a line now and then."""
        await show_lines(state, more)


class LiveLog(RunLog):
    """Draws on a terminal."""

    async def show(
        self, state: Callable[[], RunState], more: Callable[[], Sequence[str]], /
    ) -> None:
        """Draw in place."""
        from trioeval.cli.progress.live import show_live  # noqa: PLC0415 - where there is a terminal

        await show_live(state, more)


def open_log(
    asked: ProgressMode | None,
    environ: Mapping[str, str],
    stream: TextIO | None,
    *,
    suite: Path | None,
    strip: Strip,
) -> RunLog:
    """What tells of a run that begins.

    Args:
        asked: The way that was asked for; None if none was.
        environ: The variables of the process.
        stream: Its stderr; None where nobody can read that.
        suite: The file of the suite.
        strip: What must not be shown of rows.
    """
    if stream is None:
        return RunLog()
    match choose_mode(asked, environ, is_terminal=stream.isatty()):
        case "live":
            # What is asked for where there is no terminal would only fill a file.
            return LiveLog() if stream.isatty() else PlainLog()
        case "github":
            from trioeval.cli.progress.github import open_github_log  # noqa: PLC0415 - rarely needed

            return open_github_log(suite, strip, environ)
        case "json":
            from trioeval.cli.progress.json import JsonLog  # noqa: PLC0415 - rarely needed

            return JsonLog()
        case _:
            return PlainLog()
