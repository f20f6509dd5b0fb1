"""Shared limits in a suite: where they are kept, and which of them the calls of a lane count against."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args

import cattrs

from trioeval.documents import read_json
from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind
from trioeval.documents.paths import DocumentPath, read_path
from trioeval.documents.placing import read_placed, structured
from trioeval.documents.structure import Hook, camel, object_hook
from trioeval.errors import SuiteError
from trioeval.grading import quote
from trioeval.limits.model import LimitKey, LimitState, SharedLimit, Unit
from trioeval.suite.form import many
from trioeval.suite.model import BatchSettings, LaneSettings, LimitsSettings, Suite

# Warnings about shared limits: no lane counts against one, or in the wrong unit.


_Use: TypeAlias = tuple[DocumentPath, LimitKey]

_LIMIT_UNITS = get_args(Unit)
_ONE_EACH = frozenset({"requests", "slots"})


def limit_warnings(suite: Suite) -> Iterator[Mistake]:
    """Yield warnings about the shared limits of a whole suite, its tasks included.

    Example:
        >>> from trioeval import parse_suite
        >>> limit = {"key": "m:rpm", "kind": "rolling", "capacity": 60, "windowSeconds": 60}
        >>> suite = parse_suite({"providers": ["echo"], "limits": {"define": [limit]}})
        >>> [warning.message for warning in limit_warnings(suite)]
        ['no lane counts against "m:rpm": it has no effect']
    """
    settings = suite.limits
    if settings is None:
        return
    uses = list(_uses(suite))
    yield from _unused_limit_warnings(settings, uses)
    limits = known_limits(settings) or {}
    for at, use in uses:
        if use.key in limits and (warning := _unit_warning(use, limits[use.key])) is not None:
            message, hint = warning
            yield Mistake(message, hint, at=at)


def _uses(suite: Suite) -> Iterator[_Use]:
    """Yield the uses of limits by lanes, with their paths; each use once."""
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


def _unused_limit_warnings(settings: LimitsSettings, uses: list[_Use]) -> Iterator[Mistake]:
    """Yield warnings about limits that no lane of the suite uses and that other processes cannot use."""
    used = {use.key for _, use in uses}
    if settings.backend == "memory" and settings.define is not None:
        for place, limit in enumerate(settings.define):
            if limit.key not in used:
                message = f"no lane counts against {quote(limit.key)}: it has no effect"
                hint = f"write limits: [{quote(limit.key)}] in a lane"
                yield Mistake(message, hint, at=("limits", "define", place))
    elif not used:
        message = (
            "no lane counts against a limit: without --on the backend is never called"
            if settings.backend == "redis"
            else "no lane counts against a limit: the backend is never called, and no limit is created"
        )
        yield Mistake(message, "write limits, with keys of limits, in a lane", at=("limits",))


def known_limits(settings: LimitsSettings) -> Mapping[str, SharedLimit] | None:
    """Return the limits that a suite defines, by their keys; None if their file has become invalid."""
    from trioeval.limits.limits_file import read_limits

    limits = [*(settings.define or ())]
    if settings.file is not None:
        try:
            limits += (state.limit for state in read_limits(settings.file))
        except SuiteError:  # it was valid a moment ago; the run that opens it reports the error
            return None
    return {limit.key: limit for limit in limits}


def _unit_warning(use: LimitKey, limit: SharedLimit) -> tuple[str, str] | None:
    """Return a warning and a hint about what is counted against a limit; None if it is consistent."""
    key, unit = quote(use.key), use.unit
    is_hold = limit.kind == "concurrency"
    if is_hold and unit not in _ONE_EACH:
        message = f"{key} limits concurrent calls: each takes 1 slot, not its {unit}"
        return message, _written(key, "slots")
    if limit.unit in _LIMIT_UNITS and unit != limit.unit and not {unit, limit.unit} <= _ONE_EACH:
        return f"counts {unit} against {key}, whose unit is {limit.unit}", _written(key, limit.unit)
    if not is_hold and unit == "slots":
        message = f"{key} is a {limit.kind} limit without slots: each call takes 1 unit"
        return message, f"{_written(key, 'requests')}, or tokens or cost_micro"
    return None


def _written(key: str, unit: str) -> str:
    return f'write {{"key": {key}, "unit": "{unit}"}}'


T = TypeVar("T")

MOST_IN_BATCH = 256
"""The maximum number of leases in one request."""

_UNITS: Mapping[str, Unit] = {
    ":rpm": "requests",
    ":requests": "requests",
    ":tpm": "tokens",
    "tokens": "tokens",
    ":concurrency": "slots",
    ":cost_micro": "cost_micro",
}
"""Units by the ends of keys."""
_SCHEMES: Mapping[str, tuple[str, ...]] = {
    "redis": ("redis", "rediss", "unix"),
    "http": ("http", "https"),
}
"""Schemes of urls, by backend."""
_BACKENDS = ("memory", *_SCHEMES)
_SHARED_ONLY = frozenset({"namespace", "unreachable", "patienceMs", "requestTimeoutMs", "batch"})
"""Settings that only limits kept outside of the process have."""

_ALL_UNITS = f"units are {', '.join(get_args(Unit))}"


def unit_of(key: str) -> Unit | None:
    """Return the unit that the end of a key implies; None if it implies none.

    Example:
        >>> unit_of("global:llm:openai:gpt-4.1:tpm"), unit_of("tenant:7:llm:daily_tokens")
        ('tokens', 'tokens')
        >>> unit_of("global") is None
        True
    """
    return next((unit for end, unit in _UNITS.items() if key.endswith(end)), None)


def limit_keys_hook(converter: cattrs.Converter) -> Hook:
    """Return the hook for the limits of a lane: keys, or objects with a key and a unit."""
    structure = object_hook(converter, LimitKey)

    def read(value: Any) -> LimitKey:
        settings = {"key": value} if isinstance(value, str) else value
        if not isinstance(settings, dict):
            raise MistakenError(Mistake(f"must be a key or an object with one, got {kind(value)}"))
        at = () if isinstance(value, str) else ("key",)
        key = settings.get("key")
        unit = "requests"
        if isinstance(key, str):
            if not key.strip():
                raise MistakenError(Mistake("a key must not be blank", at=at))
            implied = unit_of(key)
            if implied is None and settings.get("unit") is None:
                message = f"the end of {quote(key)} does not imply a unit"
                hint = f'write {{"key": {quote(key)}, "unit": "tokens"}}; {_ALL_UNITS}'
                raise MistakenError(Mistake(message, hint, at=at))
            unit = implied or unit
        if settings.get("unit") is None:
            settings = {**settings, "unit": unit}
        found: LimitKey = structure(settings, LimitKey)
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
    """Yield the mistakes of the keys of a lane taken together, also if some of them are invalid."""
    from trioeval.limits.denials import MAX_REQUIREMENTS

    names = [entry.get("key") if isinstance(entry, dict) else entry for entry in entries]
    seen: set[str] = set()
    for place, name in enumerate(names):
        if isinstance(name, str) and name in seen:
            yield Mistake(f"duplicate key {quote(name)}", at=(place,))
        elif isinstance(name, str):
            seen.add(name)
    if len(names) > MAX_REQUIREMENTS:
        yield Mistake(f"must be at most {MAX_REQUIREMENTS} limits, got {len(names)}")


def limits_hook(converter: cattrs.Converter, context: FileContext) -> Hook:
    """Return the hook for the backend of limits; a file of limits is read to report its mistakes."""
    converter.register_structure_hook(BatchSettings, _batch_hook(converter))
    structure = object_hook(
        converter,
        LimitsSettings,
        hooks={
            "backend": lambda value, target: converter.structure(_folded(value), target),
            "define": lambda value, _wanted: _limits_from_json(value, tuple[SharedLimit, ...]),
            "file": lambda value, _wanted: _limits_file(value, context),
        },
    )

    def hook(value: Any, target: Any) -> LimitsSettings:
        mistakes = Mistakes()
        settings: LimitsSettings | None = None
        with mistakes.below():
            settings = structure(value, target)
        if isinstance(value, dict):
            mistakes += _mistakes(value)
        if settings is not None and settings.backend != "memory" and not context.trust.trusted:
            message = "an untrusted suite sends requests only to its providers"
            mistakes.append(Mistake(message, 'write "backend": "memory"', at=("backend",)))
        if mistakes or settings is None:
            raise MistakenError(*mistakes)
        return settings

    return hook


def _folded(value: Any) -> Any:
    """Return a backend in its usual spelling; anything else unchanged."""
    folded = value.strip().casefold() if isinstance(value, str) else value
    return folded if folded in _BACKENDS else value


def _batch_hook(converter: cattrs.Converter) -> Hook:
    def size(value: Any, target: Any) -> int:
        found: int = converter.structure(value, target)
        if found > MOST_IN_BATCH:
            raise MistakenError(Mistake(f"must be at most {MOST_IN_BATCH}, got {found}"))
        return found

    return object_hook(converter, BatchSettings, hooks={"size": size})


def _mistakes(settings: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the mistakes of settings taken together, also if some of them are invalid."""
    spelled = {camel(key): key for key, part in settings.items() if part is not None}
    if "define" in spelled and "file" in spelled:
        message = "define and file exclude each other"
        yield Mistake(message, "write one of them", at=(spelled["file"],), key=True)
    backend = _folded(settings[spelled["backend"]]) if "backend" in spelled else "memory"
    if backend == "memory":
        if not {"define", "file"} & spelled.keys():
            yield Mistake("limits in memory must be defined", "write define or file")
        hint = "remove it, or set backend to redis or http"
        if "url" in spelled:
            yield Mistake("limits in memory have no url", hint, at=("url",), key=True)
        for name in sorted(_SHARED_ONLY & spelled.keys()):
            message = f"has no effect: limits in memory have no {name}"
            yield Mistake(message, hint, at=(spelled[name],), key=True)
    elif isinstance(backend, str) and backend in _SCHEMES:
        yield from _mistakes_of_url(backend, settings.get("url"))
        if backend == "http" and "namespace" in spelled:
            message = "has no effect: only limits in Redis have a namespace"
            yield Mistake(message, "leave it out", at=(spelled["namespace"],), key=True)


def _mistakes_of_url(backend: str, url: Any) -> Iterator[Mistake]:
    schemes = _SCHEMES[backend]
    known = " or ".join(f"{scheme}://" for scheme in schemes)
    if url is None:
        yield Mistake(
            f"limits with the backend {backend} need a url", f"write one that begins with {known}"
        )
    elif isinstance(url, str) and url.partition("://")[0].lower() not in schemes:
        yield Mistake(f"must begin with {known}", at=("url",))


def _limits_from_json(value: Any, target: type[T]) -> T:
    """Structure limits, with their problems as mistakes."""
    from trioeval.limits.json import from_json

    try:
        return from_json(value, target)
    except SuiteError as error:
        mistakes = (
            Mistake(problem.message, problem.hint, at=read_path(problem.path))
            for problem in error.problems
        )
        raise MistakenError(*mistakes) from None


def _limits_file(value: Any, context: FileContext) -> Path:
    """Return a file of limits. Its contents when the run begins count; it is read here for its mistakes."""
    if not isinstance(value, str) or not value.strip():
        raise MistakenError(Mistake(f"must be the name of a file, got {kind(value)}"))
    file = context.file(value)
    structured(
        read_placed(file, read_json),
        file,
        lambda data: _limits_from_json(data, tuple[LimitState, ...]),
    )
    return file
