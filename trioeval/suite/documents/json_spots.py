"""Where everything stands in a JSON text.

The standard parser keeps no positions. This scanner walks a text that the parser has accepted; it checks
nothing but depth and repeated keys, and no depth is too much for it.
"""

import json
import re

from trioeval.suite.documents.spots import LineIndex, SpotTree

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s,:{}\[\]"]+')


def json_spots(text: str) -> SpotTree:
    """The spots of a JSON text, in one pass over it.

    Example:
        >>> json_spots('{"a": [true]}').root.find(("a", 0))
        (1, 8)
    """
    tree = SpotTree()
    lines = LineIndex(text)
    for token in _TOKEN.finditer(text):
        place = lines.place(token.start())
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
