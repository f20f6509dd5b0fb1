"""`{{env.NAME}}` in the config of a provider: how keys come into a suite without standing in it."""

import re
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.secret_names import is_secret_name
from trioeval.providers.secrets import secret_parts

_REFERENCE = re.compile(r"\{\{-?\s*env\.([A-Za-z_]\w*)\s*-?\}\}")


@attrs.define
class Expanded:
    """A config with its references filled in."""

    value: Any
    secrets: list[str] = attrs.field(factory=list, repr=False)
    """Values of variables whose names say that they are secret, and what they are made of."""
    problems: list[Problem] = attrs.field(factory=list)


def expand_env(config: Mapping[str, Any], environ: Mapping[str, str]) -> Expanded:
    """Fill in every `{{env.NAME}}` in the texts of a config; other templates stay as they are.

    Example:
        >>> expand_env({"headers": {"x-team": "{{env.TEAM}}"}}, {"TEAM": "blue"}).value
        {'headers': {'x-team': 'blue'}}
    """
    expanded = Expanded(None)
    expanded.value = _expand(config, environ, ".config", expanded)
    return expanded


def _expand(value: Any, environ: Mapping[str, str], path: str, into: Expanded) -> Any:
    match value:
        case str() if "{{" in value:

            def fill(found: re.Match[str]) -> str:
                name = found[1]
                text = environ.get(name, "")
                if not text:
                    into.problems.append(
                        Problem(path, f"the environment variable {name} is not set", f"set {name}")
                    )
                elif is_secret_name(name):
                    into.secrets += sorted(secret_parts(text))
                return text

            return _REFERENCE.sub(fill, value)
        case Mapping():
            return {
                key: _expand(part, environ, f"{path}.{key}", into) for key, part in value.items()
            }
        case list() | tuple():
            return [
                _expand(part, environ, f"{path}[{position}]", into)
                for position, part in enumerate(value)
            ]
        case _:
            return value
