"""Templates and the values in them. Every value in a page is foreign unless our own code made it.

Every value that a template writes is escaped, and freed of characters that reverse or hide text,
automatically. Only the output of our own macros is left unchanged.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from trioeval.providers.media import is_file_name
from trioeval.report.counts import money
from trioeval.store.database import media_folder
from trioeval.store.reader import StoreReader, read_store
from trioeval.text_safety import escape_control_characters, inert_lines

# Numbers, times and ages as text. Pure.


def count_text(number: float) -> str:
    """Return a number with separators of thousands.

    Example:
        >>> count_text(12345), count_text(7.5), count_text(60.0)
        ('12,345', '7.5', '60')
    """
    return f"{number:,.0f}" if number == int(number) else f"{number:,.1f}"


def seconds_text(seconds: float) -> str:
    """Return a duration.

    Example:
        >>> (
        ...     seconds_text(0.0002),
        ...     seconds_text(0.12),
        ...     seconds_text(3.21),
        ...     seconds_text(75),
        ...     seconds_text(7300),
        ... )
        ('< 1 ms', '120 ms', '3.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.001 else "< 1 ms"  # noqa: PLR2004
    if seconds < 60:  # noqa: PLR2004 - of a minute
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004 - of an hour
        return f"{minutes} min {left} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def money_text(dollars: float) -> str:
    """Return an amount of US dollars; a dash for 0.

    Example:
        >>> money_text(0), money_text(0.00123), money_text(12.5)
        ('–', '$0.0012', '$12.50')
    """
    if not dollars:
        return "–"
    return money(dollars)


def age_text(utc: str, now: datetime) -> str:
    """Return the age of an instant.

    Args:
        utc: ISO 8601.
        now: The present time.

    Example:
        >>> age_text("2026-01-01T00:00:00.000Z", datetime(2026, 1, 1, 3, 0, tzinfo=UTC))
        '3 h ago'
        >>> age_text("long ago", datetime(2026, 1, 1, tzinfo=UTC))
        ''
    """
    try:
        then = datetime.fromisoformat(utc)
    except ValueError:
        return ""
    seconds = (now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size):,} {unit} ago"
    return f"{max(0, int(seconds))} s ago"


# The database of runs, read in threads, so that a slow disk or a large run delays no other page.


T = TypeVar("T")

LARGEST_FILE = 256 * 2**20
"""Bytes of a file of media that is served."""


@attrs.frozen
class StoreReading:
    """A reader that opens a connection for each call, so that nothing is locked in between."""

    path: Path
    """The path of the database, which need not exist yet."""
    _threads: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(4))
    _long_ones: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))

    async def is_there(self) -> bool:
        """Return whether the database exists: the first run creates it. A checkpoint."""
        return await trio.to_thread.run_sync(self.path.exists, limiter=self._threads)

    async def read(self, look: Callable[[StoreReader], T], *, takes_long: bool = False) -> T:
        """Return the result of `look`. A checkpoint; the thread of a cancelled call is abandoned.

        Args:
            look: The function to call in a thread.
            takes_long: Whether it waits for other long calls, and blocks only them.

        Raises:
            StoreError: The database cannot be read.
        """

        def work() -> T:
            with read_store(self.path) as reader:
                return look(reader)

        threads = self._long_ones if takes_long else self._threads
        return await trio.to_thread.run_sync(work, limiter=threads, abandon_on_cancel=True)

    async def media(self, file: str) -> bytes | None:
        """Return a file of media; None if there is none of this name. A checkpoint.

        Args:
            file: The name, from anywhere.
        """

        def work() -> bytes | None:
            path = media_folder(self.path) / file
            try:
                size = path.stat().st_size
                return path.read_bytes() if size <= LARGEST_FILE and path.is_file() else None
            except OSError:
                return None

        if not is_file_name(file):
            await trio.lowlevel.checkpoint()
            return None
        return await trio.to_thread.run_sync(work, limiter=self._threads, abandon_on_cancel=True)


_FOLDER = Path(__file__).parent / "templates"
_LONG = 100_000
"""The most characters of a text in a page; longer texts need an export."""


def harmless(value: Any) -> Any:
    r"""Return a value of a template: our own markup unchanged, and text that is inert.

    Example:
        >>> harmless("a\u202eb\x1b[1m"), harmless(None), harmless(3)
        ('a b [1m', '', 3)
    """
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return value if value.isprintable() and len(value) <= _LONG else inert_lines(value, _LONG)


def short(text: object, width: int) -> str:
    """Return a foreign text on one line of at most this many characters."""
    return escape_control_characters(text, width)


@attrs.frozen
class Pages:
    """The renderer of pages and their parts."""

    _templates: Environment

    @classmethod
    def load(cls) -> "Pages":
        """Return a renderer; templates are read on first use."""
        templates = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=harmless,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        templates.filters |= {
            "count": count_text,
            "seconds": seconds_text,
            "money": money_text,
            "short": short,
        }
        return cls(templates)

    def render(self, name: str, **given: Any) -> str:
        """Return a page or a part of one.

        Args:
            name: The name of its template, without its suffix.
            given: The variables of the template.
        """
        return self._templates.get_template(f"{name}.html.j2").render(**given)
