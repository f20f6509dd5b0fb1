"""Reading the `config` of a provider: known keys, right types, and every mistake at once."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from trioeval.errors import Problem

Check: TypeAlias = Callable[[Any], bool]


@attrs.frozen
class Key:
    """One key that a provider knows."""

    name: str
    """As documented; the camelCase and snake_case spellings mean the same."""
    right: str
    """What its value must be, for the sentence "must be …"."""
    check: Check
    secret: bool = False
    """Whether a wrong value must not be shown."""


def read_config(
    config: Mapping[str, Any], keys: Iterable[Key]
) -> tuple[dict[str, Any], list[Problem]]:
    """The values by snake_case key, and what is wrong with the others.

    A key whose value is null is kept with None: it takes a default away.

    Returns:
        The values that are right, and the problems, with paths that begin with `.config`.
    """
    known = {to_snake(key.name): key for key in keys}
    values: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    problems: list[Problem] = []
    for spelling, value in config.items():
        path = config_path(spelling)
        name = to_snake(str(spelling))
        key = known.get(name)
        if key is None:
            problems.append(Problem(path, f'"{spelling}" is not a key', _meant(name, known)))
        elif name in spellings:
            both = f'"{spellings[name]}" and "{spelling}"'
            problems.append(Problem(path, f"{both} mean the same", "keep one of them"))
        elif value is not None and not key.check(value):
            got = "; what is there is not shown" if key.secret else f", got {show(value)}"
            problems.append(Problem(path, f"must be {key.right}{got}"))
        else:
            spellings[name] = spelling
            values[name] = value
    return values, problems


def to_snake(name: str) -> str:
    """`maxTokens` as `max_tokens`; a name in snake_case stays as it is."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def config_path(key: object) -> str:
    """Where a key of the config is, relative to the provider's entry."""
    text = str(key)
    return f".config.{text}" if re.fullmatch(r"[A-Za-z_]\w*", text) else f".config[{show(text)}]"


def show(value: object, limit: int = 60) -> str:
    """A value as it would stand in the file, shortened to `limit` characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _meant(name: str, known: Mapping[str, Key]) -> str:
    if not known:
        return "this provider takes no config"
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f'did you mean "{known[close[0]].name}"?'
    return f"known are {', '.join(sorted(key.name for key in known.values()))}"


def is_text(value: Any) -> bool:
    """Whether it is text that says something."""
    return isinstance(value, str) and bool(value.strip())


def is_flag(value: Any) -> bool:
    """Whether it is true or false."""
    return isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Whether it is a whole number; true and false are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and is_json(value)


def is_count(value: Any) -> bool:
    """Whether it is a whole number of at least 1."""
    return is_integer(value) and value >= 1


def is_amount(value: Any) -> bool:
    """Whether it is a finite number of at least 0."""
    return is_number(value) and value >= 0


def is_positive(value: Any) -> bool:
    """Whether it is a finite number above 0."""
    return is_number(value) and value > 0


def is_visible(text: str) -> bool:
    """Whether a text is printable ASCII, as headers and URLs must be."""
    return text.isascii() and text.isprintable()


def is_visible_text(value: Any) -> bool:
    """Whether it is text of printable ASCII that says something."""
    return is_text(value) and is_visible(value)


def is_json(value: Any) -> bool:
    """Whether it can be written as JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def is_json_object(value: Any) -> bool:
    """Whether it is a JSON object."""
    return isinstance(value, Mapping) and is_json(value)


def is_json_list(value: Any) -> bool:
    """Whether it is a JSON list."""
    return isinstance(value, list | tuple) and is_json(value)


def is_texts(value: Any) -> bool:
    """Whether it is a list of texts that say something."""
    return is_json_list(value) and all(map(is_text, value))
