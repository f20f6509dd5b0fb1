"""`{{env.NAME}}` in the config of a provider: how keys come into a suite without standing in it."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import attrs

from trioeval.errors import Problem, TemplateError
from trioeval.providers.secret_names import is_secret_name
from trioeval.providers.secrets import secret_parts
from trioeval.providers.settings import Templates

_NAME = r"""env(?:\.([A-Za-z_]\w*)|\[(?:'([^']+)'|"([^"]+)")\])"""
_REFERENCE = re.compile(rf"\{{\{{-?\s*{_NAME}\s*-?\}}\}}")
_NAMES = re.compile(rf"\b{_NAME}")
_PART = re.compile(r"\{\{.*?\}\}", re.DOTALL)


@attrs.define
class Expanded:
    """A config with its references filled in."""

    value: Any
    names: list[str] = attrs.field(factory=list)
    """The variables that were filled in."""
    secrets: list[str] = attrs.field(factory=list, repr=False)
    """Values of variables whose names say that they are secret, and what they are made of."""
    problems: list[Problem] = attrs.field(factory=list)


def expand_env(
    config: Mapping[str, Any],
    environ: Mapping[str, str],
    templates: Templates,
    withheld: AbstractSet[str] = frozenset(),
) -> Expanded:
    """Fill in every `{{env.NAME}}` in the texts of a config; other templates stay as they are.

    A name alone must be set. Behind a filter, as in `{{ env.NAME | default('x') }}`, it need not be.

    Args:
        config: The config of an entry.
        environ: What names are looked up in.
        templates: What renders those that are more than a name.
        withheld: Names that templates must not fill in.

    Example:
        >>> from trioeval.suite import Templates
        >>> environ = {"TEAM": "blue"}
        >>> config = {"headers": {"x-team": "{{env.TEAM}}", "x-a": "{{ env.TEAM | upper }} {{x}}"}}
        >>> expand_env(config, environ, Templates(env=environ)).value
        {'headers': {'x-team': 'blue', 'x-a': 'BLUE {{x}}'}}
    """
    expander = _Expander(environ, templates, withheld, Expanded(None))
    expander.into.value = expander.expand(config, ".config")
    return expander.into


@attrs.frozen
class _Expander:
    environ: Mapping[str, str] = attrs.field(repr=False)
    templates: Templates
    withheld: AbstractSet[str]
    into: Expanded

    def expand(self, value: Any, path: str) -> Any:
        """The value at a path, with its references filled in."""
        match value:
            case str() if "{{" in value and "env" in value:
                return _PART.sub(lambda part: self._part(part[0], path), value)
            case Mapping():
                return {key: self.expand(part, f"{path}.{key}") for key, part in value.items()}
            case list() | tuple():
                return [self.expand(part, f"{path}[{place}]") for place, part in enumerate(value)]
            case _:
                return value

    def _part(self, part: str, path: str) -> str:
        names = ["".join(found) for found in _NAMES.findall(part)]
        if not names:
            return part
        if hidden := [name for name in names if name in self.withheld]:
            self.into.problems += (
                Problem(
                    path,
                    f"an untrusted suite does not see the environment variable {name}",
                    f"allow it with --allow-env {name}",
                )
                for name in dict.fromkeys(hidden)
            )
            return ""
        self.into.names += names
        if _REFERENCE.fullmatch(part):
            text = self.environ.get(names[0], "")
            if not text:
                message = f"the environment variable {names[0]} is not set"
                self.into.problems.append(Problem(path, message, f"set {names[0]}"))
        else:
            text = self._rendered(part, path)
        for name in names:
            if is_secret_name(name):
                parts = {*secret_parts(self.environ.get(name, "")), *secret_parts(text)}
                self.into.secrets += sorted(parts)
        return text

    def _rendered(self, part: str, path: str) -> str:
        try:
            return self.templates.render(part, {})
        except TemplateError as error:
            self.into.problems.append(Problem(path, str(error)))
            return ""
