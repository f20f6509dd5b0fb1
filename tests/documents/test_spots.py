import json
import string
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trioeval.documents.mistakes import Mistake, MistakenError, Place
from trioeval.documents.paths import DocumentPath
from trioeval.documents.positions import Spot, SpotTree
from trioeval.documents.read import json_spots
from trioeval.documents.yaml import yaml_spots

LETTERS = string.ascii_letters + string.digits + " {}[]:,-#'\\\"\n<"
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
YAML_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(LETTERS, max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(LETTERS, max_size=8).filter(lambda k: k != "<<"), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@st.composite
def spaced_json(draw: st.DrawFn) -> tuple[str, dict[DocumentPath, tuple[int, int | None]]]:
    """Draw a JSON text with any white space, and the offset of every value and of its key."""
    space = st.text(" \t\n\r", max_size=3)
    offsets: dict[DocumentPath, tuple[int, int | None]] = {}
    text = ""

    def write(piece: str) -> None:
        nonlocal text
        text += draw(space) + piece + draw(space)

    def write_scalar(value: Any) -> int:
        nonlocal text
        text += draw(space)
        at = len(text)
        text += json.dumps(value, ensure_ascii=draw(st.booleans()))
        return at

    def write_value(value: Any, path: DocumentPath, key_at: int | None) -> None:
        nonlocal text
        text += draw(space)
        offsets[path] = (len(text), key_at)
        if isinstance(value, dict):
            text += "{"
            for position, (key, member) in enumerate(value.items()):
                write("," if position else "")
                at = write_scalar(key)
                write(":")
                write_value(member, (*path, key), at)
            write("}")
        elif isinstance(value, list):
            text += "["
            for position, member in enumerate(value):
                write("," if position else "")
                write_value(member, (*path, position), None)
            write("]")
        else:
            text += json.dumps(value, ensure_ascii=draw(st.booleans()))

    write_value(draw(DOCUMENTS), (), None)
    return text, offsets


def root(tree: SpotTree) -> Spot:
    assert tree.root is not None
    return tree.root


def places(
    spot: Spot, path: DocumentPath = ()
) -> Iterator[tuple[DocumentPath, Place, Place | None]]:
    yield path, spot.place, spot.key
    for step, member in spot.members.items():
        yield from places(member, (*path, step))


def place_of(text: str, at: int) -> Place:
    return text[:at].count("\n") + 1, len(text[:at].rpartition("\n")[2]) + 1


@pytest.mark.slow
@given(spaced_json())
def test_json_positions_are_those_of_the_text(
    written: tuple[str, dict[DocumentPath, tuple[int, int | None]]],
) -> None:
    """For any document with any white space, every value and every key is found, and nothing else."""
    text, offsets = written
    assert {path: (place, key) for path, place, key in places(root(json_spots(text)))} == {
        path: (place_of(text, at), None if key_at is None else place_of(text, key_at))
        for path, (at, key_at) in offsets.items()
    }


def composed(node: yaml.Node, path: DocumentPath) -> Iterator[tuple[DocumentPath, Place]]:
    yield path, (node.start_mark.line + 1, node.start_mark.column + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from composed(value, (*path, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            yield from composed(value, (*path, position))


@pytest.mark.slow
@given(YAML_DOCUMENTS, st.sampled_from([True, False, None]))
def test_yaml_positions_are_those_of_the_composer(document: Any, style: bool | None) -> None:  # noqa: FBT001
    """Positions in block style, flow style and a mix equal those of an independent reader."""
    text = yaml.safe_dump(document, default_flow_style=style, width=20)
    found = {path: place for path, place, _ in places(root(yaml_spots(text)))}
    node = yaml.compose(text, yaml.CSafeLoader)
    assert node is not None
    assert found == dict(composed(node, ()))


@pytest.mark.slow
@given(YAML_DOCUMENTS)
def test_json_read_as_yaml_has_the_same_positions(document: Any) -> None:
    """Two independent scanners agree on texts that both can read."""
    text = json.dumps(document, indent=1)
    assert root(json_spots(text)) == root(yaml_spots(text))


NESTED = """\
base: &base
  rpm: 5
  delay: 1
other: &other {rpm: 6, burst: 2}
one:
  <<: *base
  delay: 3
many:
  <<: [*base, *other]
again: *base
"""


def test_merged_members_have_the_position_of_their_definition() -> None:
    """Own members win, then the first merged mapping; an alias has the position of its use."""
    spot = root(yaml_spots(NESTED))
    assert spot.find(("one", "rpm")) == (2, 8)
    assert spot.find(("one", "delay")) == (7, 10)
    assert spot.find(("many", "rpm")) == (2, 8)
    assert spot.find(("many", "burst"), key=True) == (4, 24)
    assert spot.find(("again",)) == (10, 8)
    assert spot.find(("again", "rpm")) == (2, 8)


def test_a_missing_value_has_the_position_of_its_nearest_parent() -> None:
    """A missing key has the position of its object; a list's member has no key."""
    spot = root(json_spots('{"a": [\n  {"b": 1}]}'))
    assert spot.find(("a", 0, "c", "d")) == (2, 3)
    assert spot.find(("a", 0, "b")) == (2, 9)
    assert spot.find(("a", 0, "b"), key=True) == (2, 4)
    assert spot.find(("a", 0), key=True) == (2, 3)
    assert spot.find(("z",)) == (1, 1)


@pytest.mark.parametrize(
    ("spots", "text"),
    [
        (json_spots, '{"a": {"b": 1,\n "b": 2,\n "b": 3}, "<<": {"a": 1},\n"a": 1}'),
        (yaml_spots, '{"a": {"b": 1,\n "b": 2,\n "b": 3}, "<": {"a": 1},\n"a": 1}'),
        (yaml_spots, "a:\n  b: 1\n  b: 2\n  b: 3\na: 1\n"),
    ],
    ids=["json", "yaml flow", "yaml block"],
)
def test_duplicate_keys_are_found(spots: Any, text: str) -> None:
    """Each is reported with the line of the one before it; merged keys are not duplicates."""
    lines = [mistake.message.rpartition(" ")[2] for mistake in spots(text).repeated]
    paths = [mistake.at for mistake in spots(text).repeated]
    assert paths == [("a", "b"), ("a", "b"), ("a",)]
    first = 2 if text.startswith("a") else 1
    assert lines == [str(first), str(first + 1), "1"]


def test_merged_keys_do_not_count_as_repeated() -> None:
    """A mapping may override the keys that it merges."""
    assert yaml_spots(NESTED).repeated == []


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("a: &x [1, *x]", "the alias *x contains itself", (1, 11)),
        ("a: &x\n  b: {c: *x}", "the alias *x contains itself", (2, 10)),
        ("? [a]\n: 1", "a key must be plain text", (1, 3)),
        ("? {a: b}\n: 1", "a key must be plain text", (1, 3)),
        ("a: &x b\n*x : 1", "a key must be plain text", (2, 1)),
        ("a: !!int 5", "the tag !!int is not supported", (1, 4)),
        ("!!binary aGk=: 5", "the tag !!binary is not supported", (1, 1)),
        ("a: !mine [1]", "the tag !mine is not supported", (1, 4)),
        ("a: ! 5", "the tag ! is not supported", (1, 4)),
        ("a: !!set {x, y}", "the tag !!set is not supported", (1, 4)),
        ("[" * 201 + "]" * 201, "is nested more than 200 levels deep", (1, 201)),
        ("- " * 30_000, "is nested more than 200 levels deep", (1, 401)),
    ],
)
def test_unsupported_yaml_is_refused_with_its_position(
    text: str, message: str, place: Place
) -> None:
    """They are refused before anything is composed, which some of them would crash."""
    with pytest.raises(MistakenError) as caught:
        yaml_spots(text)
    (mistake,) = caught.value.parts
    assert (mistake.message, mistake.place) == (message, place)


def test_merges_of_merges_cannot_exhaust_the_memory() -> None:
    """They are counted before they are expanded, although all together have one member."""
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 10)]
    with pytest.raises(MistakenError, match=r"^aliases expand \d+ values to \d{9,}$"):
        yaml_spots("\n".join(lines))


def test_aliases_of_aliases_cannot_exhaust_the_memory() -> None:
    """Ten lines that expand to a thousand million values are refused by counting."""
    lines = [
        "a0: &a0 [x]",
        *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)),
    ]
    with pytest.raises(MistakenError) as caught:
        yaml_spots("\n".join(lines))
    (mistake,) = caught.value.parts
    assert mistake.message == "aliases expand 93 values to 926177106"
    assert mistake.hint == "use fewer aliases"


def test_aliases_in_moderation_are_accepted() -> None:
    """A hundred tests may share settings by aliases."""
    text = "base: &b [1, 2, 3]\ntests:\n" + "- *b\n" * 100
    assert root(yaml_spots(text)).size == 406


def test_deeply_nested_brackets_are_counted_without_recursion() -> None:
    """Depth needs neither stack nor long paths; the first excessive bracket is reported."""
    depth = 20_000
    tree = json_spots("[" * depth + "]" * depth)
    assert tree.too_deep == Mistake(
        "is nested more than 200 levels deep", at=(0, 0, 0, 0), place=(1, 201)
    )


def test_an_empty_tree_has_no_root() -> None:
    """A YAML file of comments is empty."""
    assert yaml_spots("# nothing\n").root is None
