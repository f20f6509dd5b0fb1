"""What entries of programs have in common: configs that are partly the user's own, and what a call is told.

A key that the provider knows is checked. Any other one is the user's own and handed to the program, unless
it is a known one in a wrong spelling.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Request
from trioeval.providers.config import (
    Key,
    config_path,
    is_json,
    is_positive,
    is_text,
    read_config,
    show,
    to_snake,
)
from trioeval.providers.secret_names import is_secret_name
from trioeval.providers.secrets import secret_parts

_LONG = 12
"""Characters from which a value of the environment is taken for a secret, not for a word."""


def _is_variables(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        is_text(name) and isinstance(text, str) and "=" not in name and "\0" not in name + text
        for name, text in value.items()
    )


TIMEOUT = Key("timeoutMs", "a number of milliseconds above 0", is_positive)
ENVIRONMENT = Key("env", "an object of texts", _is_variables, secret=True)
DEFAULT_TIMEOUT = 300.0
"""Seconds that a call may take where the config says nothing."""


def read_own_config(
    config: Mapping[str, Any], keys: Iterable[Key]
) -> tuple[dict[str, Any], dict[str, Any], list[Problem]]:
    r"""The values of known keys that are not null, by snake_case key; the user's own; and what is wrong.

    Example:
        >>> read_own_config({"timeoutMs": 5, "style": "dry"}, [TIMEOUT])
        ({'timeout_ms': 5}, {'style': 'dry'}, [])
        >>> _, _, problems = read_own_config({"timeoutms": 5}, [TIMEOUT])
        >>> print(problems[0])
        .config.timeoutms: "timeoutms" is not a key
          did you mean "timeoutMs"?
    """
    keys = tuple(keys)
    known = {to_snake(key.name) for key in keys}
    near = {_letters(key.name): key.name for key in keys}
    mine: dict[str, Any] = {}
    own: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in config.items():
        if to_snake(str(key)) in known:
            mine[key] = value
        elif meant := near.get(_letters(str(key))):
            hint = f'did you mean "{meant}"?'
            problems.append(Problem(config_path(key), f'"{key}" is not a key', hint))
        elif not is_json(value):
            fault = f"must be JSON, because it is handed to the program, got {show(value)}"
            problems.append(Problem(config_path(key), fault))
        else:
            own[str(key)] = value
    values, wrong = read_config(mine, keys)
    values = {name: value for name, value in values.items() if value is not None}
    return values, own, problems + wrong


def absolute(directory: Path, file: str) -> Path:
    """A path of the suite as an absolute one; links are kept."""
    return Path(os.path.abspath(directory / file))  # noqa: PTH100 - resolve() would follow links


def read_call(
    own: Mapping[str, Any], keys: Iterable[Key], request: Request
) -> tuple[float | None, dict[str, Any]]:
    """What is different for one call: its time in seconds, or None, and the user's own config.

    Raises:
        ProviderError: `bad_request`, if a key is wrong, or one that cannot be different for a call.
    """
    values, changed, problems = read_own_config(request.options, keys)
    fixed = [f'"{name}"' for name in values if name != "timeout_ms"]
    if fixed:
        problems.append(Problem(".config", f"{', '.join(fixed)} cannot differ for one call"))
    if problems:
        raise ProviderError("bad_request", "; ".join(map(str, problems)))
    timeout_ms = values.get("timeout_ms")
    return None if timeout_ms is None else timeout_ms / 1000, {**own, **changed}


def make_context(request: Request) -> dict[str, Any]:
    """What a program is told of the test besides the prompt.

    Raises:
        ProviderError: `bad_request`, if a variable is no JSON.
    """
    if not is_json(dict(request.vars)):
        raise ProviderError("bad_request", "the variables of the test are not JSON")
    return {
        "vars": dict(request.vars),
        "prompt": {"raw": request.prompt},
        "testIdx": request.test_idx,
        "promptIdx": request.prompt_idx,
        "repeatIndex": request.repeat_index,
    }


def find_secrets(config: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Texts that a program is given and that nothing written may contain, going by their names.

    Example:
        >>> find_secrets(
        ...     {"server": {"apiKey": "sk-1"}, "style": "dry"},
        ...     {"HF_TOKEN": "hf_0123456789", "TERM": "x"},
        ... )
        ('sk-1', 'hf_0123456789')
    """
    given = _named_secret(config, is_secret=False)
    inherited = (
        text for name, text in environ.items() if is_secret_name(name) and len(text) >= _LONG
    )
    parts = (part for text in (*given, *inherited) for part in (text, *sorted(secret_parts(text))))
    return tuple(dict.fromkeys(parts))


def _named_secret(value: Any, *, is_secret: bool) -> Iterator[str]:
    """The texts in a value that stand, at whatever depth, under a name that says that they are secret."""
    match value:
        case str() if is_secret:
            yield value
        case Mapping():
            for name, part in value.items():
                yield from _named_secret(part, is_secret=is_secret or is_secret_name(str(name)))
        case list() | tuple():
            for part in value:
                yield from _named_secret(part, is_secret=is_secret)


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
