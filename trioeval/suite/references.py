"""Names that one part of a suite gives and another part uses: lanes, prompts and providers."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from trioeval.grading import quote
from trioeval.suite.anchors import FILE
from trioeval.suite.columns import means_prompt, refers_to
from trioeval.suite.forms import provider_settings
from trioeval.suite.mistakes import Mistake, MistakenError, nearest
from trioeval.suite.models import LaneSettings, Prompt, Suite
from trioeval.suite.paths import DocumentPath


def check_references(
    document: Mapping[str, Any], prompts: Sequence[Prompt] | None
) -> Iterator[Mistake]:
    """Providers and tests that name a lane, a prompt or a provider which there is not.

    Works on plain data, so that a mistake elsewhere in the file hides nothing. What is not of the right
    shape is passed over: that is said elsewhere.

    Args:
        document: The suite.
        prompts: Its prompts; None if they cannot be read.
    """
    providers = tuple(_providers(document.get("providers")))
    for at, entry in providers:
        yield from (
            mistake.below(*at) for mistake in _lane_mistakes(entry, document.get("lanes", {}))
        )
    if document.get("quota") is None:
        yield from _quota_mistakes(providers, document.get("lanes"))
    if prompts is not None:
        for at, entry in (*providers, *_tests(document)):
            yield from (mistake.below(*at) for mistake in _prompt_mistakes(entry, prompts))
    if _all_known(providers, document.get("providers")):
        names = {
            str(entry[key]) for _, entry in providers for key in ("id", "label") if entry.get(key)
        }
        for at, entry in _tests(document):
            yield from (mistake.below(*at) for mistake in _provider_mistakes(entry, names))


def unknown_limits(
    document: Mapping[str, Any], suite: Suite, limits: Collection[str]
) -> Iterator[Mistake]:
    """Warnings of lanes that count against limits which there are not: all of their calls will fail.

    Args:
        document: The suite as plain data.
        suite: What it stands for.
        limits: The keys of those that there are.
    """
    told: set[str] = set()
    for at, lane in _lanes(tuple(_providers(document.get("providers"))), document.get("lanes")):
        for position, one in enumerate(lane["quota"]):
            key = one if isinstance(one, str) else one["key"]
            if key not in limits:
                told.add(key)
                below = () if isinstance(one, str) else ("key",)
                yield _unknown_limit(key, limits, (*at, "quota", position, *below))
    # Providers may stand in files of their own.
    own = [entry.lane for entry in suite.providers]
    for settings in (*own, *suite.lanes.values()):
        for used in settings.quota if isinstance(settings, LaneSettings) else ():
            if used.key not in limits and used.key not in told:
                yield _unknown_limit(used.key, limits, ("providers",))


def _unknown_limit(key: str, limits: Collection[str], at: DocumentPath) -> Mistake:
    message = f"there is no limit {quote(key)}: all calls of the lane will fail"
    return Mistake(message, nearest(key, limits), at=at)


def _all_known(found: Sequence[tuple[DocumentPath, Mapping[str, Any]]], providers: Any) -> bool:
    """Whether the providers of a document are these: a file brings more of them."""
    in_files = any(str(entry.get("id")).startswith(FILE) for _, entry in found)
    return isinstance(providers, list) and len(found) == len(providers) and not in_files


def _tests(document: Mapping[str, Any]) -> Iterator[tuple[DocumentPath, dict[str, Any]]]:
    """The tests that stand in the document, wherever they do."""
    tests = document.get("tests")
    places: list[tuple[DocumentPath, Any]] = [(("defaultTest",), document.get("defaultTest"))]
    places += [
        (("tests", position), test)
        for position, test in enumerate(tests if isinstance(tests, list) else ())
    ]
    for at, test in places:
        if isinstance(test, dict):
            yield at, test


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


def _quota_mistakes(
    providers: Iterable[tuple[DocumentPath, Mapping[str, Any]]], lanes: Any
) -> Iterator[Mistake]:
    """Lanes that count against limits which nobody keeps."""
    for at, _ in _lanes(providers, lanes):
        hint = 'write "quota" at the top of the file: it says who keeps them'
        yield Mistake("there is no $.quota", hint, at=(*at, "quota"), key=True)


def _lanes(
    providers: Iterable[tuple[DocumentPath, Mapping[str, Any]]], lanes: Any
) -> Iterator[tuple[DocumentPath, Mapping[str, Any]]]:
    """The lanes that count against limits."""
    entries = [((*at, "lane"), entry.get("lane")) for at, entry in providers]
    if isinstance(lanes, dict):
        entries += [(("lanes", name), lane) for name, lane in lanes.items()]
    for at, lane in entries:
        if isinstance(lane, dict) and lane.get("quota"):
            yield at, lane


def _prompt_mistakes(entry: Mapping[str, Any], prompts: Sequence[Prompt]) -> Iterator[Mistake]:
    references = entry.get("prompts")
    for position, reference in enumerate(references if isinstance(references, list) else ()):
        if isinstance(reference, str) and not any(
            means_prompt([reference], prompt) for prompt in prompts
        ):
            raw = {prompt.raw for prompt in prompts}
            given = {name for prompt in prompts for name in (prompt.label, prompt.given_id) if name}
            named = given - raw
            message = f"there is no prompt {quote(reference)}"
            hint = nearest(reference, named) if named else "no prompt has a label or an id"
            yield Mistake(message, hint, at=("prompts", position))


def _provider_mistakes(entry: Mapping[str, Any], names: Collection[str]) -> Iterator[Mistake]:
    references = entry.get("providers")
    for position, reference in enumerate(references if isinstance(references, list) else ()):
        if isinstance(reference, str) and not any(refers_to(reference, name) for name in names):
            message = f"there is no provider {quote(reference)}"
            yield Mistake(message, nearest(reference, names), at=("providers", position))
