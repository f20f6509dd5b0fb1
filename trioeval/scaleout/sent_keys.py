# Separate from `scaleout.dask_cluster`: it decides what may be sent, not who runs what.
"""The search for keys in what is sent to workers, before anything is sent."""

import functools
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeAlias

import attrs
import cloudpickle

from trioeval.documents.paths import show_path
from trioeval.documents.structure import camel, snake
from trioeval.errors import UsageError
from trioeval.providers.secrets import is_secret_name, is_surely_key, secret_parts
from trioeval.scaleout.run_keys import RunKeys
from trioeval.suite.model import Task
from trioeval.text import KEY

_Path: TypeAlias = tuple[str | int, ...]

_SHOWN = 10
_TOGETHER = 100
"""Parts of a long sequence that are looked at together."""
_PROVIDERS = "providers"
_CONFIGS = frozenset({"config", "headers", _PROVIDERS})
_KEY_NAMES = frozenset(
    {"accesstoken", "apikey", "apitoken", "authorization", "password", "secret", "token", "xapikey"}
)
"""The names of keys in configs, also in those of providers that the run does not use, and in objects."""
_PARTS_OF_NAMES = (
    b"apikey",
    b"api_key",
    b"api-key",
    b"authorization",
    b"password",
    b"secret",
    b"token",
)
"""In lower case; data without any of them has no such name."""
_SEPARATORS = re.compile("[-_]")


def check_sent(sent: object, keys: RunKeys) -> None:
    """Raise if an object cannot be sent to workers, or contains keys.

    Args:
        sent: What loads the suite on a worker, with everything that is sent beside it.
        keys: The keys of the run.

    Raises:
        UsageError: It cannot be pickled; or it contains keys, whose places are all named.
    """
    try:
        data = cloudpickle.dumps(sent)  # as Dask does, which would log its failure
    except Exception as error:  # objects of users may raise anything
        raise UsageError(f"--on: the suite cannot be sent to workers: {error}") from error
    if not _may_contain(data, keys):
        return
    places = [*dict.fromkeys(_shown(path) for path in _Search(keys).places(sent, ()))]
    if not places and keys.may_be_in(data) and _are_pickled(sent, keys):
        places = ["in the code or the state of an object of the program"]
    if places:
        more = len(places) - _SHOWN
        lines = places[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        listed = "".join(f"\n  {one}" for one in lines)
        raise UsageError(
            f"--on: keys are never sent to workers, and the suite contains some:{listed}\n"
            "write {{env.NAME}} in their place, or name the variable in apiKeyEnvar, or read it in code; "
            "and set it on each worker"
        )


def _may_contain(data: bytes, keys: RunKeys) -> bool:
    if keys.may_be_in(data):
        return True
    data = data.lower()
    return any(part in data for part in _PARTS_OF_NAMES)


@attrs.define
class _Search:
    """The search for keys in an object; each part is searched once, at its first place."""

    _keys: RunKeys
    _seen: dict[int, object] = attrs.field(init=False, factory=dict)

    def places(self, value: Any, path: _Path) -> Iterator[_Path]:
        """Yield the paths of texts that contain keys."""
        if isinstance(value, str | bytes | bytearray | PurePath):
            if self._is_key(value if not isinstance(value, PurePath) else str(value), path):
                yield path
            return
        if value is None or isinstance(value, bool | int | float | type) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        parts = self._unclean(value) if isinstance(value, list | tuple) else _parts(value)
        for step, part in parts:
            yield from self.places(part, path if step is None else (*path, step))

    def _unclean(self, values: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield the parts of a sequence but those, of very many, that surely have no key."""
        for start in range(0, len(values), _TOGETHER):
            some = values[start : start + _TOGETHER]
            if len(some) < _TOGETHER or not self._are_clean(some):
                yield from enumerate(some, start)

    def _are_clean(self, values: Sequence[Any]) -> bool:
        try:
            return not _may_contain(pickle.dumps(values), self._keys)
        except Exception:  # noqa: BLE001 - objects of users may raise anything
            return False

    def _is_key(self, text: str | bytes | bytearray, path: _Path) -> bool:
        if self._keys.are_in(text):
            return True
        name = next((one for one in reversed(path) if isinstance(one, str)), "")
        if not isinstance(text, str) or "{{" in text or not is_secret_name(name):
            return False
        if not self._keys.others.isdisjoint({text, *secret_parts(text)}):
            return True
        is_key_name = _SEPARATORS.sub("", name).lower() in _KEY_NAMES
        is_file = text.startswith("file://")
        return is_key_name and not is_file and not _CONFIGS.isdisjoint(path) and is_surely_key(text)


def _parts(value: Any) -> Iterator[tuple[str | int | None, Any]]:
    """Yield the parts of a value, each with its step in a path; None adds no step."""
    match value:
        case Mapping():
            for name, part in value.items():
                yield None, name
                yield name if isinstance(name, str | int | None) else str(name), part
        case set() | frozenset() | Sequence():
            yield from enumerate(value)
        case functools.partial():
            yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
        case _ if attrs.has(type(value)):
            for field in attrs.fields(type(value)):
                step = field.metadata.get(KEY) or camel(field.name.lstrip("_"))
                is_inside = isinstance(value, Task) and field.name == "suite"
                yield None if is_inside else step, getattr(value, field.name, None)
        case _:
            yield from getattr(value, "__dict__", {}).items()


def _shown(path: _Path) -> str:
    """Return the place of a key as messages show it."""
    match path[1:]:
        case ("source", *rest):
            return show_path(tuple(rest))
        case (str(first), str(name), *rest) if first == _PROVIDERS:
            return f"{show_path(tuple(rest))} of the object that is provider {name}"
        case ("changes", *rest):
            return f"{show_path(tuple(rest))}, as changed by beforeAll"
        case ("flags", _, str(flag), *_):
            return f"--{snake(flag).replace('_', '-')}"
        case rest:
            return show_path(rest)


def _are_pickled(sent: object, keys: RunKeys) -> bool:
    """Return whether a text of an object contains a key, also where only its pickle has it."""
    finder = _KeyFinder(keys)
    finder.dump(sent)
    return finder.has_found


class _KeyFinder(cloudpickle.Pickler):  # type: ignore[misc]
    """A pickler that writes nothing, and looks at every text."""

    def __init__(self, keys: RunKeys) -> None:
        super().__init__(self)
        self._keys = keys
        self.has_found = False

    def write(self, _data: object) -> None:
        """Write nothing: the pickler is its own file."""

    def persistent_id(self, value: object) -> None:
        """Look at a part of the object, which is pickled as it is; called for each."""
        if isinstance(value, str | bytes | bytearray) and self._keys.are_in(value):
            self.has_found = True
