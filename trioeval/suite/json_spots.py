"""Where everything stands in a JSON text.

The standard parser keeps no positions. This scanner walks a text that the parser has accepted; it checks
nothing but depth and repeated keys, and no depth is too much for it.
"""

import bisect
import json
import re

from trioeval.suite.mistakes import Place
from trioeval.suite.spots import SpotTree

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s,:{}\[\]"]+')


def json_spots(text: str) -> SpotTree:
    """The spots of a JSON text, in one pass over it.

    Example:
        >>> json_spots('{"a": [true]}').root.find(("a", 0))
        (1, 8)
    """
    tree = SpotTree()
    breaks = [found.start() for found in re.finditer("\n", text)]
    for token in _TOKEN.finditer(text):
        place = _place(breaks, token.start())
        match token[0]:
            case "{" | "[" as bracket:
                tree.open(place, mapping=bracket == "{")
            case "}" | "]":
                tree.close()
            case name if tree.awaits_key:
                tree.key(json.loads(name), place)
            case _:
                tree.value(place)
    return tree


def _place(breaks: list[int], at: int) -> Place:
    line = bisect.bisect_left(breaks, at)
    return line + 1, at - (breaks[line - 1] if line else -1)
