"""`{{ env.NAME }}`: environment variables, filled in when a document is read.

Only templates that refer to `env` are rendered, and only with `env`; all other templates are rendered in the
run. A variable that is not set stays as it is written, unless a filter is applied to it: then it is rendered
in the run, where it prints nothing. The configs of providers are left to the providers, which know which
variables are secrets.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake
from trioeval.documents.paths import DocumentPath
from trioeval.documents.trust import Trust
from trioeval.errors import TemplateError, UsageError
from trioeval.grading import quote
from trioeval.templates import Templates

# Environment variables from a file, for keys that should be neither in a suite nor in the shell's history.


def read_env_file(path: Path, source: str = "--env-file") -> Mapping[str, str]:
    """Return the variables of a file with lines such as `OPENAI_API_KEY=sk-…`.

    Raises:
        UsageError: It cannot be read, or has invalid lines; their numbers are reported, not their contents.
    """
    from dotenv.parser import parse_stream

    try:
        with path.open(encoding="utf-8-sig") as file:
            bindings = list(parse_stream(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        msg = f"{source} {path}: cannot be read: {reason}"
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
_REFERS_TO_ENV = re.compile(r"\benv\.|env\[")
_NAME = re.compile(r"env\.(\w+)|env\[['\"]([^'\"]+)['\"]\]")
_SHELL_NAME = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
"""A variable in the notation of shells, in capitals as environment variables usually are."""
_WITH_KEYS = frozenset({"env", "providers", "targets"})
"""Top-level keys of values that commonly contain API keys."""
_SIMILAR = 0.75  # ratio of difflib from which the name of a variable counts as a misspelling
_FOR_THE_RUN = "_conversation"
"""A variable that contains outputs of models."""


@attrs.frozen
class Rendered:
    """A document whose templates with environment variables are rendered."""

    data: Any
    unset: list[Mistake] = attrs.field(factory=list)
    """Warnings of variables that are not set, or are written in another notation, at their uses."""
    wrong: list[Mistake] = attrs.field(factory=list)
    """Variables that are not valid text."""
    refused: list[Mistake] = attrs.field(factory=list)
    """Variables that the suite may not see; their templates stay as they are."""


def render_environment(data: Any, texts: Iterable[str], context: FileContext) -> Rendered:
    """Fill in environment variables, and those that the suite itself defines under `env`.

    Args:
        data: The document.
        texts: The texts of its files; if none of them contains `env`, the document is not searched.
        context: Provides the environment.

    Example:
        >>> from pathlib import Path
        >>> suite = {"env": {"A": "{{env.B}}!"}, "prompts": ["{{ env.A | upper }} {{x}} {{env.C}}"]}
        >>> context = FileContext(directory=Path("/s"), environ={"B": "b"})
        >>> render_environment(suite, [str(suite)], context).data["prompts"]
        ['B! {{x}} {{env.C}}']
    """
    texts = list(texts)
    visible = context.visible_env
    shell = list(_shell_warnings(data, (), visible)) if any("${" in text for text in texts) else []
    if not any(map(_REFERS_TO_ENV.search, texts)) or context.switch("DISABLE_TEMPLATING"):
        return Rendered(data, shell)
    outside = {} if context.switch("DISABLE_TEMPLATE_ENV_VARS") else visible
    withheld = context.trust.withheld(context.environ, ())
    own = data.get("env") if isinstance(data, dict) else None
    if isinstance(own, dict):
        outside = {**outside, **_Renderer(outside, context.trust, withheld).rendered(own, ("env",))}
    renderer = _Renderer(outside, context.trust, withheld - outside.keys())
    found = renderer.rendered(data, ())
    return Rendered(found, shell + renderer.unset, renderer.wrong, renderer.refused)


class _Renderer:
    """Renders templates with one environment."""

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
        """Return the value at `at` with its texts rendered; one without templates is unchanged."""
        match value:
            case str() if _REFERS_TO_ENV.search(value):
                # Nothing closes after the last braces; searching there would be quadratic.
                end = value.rfind("}}") + 2
                return _PART.sub(lambda part: self._part(part[0], at), value[:end]) + value[end:]
            case dict() if not _is_provider_config(at):
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
        if _REFERS_TO_ENV.search(template) is None:
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
                self.unset.append(Mistake(message, unset_hint(name, self._environ), at=at))
            return template
        try:
            text = self._templates.render(template, {})
        except TemplateError:
            return template
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            message = f"the environment variable {name} is not UTF-8, in {quote(template)}"
            self.wrong.append(Mistake(message, at=at))
        return text


def unset_hint(name: str, environ: Iterable[str]) -> str:
    """Return the hint for an environment variable that is not set: a similar name, and how to set it.

    Args:
        name: The variable.
        environ: The names of those that are set and that the suite may see. Values are never shown.

    Example:
        >>> unset_hint("OPENAI_KEY", {"OPENAI_API_KEY": "…", "HOME": "…"})
        'did you mean OPENAI_API_KEY? Otherwise set OPENAI_KEY, or name a file that sets it with --env-file'
        >>> unset_hint("TEAM", {})
        'set TEAM, or name a file that sets it with --env-file'
    """
    names = {known.upper(): known for known in environ}
    close = difflib.get_close_matches(name.upper(), names, n=1, cutoff=_SIMILAR)
    how = f"set {name}, or name a file that sets it with --env-file"
    return f"did you mean {names[close[0]]}? Otherwise {how}" if close else how


def _shell_warnings(value: Any, at: DocumentPath, environ: Mapping[str, str]) -> Iterator[Mistake]:
    """Yield a warning for each `${NAME}` among the providers and the environment: nothing replaces it."""
    match value:
        case str() if at and at[0] in _WITH_KEYS:
            for found in dict.fromkeys(_SHELL_NAME.findall(value)):
                message = f"${{{found}}} is not replaced by the environment variable"
                hint = f"write {{{{env.{found}}}}}"
                if found not in environ:
                    hint = f"{hint}; {found} is not set: {unset_hint(found, environ)}"
                yield Mistake(message, hint, at=at)
        case dict():
            for key, member in value.items():
                if at or key in _WITH_KEYS:
                    yield from _shell_warnings(member, (*at, key), environ)
        case list():
            for place, member in enumerate(value):
                yield from _shell_warnings(member, (*at, place), environ)
        case _:
            pass


def _names(template: str) -> Iterator[str]:
    """Yield the variables that a template names literally."""
    return (found[1] or found[2] for found in _NAME.finditer(template))


def _is_provider_config(path: DocumentPath) -> bool:
    """Return whether the path is that of the config of a provider."""
    match path:
        case ("providers" | "targets", int(), "config"):
            return True
        case ("providers" | "targets", int(), str(), "config"):
            return True
        case (*_, "provider", "config"):
            return True
        case _:
            return False
