"""`{{ env.NAME }}`: variables of the environment, filled in when a document is read.

Only what stands between two pairs of braces and speaks of `env` is rendered, with `env` alone; every
other template waits for the run. A variable that is not set stays as it is written, unless a filter
makes something of it: then the run decides, where it prints as nothing. The configs of providers wait for
the providers, which know which of the variables are secrets.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import attrs
from dotenv.parser import parse_stream

from trioeval.documents.files import Around
from trioeval.documents.mistakes import Mistake
from trioeval.documents.paths import DocumentPath
from trioeval.documents.trust import Trust
from trioeval.errors import TemplateError, UsageError
from trioeval.grading import quote
from trioeval.templates import Templates

# Environment variables from a file, for keys that should stand neither in a suite nor in a shell.


def read_env_file(path: Path, said: str = "--env-file") -> Mapping[str, str]:
    """The variables of a file with lines like `OPENAI_API_KEY=sk-…`.

    Raises:
        UsageError: It cannot be read, or has lines that say nothing; all of them are named, none shown.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            bindings = list(parse_stream(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        msg = f"{said} {path}: cannot be read: {reason}"
        raise UsageError(msg) from None
    wrong = [
        f"{path}:{binding.original.line}: must be NAME=value"
        for binding in bindings
        if binding.error or (binding.key is not None and binding.value is None)
    ]
    if wrong:
        raise UsageError("\n".join(wrong))
    return {
        binding.key: binding.value
        for binding in bindings
        if binding.key is not None and binding.value is not None
    }


_PART = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_SPEAKS_OF_ENV = re.compile(r"\benv\.|env\[")
_NAME = re.compile(r"env\.(\w+)|env\[['\"]([^'\"]+)['\"]\]")
_FOR_THE_RUN = "_conversation"
"""A variable that holds what models said."""


@attrs.frozen
class Rendered:
    """A document without the templates that speak of the environment."""

    data: Any
    unset: list[Mistake] = attrs.field(factory=list)
    """Variables that are not set, where they are used."""
    wrong: list[Mistake] = attrs.field(factory=list)
    """Variables that are no text."""
    refused: list[Mistake] = attrs.field(factory=list)
    """Variables that the suite may not see; their templates stay as they are."""


def render_environment(data: Any, texts: Iterable[str], around: Around) -> Rendered:
    """Fill in the variables of the environment, and those that the suite itself gives as `env`.

    Args:
        data: The document.
        texts: What it was read from; without a sign of `env` in them nothing is looked at.
        around: Whose environment is meant.

    Example:
        >>> from pathlib import Path
        >>> suite = {"env": {"A": "{{env.B}}!"}, "prompts": ["{{ env.A | upper }} {{x}} {{env.C}}"]}
        >>> around = Around(directory=Path("/s"), environ={"B": "b"})
        >>> render_environment(suite, [str(suite)], around).data["prompts"]
        ['B! {{x}} {{env.C}}']
    """
    if not any(map(_SPEAKS_OF_ENV.search, texts)) or around.switch("DISABLE_TEMPLATING"):
        return Rendered(data)
    outside = {} if around.switch("DISABLE_TEMPLATE_ENV_VARS") else around.visible_env
    withheld = around.trust.withheld(around.environ, ())
    own = data.get("env") if isinstance(data, dict) else None
    if isinstance(own, dict):
        outside = {**outside, **_Renderer(outside, around.trust, withheld).rendered(own, ("env",))}
    renderer = _Renderer(outside, around.trust, withheld - outside.keys())
    found = renderer.rendered(data, ())
    return Rendered(found, renderer.unset, renderer.wrong, renderer.refused)


class _Renderer:
    """Renders with one environment."""

    def __init__(
        self, environ: Mapping[str, Any], trust: Trust, withheld: AbstractSet[str]
    ) -> None:
        self.unset: list[Mistake] = []
        self.wrong: list[Mistake] = []
        self.refused: list[Mistake] = []
        self._environ = environ
        self._trust = trust
        self._withheld = withheld
        self._templates = Templates(env=environ)

    def rendered(self, value: Any, at: DocumentPath) -> Any:
        """The value at `at` with its texts rendered; what has none comes back as it is."""
        match value:
            case str() if _SPEAKS_OF_ENV.search(value):
                end = value.rfind("}}") + 2  # behind it nothing closes, however long one looks
                return _PART.sub(lambda part: self._part(part[0], at), value[:end]) + value[end:]
            case dict() if not _waits(at):
                return {
                    key: member if key == _FOR_THE_RUN else self.rendered(member, (*at, key))
                    for key, member in value.items()
                }
            case list():
                return [
                    self.rendered(member, (*at, position)) for position, member in enumerate(value)
                ]
            case _:
                return value

    def _part(self, template: str, at: DocumentPath) -> str:
        if _SPEAKS_OF_ENV.search(template) is None:
            return template
        found = _NAME.search(template)
        name = (found[1] or found[2]) if found else ""
        if named := [one for one in _names(template) if one in self._withheld]:
            self.refused += (
                attrs.evolve(self._trust.env_refusal(one), at=at) for one in dict.fromkeys(named)
            )
            return template
        if "|" not in template and name not in self._environ:
            if name:
                message = f"the environment variable {name} is not set"
                self.unset.append(Mistake(message, f"set {name}", at=at))
            return template
        try:
            text = self._templates.render(template, {})
        except TemplateError:
            return template
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            message = f"the environment variable {name} is not UTF-8, in {quote(template)}"
            self.wrong.append(Mistake(message, at=at))
        return text


def _names(template: str) -> Iterator[str]:
    """The variables that a template names as they are, wherever in it."""
    return (found[1] or found[2] for found in _NAME.finditer(template))


def _waits(path: DocumentPath) -> bool:
    """Whether the config of a provider stands here."""
    match path:
        case ("providers" | "targets", int(), "config"):
            return True
        case ("providers" | "targets", int(), str(), "config"):
            return True
        case (*_, "provider", "config"):
            return True
        case _:
            return False
