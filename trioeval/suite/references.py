"""Names that one part of a suite gives and another part uses: lanes, and prompts of providers."""

from collections.abc import Iterator, Mapping
from typing import Any

from trioeval.grading import quote
from trioeval.suite.expand import refers_to
from trioeval.suite.forms import provider_settings
from trioeval.suite.mistakes import Mistake, MistakenError, nearest
from trioeval.suite.paths import DocumentPath


def check_references(document: Mapping[str, Any]) -> Iterator[Mistake]:
    """Providers that name a lane or a prompt which there is not, or give a delay twice.

    Works on plain data, so that a mistake elsewhere in the file hides nothing. What is not of the right
    shape is passed over: that is said elsewhere.
    """
    for at, entry in _providers(document.get("providers")):
        yield from (
            mistake.below(*at) for mistake in _lane_mistakes(entry, document.get("lanes", {}))
        )
        yield from (
            mistake.below(*at) for mistake in _prompt_mistakes(entry, document.get("prompts"))
        )


def _providers(providers: Any) -> Iterator[tuple[DocumentPath, dict[str, Any]]]:
    for position, provider in enumerate(providers if isinstance(providers, list) else ()):
        try:
            below, settings = provider_settings(provider)
        except MistakenError:
            continue
        if isinstance(settings, dict):
            yield ("providers", position, *below), settings


def _lane_mistakes(entry: Mapping[str, Any], lanes: Any) -> Iterator[Mistake]:
    match entry:
        case {"lane": str(name)} if isinstance(lanes, dict) and name not in lanes:
            message = f"there is no lane {quote(name)} in $.lanes"
            yield Mistake(message, nearest(name, lanes), at=("lane",))
        case {"lane": str(), "delay": _}:
            message = "the delay of a lane with a name stands in $.lanes"
            yield Mistake(message, "write it there", at=("delay",), key=True)
        case {"lane": {"delay": _}, "delay": _}:
            message = "the delay is given twice, here and in the lane"
            yield Mistake(message, "write one of them", at=("delay",), key=True)
        case _:
            pass


def _prompt_mistakes(entry: Mapping[str, Any], prompts: Any) -> Iterator[Mistake]:
    references = entry.get("prompts")
    if not (isinstance(references, list) and isinstance(prompts, list)):
        return
    given = {name for prompt in prompts for name in _given_names(prompt)}
    names = given.union(_raw(prompt) for prompt in prompts)
    for position, reference in enumerate(references):
        if isinstance(reference, str) and not any(refers_to(reference, name) for name in names):
            message = f"there is no prompt {quote(reference)}"
            hint = nearest(reference, given) if given else "no prompt has a label or an id"
            yield Mistake(message, hint, at=("prompts", position))


def _given_names(prompt: Any) -> Iterator[str]:
    for key in ("label", "id") if isinstance(prompt, dict) else ():
        if isinstance(prompt.get(key), str):
            yield prompt[key]


def _raw(prompt: Any) -> str:
    raw = prompt.get("raw") if isinstance(prompt, dict) else prompt
    return raw if isinstance(raw, str) else ""
