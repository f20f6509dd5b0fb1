"""What the commands for message buses have in common: their flags as values, and messages as lines. Pure."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import attrs

from trioeval.agents.bus.messages import TYPES, Message
from trioeval.errors import UsageError

BUS_VARIABLE = "TRIOEVAL_BUS"

_WORD = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_MOST_DIGITS = 18  # of a number of a message; what is longer is no number of one
_SECONDS = len("2026-01-02T03:04:05")
_INDENT = "    "


@attrs.frozen
class BusFlags:
    """Reads what flags say, and gathers what is wrong with it.

    Example:
        >>> flags = BusFlags({"TRIOEVAL_BUS": "/runs/bus"})
        >>> flags.folder(None).as_posix(), flags.cursor("12"), flags.types("--type", ["fact"])
        ('/runs/bus', 12, ('fact',))
        >>> flags.mistakes
        ["--type must be a word in capitals, as FACT, got 'fact'"]
    """

    environ: Mapping[str, str]
    mistakes: list[str] = attrs.field(factory=list)

    def folder(self, flag: str | None) -> Path:
        """The folder of the bus. A flag that is blank is a mistake: it means no other bus."""
        named = flag if flag is not None else self.environ.get(BUS_VARIABLE)
        if flag is not None and not flag.strip():
            self.mistakes.append("--bus must not be blank")
        elif not (named and named.strip()):
            self.mistakes.append(f"say which bus: --bus FOLDER (or {BUS_VARIABLE})")
        return Path(named or "")

    def text(self, flag: str, value: str) -> str:
        """What a flag says in words."""
        if not _is_text(value):
            self.mistakes.append(f"{flag} must be text in UTF-8, got {value!a}")
        return value

    def texts(self, flag: str, values: Sequence[str]) -> tuple[str, ...]:
        """What a flag says that may be given several times; none of it blank."""
        if not all(value.strip() for value in values):
            self.mistakes.append(f"{flag} must not be blank")
        return tuple(self.text(flag, value) for value in values)

    def optional(self, flag: str, value: str | None, variable: str | None = None) -> str | None:
        """What a flag, or else a variable, says; None where it is blank."""
        said = value if value is not None or variable is None else self.environ.get(variable)
        return self.text(flag, said) if said and said.strip() else None

    def types(self, flag: str, values: Sequence[str]) -> tuple[str, ...]:
        """Types of messages."""
        for value in values:
            if not _WORD.fullmatch(value):
                example = value.upper() if value.upper() in TYPES else TYPES[0]
                self.mistakes.append(
                    f"{flag} must be a word in capitals, as {example}, got {value!a}"
                )
        return tuple(values)

    def pairs(self, flag: str, values: Sequence[str]) -> Mapping[str, str]:
        """What is said as KEY=VALUE."""
        found: dict[str, str] = {}
        for value in values:
            key, equals, rest = self.text(flag, value).partition("=")
            if not equals or not key.strip():
                self.mistakes.append(f"{flag} must be KEY=VALUE, got {value!a}")
            elif key in found:
                self.mistakes.append(f"{flag} says {key!a} twice")
            found[key] = rest
        return found

    def cursor(self, value: str | None) -> int | str | None:
        """After which message to read: its number or id; None, the beginning, where it is blank."""
        if value is None or not value.strip():
            return None
        is_number = value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS
        return int(value) if is_number else self.text("--since", value)

    def check(self) -> None:
        """Go on only where nothing is wrong.

        Raises:
            UsageError: With everything that is.
        """
        if self.mistakes:
            raise UsageError("\n".join(self.mistakes))


def is_wanted(message: Message, types: Collection[str]) -> bool:
    """Whether a message is of one of the types; all are where none is named."""
    return not types or message.draft.type in types


def message_text(message: Message, *, as_json: bool) -> str:
    """A message as it is printed, without a line end behind it.

    JSON is one line of ASCII, whatever the terminal. Else the first line begins with number, time, type and
    task, and each further one with blanks, so that no body looks like another message; characters that a
    terminal might obey are blanks.
    """
    if as_json:
        return json.dumps(message.json())
    draft = message.draft
    task = _plain(draft.task_id or "").strip() or "-"
    head = f"{message.seq} {_plain(message.utc[:_SECONDS])}Z {draft.type} {task}"
    body = draft.body.replace("\r\n", "\n").removesuffix("\n").replace("\t", _INDENT)
    first, *others = map(_plain, body.split("\n"))
    return f"\n{_INDENT}".join([f"{head} {first}" if first else head, *others])


def _plain(text: str) -> str:
    # As `report.inert` does, which would import all of the reports: half a second for a line.
    return "".join(char if char.isprintable() else " " for char in text)


def _is_text(value: str) -> bool:
    # What the shell gave as other bytes has halves of characters in their place.
    return not any("\ud800" <= char <= "\udfff" for char in value)
