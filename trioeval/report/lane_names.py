"""What people call the lanes of a run: as much of their keys as tells them apart. Pure.

A key such as `openai|https://api.openai.com/v1|4f5c…|-|gpt-4o` is right, and too long for a table. The whole
key stays in documents, in titles of pages, and in commands.
"""

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

_BETWEEN = "|"
_EMPTY = {"", "-"}
_DIGEST = re.compile(r"[0-9a-f]{12}")
_MANY = 8  # parts of a key from which on nobody made it of a provider


def lane_names(keys: Iterable[str]) -> Mapping[str, str]:
    """A name for each lane: the fewest parts of its key that no other lane has.

    Names are unique. They are of the whole set: the same lane may have another name among others. Texts are
    foreign, as the keys are: whoever shows them makes them inert, and cuts them.

    Args:
        keys: Of the lanes, in any order.

    Example:
        >>> host = "openai|http://127.0.0.1:8799/v1|-|-"
        >>> [*lane_names([f"{host}|6b", f"{host}|7b", "echo"]).values()]
        ['6b', '7b', 'echo']
    """
    whole = tuple(dict.fromkeys(keys))
    names = _names(frozenset(whole))
    return {key: names[key] for key in whole}


@functools.lru_cache(maxsize=8)  # a run that is watched asks many times a second
def _names(keys: frozenset[str]) -> Mapping[str, str]:
    parts = {key: _parts(key) for key in keys}
    names: dict[str, str] = {}
    for count in range(1, _MANY + 1):
        if len(names) == len(parts):
            break
        held = Counter(found for own in parts.values() for found in _choices(own, count))
        for key in parts.keys() - names.keys():
            chosen = (found for found in _choices(parts[key], count) if held[found] == 1)
            if (found := next(chosen, None)) is not None:
                names[key] = _joined(key, found)
    return {key: names.get(key, key) for key in keys}


def _parts(key: str) -> Sequence[str]:
    """The parts of a key that say something, the most telling ones first; none of a key of too many."""
    said = [part for part in dict.fromkeys(key.split(_BETWEEN)) if part not in _EMPTY]
    if len(said) > _MANY:
        return ()
    # The last one is the model, the first one the family, between them is the account.
    latest_first = [*said[:-2:-1], *said[:1], *said[-2:0:-1]] if len(said) > 1 else said
    return sorted(latest_first, key=_dullness)


def _dullness(part: str) -> int:
    if _DIGEST.fullmatch(part):
        return 2
    return 1 if "://" in part else 2 if part == "http" else 0


def _choices(parts: Sequence[str], count: int) -> Iterator[frozenset[str]]:
    return map(frozenset, itertools.combinations(parts, count))


def _joined(key: str, chosen: frozenset[str]) -> str:
    """Parts in the order in which the key has them. A digest alone says nothing to anybody."""
    own = [part for part in dict.fromkeys(key.split(_BETWEEN)) if part not in _EMPTY]
    shown = chosen if any(map(_is_readable, chosen)) else {*chosen, own[0]}
    return _BETWEEN.join(part for part in own if part in shown)


def _is_readable(part: str) -> bool:
    return _DIGEST.fullmatch(part) is None
