"""What is said of files that cannot be read as documents, line by line."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trioeval.errors import SuiteError
from trioeval.suite import load_suite
from trioeval.suite.documents import read_document

if TYPE_CHECKING:
    import os

GOOD = b'{"providers": ["echo"]}'
MERGED = "k0: &a0 {x: 1}\n" + "".join(f"k{n}: &a{n} {{<<: *a{n - 1}}}\n" for n in range(1, 2000))

BROKEN: list[tuple[str, bytes, str]] = [
    ("a.json", b"", "a.json: $: the file is empty"),
    ("a.yaml", b" \r\n\n", "a.yaml: $: the file is empty"),
    ("a.yaml", b"# only a comment\n", "a.yaml: $: the file is empty"),
    ("a.toml", GOOD, 'a.toml: $: the suffix ".toml" is not known\n  use one of .json, .yaml, .yml'),
    ("a", GOOD, 'a: $: the suffix "" is not known\n  use one of .json, .yaml, .yml'),
    (
        "a.yaml",
        b"providers: [echo]\r\nprompts: ['caf\xe9']\r\n",
        "a.yaml:2:15: $: byte 33 (0xe9) is not UTF-8\n  save the file as UTF-8",
    ),
    (
        "a.json",
        b'\xef\xbb\xbf{"\xc3\xbc": "\xff"}',
        "a.json:1:8: $: byte 11 (0xff) is not UTF-8\n  save the file as UTF-8",
    ),
    (
        "a.json",
        GOOD.decode().encode("utf-16"),
        "a.json:1:1: $: byte 0 (0xff) is not UTF-8\n  save the file as UTF-8",
    ),
    ("a.json", b'{"providers": ]', "a.json:1:15: $: not JSON: expecting value"),
    ("a.json", b'{"a": 1\n "b": 2}', "a.json:2:2: $: not JSON: expecting ',' delimiter"),
    ("a.json", GOOD + b"\n{}", "a.json:2:1: $: not JSON: extra data"),
    ("a.json", b"[" * 5000, "a.json:1:201: $[0][0][0][0]: is nested more than 200 levels deep"),
    (
        "a.yaml",
        b"prompts: [a\ntests: b\n",
        "a.yaml:2:6: $: not YAML: while parsing a flow sequence, did not find expected ',' or ']'",
    ),
    (
        "a.yaml",
        b"a: 1\n---\nb: 2\n",
        "a.yaml:2:1: $: not YAML: expected a single document in the stream, but found another document",
    ),
    ("a.yaml", b"a: *b\n", "a.yaml:1:4: $: not YAML: found undefined alias"),
    (
        "a.yml",
        b"a: 'x\n\x01'\n",
        "a.yml:2:1: $: not YAML: the character U+0001 may not stand in it",
    ),
    (
        "a.yaml",
        b"a: 1\nb: !!python/object:os.system x\n",
        (
            "a.yaml:2:4: $: the tag !!python/object:os.system is not supported\n"
            "  write the value without a tag"
        ),
    ),
    ("a.yaml", b"[" * 30_000, "a.yaml:1:201: $[0][0][0][0]: is nested more than 200 levels deep"),
    (
        "a.yaml",
        f"{MERGED}<<: *a1999\nmore: [{'1, ' * 20_000}]\n".encode(),
        "a.yaml: $: mappings are merged through too many others",
    ),
]


def problems(path: str | Path) -> str:
    with pytest.raises(SuiteError) as caught:
        load_suite(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"), BROKEN, ids=[f"{n}-{m[:40]}" for n, _, m in BROKEN]
)
def test_a_broken_file_says_where_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, message: str
) -> None:
    """One message, with line and column from 1 where there are any."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert problems(name) == message


@pytest.mark.parametrize("name", ["suites", "suites.json"])
def test_a_folder_is_no_suite_file(tmp_path: Path, name: str) -> None:
    """With a suffix and without one."""
    (tmp_path / name).mkdir()
    assert problems(tmp_path / name) == f"{tmp_path / name}: $: is a folder, not a suite file"


def test_a_file_that_is_not_there_is_told() -> None:
    """Whatever its suffix."""
    assert problems("nowhere.json") == "nowhere.json: $: there is no such file"
    assert problems("nowhere.xml") == "nowhere.xml: $: there is no such file"


def test_a_name_that_no_file_can_have_is_told() -> None:
    """In the words of the system."""
    assert problems("a\0.json") == "a\0.json: $: cannot be read: embedded null byte"


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    """A loop of links stands for everything that the system refuses."""
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    assert problems(loop).startswith(f"{loop}: $: cannot be read: ")


@pytest.mark.parametrize("name", ["a.json", "a.JSON", "a.yaml", "a.yml"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_json_yaml_and_the_byte_order_mark_are_taken(
    tmp_path: Path, name: str, mark: bytes
) -> None:
    """The suffix decides in any case; a path may be anything that names one."""
    (tmp_path / name).write_bytes(mark + GOOD)
    path: os.PathLike[str] = tmp_path / name
    assert load_suite(path).providers[0].id == "echo"
    assert load_suite(str(path)).file == tmp_path / name


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_line_ends_of_any_system_are_taken(tmp_path: Path, name: str) -> None:
    """And counted as one line end each."""
    text = '{"providers":\r\n["echo"],\r\n  "bogus": 1}\r\n'
    (tmp_path / name).write_bytes(text.encode())
    assert problems(tmp_path / name).splitlines()[0] == (
        f'{tmp_path / name}:3:3: $.bogus: "bogus" is not a key here'
    )


def test_a_sound_file_has_no_mistakes(tmp_path: Path) -> None:
    """Its places can be asked for all the same."""
    file = tmp_path / "a.json"
    file.write_bytes(GOOD)
    document = read_document(file)
    assert (document.data, document.mistakes) == ({"providers": ["echo"]}, ())
    spots = document.spots().root
    assert spots is not None
    assert spots.find(("providers", 0)) == (1, 16)
