"""Shared limits as a suite writes them: where they are kept, and which of them a lane counts against."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args

import cattrs

from trioeval.documents import read_json
from trioeval.documents.files import Around
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind
from trioeval.documents.paths import DocumentPath, read_path
from trioeval.documents.placing import read_placed, structured
from trioeval.documents.structure import Hook, camel, object_hook
from trioeval.errors import SuiteError
from trioeval.grading import quote
from trioeval.limits.denials import MAX_REQUIREMENTS
from trioeval.limits.json import from_json
from trioeval.limits.limits_file import read_limits
from trioeval.limits.model import Limit, LimitKey, LimitState, Unit
from trioeval.suite.form import many
from trioeval.suite.model import BatchSettings, LaneSettings, LimitsSettings, Suite

# What is odd about the limits that a suite shares: nobody counts against one, or not what it is for.


_Use: TypeAlias = tuple[DocumentPath, LimitKey]

_LIMIT_UNITS = get_args(Unit)
_ONE_EACH = frozenset({"requests", "slots"})


def limits_warnings(suite: Suite) -> Iterator[Mistake]:
    """Warnings of limits of a whole suite, its tasks included.

    Example:
        >>> from trioeval import parse_suite
        >>> limit = {"key": "m:rpm", "kind": "rolling", "capacity": 60, "windowSeconds": 60}
        >>> suite = parse_suite({"providers": ["echo"], "limits": {"limits": [limit]}})
        >>> [warning.message for warning in limits_warnings(suite)]
        ['no lane counts against "m:rpm": it is without effect']
    """
    settings = suite.limits
    if settings is None:
        return
    uses = list(_uses(suite))
    yield from _idle(settings, uses)
    limits = known_limits(settings) or {}
    for at, use in uses:
        if use.key in limits and (odd := _odd(use, limits[use.key])) is not None:
            message, hint = odd
            yield Mistake(message, hint, at=at)


def _uses(suite: Suite) -> Iterator[_Use]:
    """What lanes count, and where that stands; each place once."""
    lanes: list[tuple[DocumentPath, LaneSettings | str | None]] = []
    lanes += [(("lanes", name), lane) for name, lane in suite.lanes.items()]
    lanes += [(("providers", place, "lane"), one.lane) for place, one in enumerate(suite.providers)]
    for number, task in enumerate(suite.tasks):
        lanes += [
            (("tasks", number, "providers", place, "lane"), one.lane)
            for place, one in enumerate(task.suite.providers)
            if one not in suite.providers
        ]
    for at, lane in lanes:
        for place, use in enumerate(lane.limits if isinstance(lane, LaneSettings) else ()):
            yield (*at, "limits", place), use


def _idle(settings: LimitsSettings, uses: list[_Use]) -> Iterator[Mistake]:
    """Limits that no lane counts against; against those that others keep, or that a file has, others may."""
    used = {use.key for _, use in uses}
    if settings.backend == "memory" and settings.limits is not None:
        for place, limit in enumerate(settings.limits):
            if limit.key not in used:
                message = f"no lane counts against {quote(limit.key)}: it is without effect"
                hint = f"write limits: [{quote(limit.key)}] in a lane"
                yield Mistake(message, hint, at=("limits", "limits", place))
    elif not used:
        message = "no lane counts against a limit: nobody is asked, and no limit is made"
        yield Mistake(message, "write limits, a list of their keys, in a lane", at=("limits",))


def known_limits(settings: LimitsSettings) -> Mapping[str, Limit] | None:
    """The limits that a suite gives, by their keys; None where their file has gone wrong meanwhile."""
    limits = [*(settings.limits or ())]
    if settings.limits_file is not None:
        try:
            limits += (state.limit for state in read_limits(settings.limits_file))
        except SuiteError:  # it was right a moment ago; the run that opens it says what is wrong
            return None
    return {limit.key: limit for limit in limits}


def _odd(use: LimitKey, limit: Limit) -> tuple[str, str] | None:
    """What is odd about what is counted against a limit, and what would be right."""
    key, unit = quote(use.key), use.unit
    is_hold = limit.kind == "concurrency"
    if is_hold and unit not in _ONE_EACH:
        message = f"{key} limits how many calls there are at once: each takes one, not its {unit}"
        return message, _written(key, "slots")
    if limit.unit in _LIMIT_UNITS and unit != limit.unit and not {unit, limit.unit} <= _ONE_EACH:
        return f"counts {unit} against {key}, whose unit is {limit.unit}", _written(key, limit.unit)
    if not is_hold and unit == "slots":
        message = f"{key} is a {limit.kind} limit: it has no slots, and each call takes 1 of it"
        return message, f"{_written(key, 'requests')}, or tokens or cost_micro"
    return None


def _written(key: str, unit: str) -> str:
    return f'write {{"key": {key}, "unit": "{unit}"}}'


T = TypeVar("T")

MOST_IN_BATCH = 256
"""Leases in one request."""

_UNITS: Mapping[str, Unit] = {
    ":rpm": "requests",
    ":requests": "requests",
    ":tpm": "tokens",
    "tokens": "tokens",
    ":concurrency": "slots",
    ":cost_micro": "cost_micro",
}
"""By what a key ends with."""
_SCHEMES: Mapping[str, tuple[str, ...]] = {
    "redis": ("redis", "rediss", "unix"),
    "http": ("http", "https"),
}
"""What urls begin with, by who keeps the limits."""
_BACKENDS = ("memory", *_SCHEMES)
_ELSEWHERE = frozenset({"namespace", "unreachable", "patienceMs", "requestTimeoutMs", "batch"})
"""What is only of limits that somebody else keeps."""

_ALL_UNITS = f"units are {', '.join(get_args(Unit))}"


def unit_of(key: str) -> Unit | None:
    """What of a call counts against a limit, told from the end of its key; None if that says nothing.

    Example:
        >>> unit_of("global:llm:openai:gpt-4.1:tpm"), unit_of("tenant:7:llm:daily_tokens")
        ('tokens', 'tokens')
        >>> unit_of("global") is None
        True
    """
    return next((unit for end, unit in _UNITS.items() if key.endswith(end)), None)


def limit_keys_hook(converter: cattrs.Converter) -> Hook:
    """For the limits of a lane: keys, or objects with a key and what counts."""
    structure = object_hook(converter, LimitKey)

    def read(value: Any) -> LimitKey:
        said = {"key": value} if isinstance(value, str) else value
        if not isinstance(said, dict):
            raise MistakenError(Mistake(f"must be a key or an object with one, got {kind(value)}"))
        at = () if isinstance(value, str) else ("key",)
        key = said.get("key")
        unit = "requests"
        if isinstance(key, str):
            if not key.strip():
                raise MistakenError(Mistake("a key must not be blank", at=at))
            told = unit_of(key)
            if told is None and said.get("unit") is None:
                message = f"the end of {quote(key)} does not say what counts against it"
                hint = f'write {{"key": {quote(key)}, "unit": "tokens"}}; {_ALL_UNITS}'
                raise MistakenError(Mistake(message, hint, at=at))
            unit = told or unit
        if said.get("unit") is None:
            said = {**said, "unit": unit}
        found: LimitKey = structure(said, LimitKey)
        return found

    def hook(value: Any, _wanted: Any) -> tuple[LimitKey, ...]:
        mistakes = Mistakes()
        keys: tuple[LimitKey, ...] = ()
        with mistakes.below():
            keys = many(value, " of keys", lambda entry: (read(entry),), alone=())
        mistakes += _mistakes_of_keys(value if isinstance(value, list) else ())
        mistakes.raise_any()
        return keys

    return hook


def _mistakes_of_keys(entries: Sequence[Any]) -> Iterator[Mistake]:
    """What is wrong with keys of a lane taken together, also where some of them are wrong."""
    names = [entry.get("key") if isinstance(entry, dict) else entry for entry in entries]
    seen: set[str] = set()
    for place, name in enumerate(names):
        if isinstance(name, str) and name in seen:
            yield Mistake(f"{quote(name)} stands in the list already", at=(place,))
        elif isinstance(name, str):
            seen.add(name)
    if len(names) > MAX_REQUIREMENTS:
        yield Mistake(f"must be at most {MAX_REQUIREMENTS} limits, got {len(names)}")


def limits_hook(converter: cattrs.Converter, around: Around) -> Hook:
    """For where limits are kept; a file of them is read, to tell what is wrong with it."""
    converter.register_structure_hook(BatchSettings, _batch_hook(converter))
    structure = object_hook(
        converter,
        LimitsSettings,
        hooks={
            "backend": lambda value, wanted: converter.structure(_folded(value), wanted),
            "limits": lambda value, _wanted: _told(value, tuple[Limit, ...]),
            "limits_file": lambda value, _wanted: _limits_file(value, around),
        },
    )

    def hook(value: Any, wanted: Any) -> LimitsSettings:
        mistakes = Mistakes()
        settings: LimitsSettings | None = None
        with mistakes.below():
            settings = structure(value, wanted)
        if isinstance(value, dict):
            mistakes += _mistakes(value)
        if settings is not None and settings.backend != "memory" and not around.trust.trusted:
            message = "an untrusted suite sends requests only to its providers"
            mistakes.append(Mistake(message, 'write "backend": "memory"', at=("backend",)))
        if mistakes or settings is None:
            raise MistakenError(*mistakes)
        return settings

    return hook


def _folded(value: Any) -> Any:
    """A name of who keeps limits as it is known; anything else as it is."""
    folded = value.strip().casefold() if isinstance(value, str) else value
    return folded if folded in _BACKENDS else value


def _batch_hook(converter: cattrs.Converter) -> Hook:
    def size(value: Any, wanted: Any) -> int:
        found: int = converter.structure(value, wanted)
        if found > MOST_IN_BATCH:
            raise MistakenError(Mistake(f"must be at most {MOST_IN_BATCH}, got {found}"))
        return found

    return object_hook(converter, BatchSettings, hooks={"size": size})


def _mistakes(said: Mapping[str, Any]) -> Iterator[Mistake]:
    """What is wrong with settings taken together, also where some of them are wrong by themselves."""
    spelled = {camel(key): key for key, part in said.items() if part is not None}
    if "limits" in spelled and "limitsFile" in spelled:
        message = "limits and limitsFile both say which limits there are"
        yield Mistake(message, "write one of them", at=(spelled["limitsFile"],), key=True)
    backend = _folded(said[spelled["backend"]]) if "backend" in spelled else "memory"
    if backend == "memory":
        if not {"limits", "limitsFile"} & spelled.keys():
            yield Mistake("limits kept in memory have to be given", "write limits or limitsFile")
        hint = "leave it out, or write backend: redis or http"
        if "url" in spelled:
            yield Mistake("limits kept in memory have no url", hint, at=("url",), key=True)
        for name in sorted(_ELSEWHERE & spelled.keys()):
            message = f"is without effect: limits kept in memory have no {name}"
            yield Mistake(message, hint, at=(spelled[name],), key=True)
    elif isinstance(backend, str) and backend in _SCHEMES:
        yield from _mistakes_of_url(backend, said.get("url"))
        if backend == "http" and "namespace" in spelled:
            message = "is without effect: only limits kept by redis have a namespace"
            yield Mistake(message, "leave it out", at=(spelled["namespace"],), key=True)


def _mistakes_of_url(backend: str, url: Any) -> Iterator[Mistake]:
    schemes = _SCHEMES[backend]
    known = " or ".join(f"{scheme}://" for scheme in schemes)
    if url is None:
        yield Mistake(f"limits kept by {backend} need a url", f"write one that begins with {known}")
    elif isinstance(url, str) and url.partition("://")[0].lower() not in schemes:
        yield Mistake(f"must begin with {known}", at=("url",))


def _told(value: Any, wanted: type[T]) -> T:
    """What limits are, with what is wrong with them as mistakes."""
    try:
        return from_json(value, wanted)
    except SuiteError as error:
        mistakes = (
            Mistake(problem.message, problem.hint, at=read_path(problem.path))
            for problem in error.problems
        )
        raise MistakenError(*mistakes) from None


def _limits_file(value: Any, around: Around) -> Path:
    """A file of limits; what stands in it when the run begins counts, so it is read for its mistakes."""
    if not isinstance(value, str) or not value.strip():
        raise MistakenError(Mistake(f"must be the name of a file, got {kind(value)}"))
    file = around.file(value)
    structured(read_placed(file, read_json), file, lambda data: _told(data, tuple[LimitState, ...]))
    return file
