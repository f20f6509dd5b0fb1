"""Arguments that the parser cannot read: flags with optional values, and texts that begin with `-`. Pure."""

import re
from collections.abc import Iterator, Sequence

LATEST = "latest"
"""The run that `--resume` continues if it names none: the latest run of its suite."""

SUITE_SUFFIXES = (".json", ".yaml", ".yml", ".toml")
"""The ends of the names of suite files."""

_OPTIONAL = {"--resume": LATEST}
_POST = ["bus", "post"]
_DASHED = re.compile(r"-(?!-?[a-zA-Z]|-?$)|-$")  # a dash that is not the start of a flag


def with_values(arguments: Sequence[str]) -> list[str]:
    """Return the arguments, with values for flags that were given without one.

    The word after such a flag is its value unless it is a flag or the name of a suite file.
    A text of `bus post` that begins with a dash and is not a flag, including `-` alone, moves behind a `--`.

    Example:
        >>> with_values(["--resume", "s.yaml", "-j", "3"])
        ['--resume=latest', 's.yaml', '-j', '3']
        >>> with_values(["s.yaml", "--resume", "eval-2026"])
        ['s.yaml', '--resume=eval-2026']
        >>> with_values(["bus", "post", "-", "--type", "FACT"])
        ['bus', 'post', '--type', 'FACT', '--', '-']
    """
    found = list(_with_values(iter(arguments)))
    if found[: len(_POST)] != _POST or "--" in found:
        return found
    rest = found[len(_POST) :]
    for place in (0, -1):  # elsewhere it may be the value of a flag
        if rest and _DASHED.match(rest[place]):
            text = rest.pop(place)
            return [*_POST, *rest, "--", text]
    return found


def _with_values(arguments: Iterator[str]) -> Iterator[str]:
    for argument in arguments:
        if argument == "--":
            yield argument
            yield from arguments
        elif argument not in _OPTIONAL:
            yield argument
        else:
            following = next(arguments, None)
            if following is not None and _is_value(following):
                yield f"{argument}={following}"
            else:
                yield f"{argument}={_OPTIONAL[argument]}"
                if following is not None:
                    yield from _with_values(iter([following, *arguments]))


def _is_value(text: str) -> bool:
    return not text.startswith("-") and not text.lower().endswith(SUITE_SUFFIXES)
