"""Checks that data can be represented in JSON, so that all later code can rely on it."""

import sys
from collections.abc import Iterator
from typing import Any

from trioeval.documents.mistakes import Mistake, kind
from trioeval.documents.paths import DocumentPath
from trioeval.documents.positions import DEEPEST, too_deep


def check_plain(data: Any) -> list[Mistake]:
    """Return a mistake for everything that is not JSON: types, keys, numbers that are not finite, cycles.

    Example:
        >>> [mistake.message for mistake in check_plain({"a": [1, float("inf")]})]
        ['must be a finite number, got Infinity']
    """
    found: list[Mistake] = []
    _check(data, (), set(), found)
    return found


def is_too_deep(data: Any) -> bool:
    """Return whether data without cycles is nested too deeply. Goes level by level, without recursion.

    Example:
        >>> import json
        >>> is_too_deep([[1]]), is_too_deep(json.loads("[" * 201 + "]" * 201))
        (False, True)
    """
    level, depth = [data] if isinstance(data, dict | list) else [], 0
    while level := [
        member
        for holder in level
        for member in (holder.values() if type(holder) is dict else holder)
        if type(member) is dict or type(member) is list
    ]:
        depth += 1
        if depth >= DEEPEST:
            return True
    return False


def _check(value: Any, path: DocumentPath, above: set[int], found: list[Mistake]) -> None:
    if not isinstance(value, dict | list):
        if fault := _fault(value):
            found.append(Mistake(fault, at=path))
    elif id(value) in above:
        found.append(Mistake("contains itself", at=path))
    elif len(path) >= DEEPEST:
        found.append(too_deep(path))
    else:
        above.add(id(value))
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for step, member in members:
            # Most members are plain texts: building a path for them would cost time.
            if not (isinstance(member, str) and member.isascii()):
                _check(member, (*path, step), above, found)
        above.remove(id(value))
        if isinstance(value, dict):
            found += _key_mistakes(value, path)


def _key_mistakes(value: dict[Any, Any], path: DocumentPath) -> Iterator[Mistake]:
    for key in value:
        if not isinstance(key, str):
            yield Mistake(f"a key must be text, got {kind(key)}", at=path)
        elif not key.isascii() and (fault := _fault(key)):
            yield Mistake(fault, at=(*path, key), key=True)


def _fault(value: Any) -> str | None:
    match value:
        case None | bool():
            return None
        case str():
            whole = not any("\ud800" <= letter <= "\udfff" for letter in value)
            return None if whole else f"a lone surrogate is not a valid character, in {kind(value)}"
        case int() | float():
            finite = abs(value) <= sys.float_info.max
            return None if finite else f"must be a finite number, got {kind(value)}"
        case _:
            return f"must be JSON data, got {kind(value)}"
