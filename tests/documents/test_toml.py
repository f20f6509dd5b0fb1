import json
import string
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.documents.mistakes import Place
from trioeval.documents.paths import DocumentPath
from trioeval.documents.positions import Spot
from trioeval.documents.toml import read_toml, toml_spots

TEXT = r'''# a comment with [brackets] = "and quotes"
title = """two
lines ""with"" quotes \
  and more"""   # end
"quoted \u0041 key".'bare.dot' = 'C:\path'
point = {x = 1.5, "y.z" = [1, # inside
  [2979-05-27T07:32:00Z, 07:32:00],
]}
[deep.er]
a.b = true
a.c = -inf
[[list]]
name = "one"
[[list.inner]]
[list.inner.leaf]
v = 1_000
[[list]]
name = "two"
empty = [ ]
[deep]
late = 0x1F
'''

PLACES: list[tuple[DocumentPath, Place, Place | None]] = [
    (("title",), (2, 9), (2, 1)),
    (("quoted A key",), (5, 1), (5, 1)),
    (("quoted A key", "bare.dot"), (5, 34), (5, 21)),
    (("point",), (6, 9), (6, 1)),
    (("point", "x"), (6, 14), (6, 10)),
    (("point", "y.z"), (6, 27), (6, 19)),
    (("point", "y.z", 0), (6, 28), None),
    (("point", "y.z", 1), (7, 3), None),
    (("point", "y.z", 1, 1), (7, 26), None),
    (("deep",), (9, 2), (9, 2)),
    (("deep", "er"), (9, 7), (9, 7)),
    (("deep", "er", "a", "c"), (11, 7), (11, 3)),
    (("list",), (12, 3), (12, 3)),
    (("list", 0), (12, 1), None),
    (("list", 0, "name"), (13, 8), (13, 1)),
    (("list", 0, "inner", 0, "leaf", "v"), (16, 5), (16, 1)),
    (("list", 1, "name"), (18, 8), (18, 1)),
    (("list", 1, "empty"), (19, 9), (19, 1)),
    (("deep", "late"), (21, 8), (21, 1)),
]


@pytest.mark.parametrize(("path", "place", "key"), PLACES, ids=[str(path) for path, _, _ in PLACES])
def test_every_toml_value_has_a_position(
    path: DocumentPath, place: Place, key: Place | None
) -> None:
    """A table written in several parts has the position of its first mention."""
    root = toml_spots(TEXT).root
    assert root is not None
    assert root.find(path) == place
    assert root.find(path, key=True) == (key or place)


def test_dates_and_times_are_text() -> None:
    """This is as in YAML; all other values are unchanged."""
    assert read_toml(
        "a = 2024-01-31\nb = 07:32:00\nc = [1979-05-27T07:32:00Z]\nd = {e = 1.0, f = true}\n"
    ) == {
        "a": "2024-01-31",
        "b": "07:32:00",
        "c": ["1979-05-27T07:32:00+00:00"],
        "d": {"e": 1.0, "f": True},
    }


KEYS = st.text(string.ascii_letters + ' ."#=[', min_size=1, max_size=4)
TABLES = st.dictionaries(
    KEYS,
    st.recursive(
        st.booleans() | st.integers(0, 99) | st.text("ab\"'\\]#,}\n", max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


def inline(value: Any, draw: st.DrawFn) -> str:
    gap = draw(st.sampled_from(["", " "]))
    match value:
        case dict():
            pairs = [
                f"{json.dumps(key)}{gap}={gap}{inline(part, draw)}" for key, part in value.items()
            ]
            return f"{{{gap}{f'{gap},{gap}'.join(pairs)}{gap}}}"
        case list():
            gap = draw(st.sampled_from(["", "\n", " # ] ,\n"]))
            members = f"{gap},{gap}".join(inline(part, draw) for part in value)
            return f"[{gap}{members}{gap}]"
        case str() if not set(value) & {"'", "\n"} and draw(st.booleans()):
            return f"'{value}'"
        case str() if draw(st.booleans()):
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"""\n{escaped}"""'
        case _:
            return json.dumps(value)


@st.composite
def toml_texts(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a document with any mix of headers, dotted keys and inline values, and its data."""
    data = draw(TABLES)
    plain, tables = "", ""
    for key, value in data.items():
        name = json.dumps(key)
        form = draw(st.integers(0, 2))
        if form and isinstance(value, dict) and value:
            for below, part in value.items():
                if form == 1:
                    plain += f"{name} . {json.dumps(below)}={inline(part, draw)}\n"
            if form == 2:
                pairs = (f"{json.dumps(k)} = {inline(part, draw)}\n" for k, part in value.items())
                tables += f"[{name}]\n{''.join(pairs)}"
        elif form and isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
            for part in value:
                pairs = (f"{json.dumps(k)} = {inline(v, draw)}\n" for k, v in part.items())
                tables += f"[[ {name} ]]\n{''.join(pairs)}"
        else:
            plain += f"{name} = {inline(value, draw)}\n"
    return plain + tables, data


def places(spot: Spot, path: DocumentPath = ()) -> Iterator[DocumentPath]:
    yield path
    for step, member in spot.members.items():
        yield from places(member, (*path, step))


def paths(value: Any, path: DocumentPath = ()) -> Iterator[DocumentPath]:
    yield path
    if isinstance(value, dict):
        for key, member in value.items():
            yield from paths(member, (*path, key))
    elif isinstance(value, list):
        for position, member in enumerate(value):
            yield from paths(member, (*path, position))


@pytest.mark.slow
@given(toml_texts())
@example(("", {}))
def test_the_scanner_and_the_parser_see_the_same_document(
    written: tuple[str, dict[str, Any]],
) -> None:
    """Every value has a position, and nothing else has; the text of a scalar begins at its position."""
    text, data = written
    assert read_toml(text) == data
    root = toml_spots(text).root
    assert root is not None
    assert sorted(map(str, places(root))) == sorted(map(str, paths(data)))
    lines = text.split("\n")
    for path in paths(data):
        value: Any = data
        for step in path:
            value = value[step]
        line, column = root.find(path)
        begins = lines[line - 1][column - 1 :] if text else ""
        if isinstance(value, bool | int):
            assert begins.startswith(json.dumps(value))
        elif isinstance(value, str):
            assert begins[0] in "\"'"
