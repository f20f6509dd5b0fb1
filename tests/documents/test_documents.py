"""Messages about files that cannot be read as documents, line by line."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trioeval.documents import read_document
from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite

if TYPE_CHECKING:
    import os

GOOD = b'{"providers": ["echo"]}'

BROKEN: list[tuple[str, bytes, str]] = [
    ("a.json", b"", "a.json: the file is empty"),
    ("a.yaml", b" \r\n\n", "a.yaml: the file is empty"),
    ("a.yaml", b"# only a comment\n", "a.yaml: the file is empty"),
    (
        "a.xml",
        GOOD,
        'a.xml: the suffix ".xml" is not known\n  use one of .json, .yaml, .yml, .toml',
    ),
    ("a", GOOD, 'a: the suffix "" is not known\n  use one of .json, .yaml, .yml, .toml'),
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
    ("a.json", b'{"a": 1\n "b": 2}', "a.json:1:8: $: missing comma: add one here"),
    ("a.json", b'{"a": [1, 2\n 3]}', "a.json:1:12: $: missing comma: add one here"),
    ("a.json", b'{"a": 1 b}', "a.json:1:9: $: not JSON: expecting ',' delimiter"),
    ("a.json", b'{"a": 1,\n "b": 2,\n}', "a.json:2:8: $: trailing comma: remove it"),
    ("a.json", b'{"a": [1,\n 2 , ]}', "a.json:2:4: $: trailing comma: remove it"),
    ("a.json", b'{"a": ","]}', "a.json:1:10: $: not JSON: expecting ',' delimiter"),
    *(
        (
            "a.json",
            b'{"a": 1, ' + comment + b'\n "b": 2}',
            "a.json:1:10: $: comments are not allowed in JSON: remove it, or write the file in YAML with #",
        )
        for comment in (b"// first", b"# first", b"/* first */")
    ),
    (
        "a.json",
        b"{'a': 1}",
        'a.json:1:2: $: single quotes are not allowed in JSON: write double quotes, "\u2026"',
    ),
    (
        "a.json",
        "{\u201ca\u201d: 1}".encode(),
        'a.json:1:2: $: curly quotes are not allowed in JSON: write straight ones, "\u2026"',
    ),
    ("a.json", b'{"a": True}', "a.json:1:7: $: True is not a value in JSON: write true"),
    ("a.json", b'{"a": [None]}', "a.json:1:8: $: None is not a value in JSON: write null"),
    ("a.json", b"{a: 1}", 'a.json:1:2: $: keys must be in double quotes: write "a"'),
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
        "a.yml:2:1: $: not YAML: the character U+0001 is not allowed",
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
    ("a.yaml", b"{a: " * 30_000, "a.yaml:1:801: $.a.a.a.a: is nested more than 200 levels deep"),
    ("a.yaml", b"- " * 30_000, "a.yaml:1:401: $[0][0][0][0]: is nested more than 200 levels deep"),
    (
        "a.yaml",
        b"".join(b" " * n + b"b:\n" for n in range(1200)),
        "a.yaml:201:201: $.b.b.b.b: is nested more than 200 levels deep",
    ),
    (
        "a.yaml",
        b"a: {<<: [{b: 1}, 5]}\n",
        "a.yaml:1:5: $: the key << takes a mapping or a list of mappings",
    ),
    (
        "a.yaml",
        b"a: [.inf]\nb: 1\nb: -1e999\n",
        (
            "a.yaml:1:5: $.a[0]: must be a finite number, got Infinity\n"
            'a.yaml:3:1: $.b: duplicate key "b": it is already in line 2\n'
            "a.yaml:3:4: $.b: must be a finite number, got -Infinity"
        ),
    ),
    (
        "a.yaml",
        b"a:\n\t- b\n",
        "a.yaml:2:1: $: not YAML: tab where only spaces are allowed\n  indent with spaces",
    ),
    ("a.json", b'{"a": [1, NaN]}', "a.json:1:11: $.a[1]: must be a finite number, got NaN"),
    (
        "a.json",
        b'{"a": "\\ud83d"}',
        'a.json:1:7: $.a: a lone surrogate is not a valid character, in the text "\\ud83d"',
    ),
    (
        "a.json",
        b"[" * 300 + b"]" * 300,
        "a.json:1:201: $[0][0][0][0]: is nested more than 200 levels deep",
    ),
    (
        "a.toml",
        b"# nothing\n[",
        "a.toml:2:2: $: not TOML: invalid initial character for a key part",
    ),
    ("a.toml", b"a = 1\na = 2\n[b]", "a.toml:2:6: $: not TOML: cannot overwrite a value"),
    ("a.toml", b"[a]\n[a]\n", "a.toml:2:3: $: not TOML: cannot declare ('a',) twice"),
    ("a.toml", b"a =\n", "a.toml:1:4: $: not TOML: invalid value"),
    ("a.toml", b"a = " + b"9" * 5000, "a.toml: not TOML: an integer has too many digits"),
    ("a.toml", b"a = " + b"[" * 5000, "a.toml: is nested more than 200 levels deep"),
    ("a.toml", b".".join([b"a"] * 300) + b" = 1", "a.toml: is nested more than 200 levels deep"),
    ("a.toml", b"a = [1,\n nan]", "a.toml:2:2: $.a[1]: must be a finite number, got NaN"),
    (
        "a.toml",
        b'a = "\xe9"',
        "a.toml:1:6: $: byte 5 (0xe9) is not UTF-8\n  save the file as UTF-8",
    ),
]


def problems(path: str | Path) -> str:
    with pytest.raises(SuiteError) as caught:
        load_suite(path, strict=True)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"), BROKEN, ids=[f"{n}-{m[:40]}" for n, _, m in BROKEN]
)
def test_a_malformed_file_is_reported_with_position_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, message: str
) -> None:
    """There is one message, with line and column from 1 if they are known."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    assert problems(name) == message


@pytest.mark.parametrize("name", ["suites", "suites.json"])
def test_a_folder_is_not_a_suite_file(tmp_path: Path, name: str) -> None:
    """The message is the same with a suffix and without one."""
    (tmp_path / name).mkdir()
    assert problems(tmp_path / name) == f"{tmp_path / name}: is a folder, not a suite file"


def test_a_missing_file_is_reported() -> None:
    """The message does not depend on the suffix."""
    assert problems("nowhere.json") == "nowhere.json: file not found"
    assert problems("nowhere.xml") == "nowhere.xml: file not found"


def test_an_impossible_file_name_is_reported() -> None:
    """The message contains the reason of the operating system."""
    assert problems("a\0.json") == "a\0.json: cannot be read: embedded null byte"


def test_a_file_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    """A loop of links stands for every error of the operating system."""
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    assert problems(loop).startswith(f"{loop}: cannot be read: ")


@pytest.mark.parametrize("name", ["a.json", "a.JSON", "a.yaml", "a.yml"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_json_yaml_and_the_byte_order_mark_are_accepted(
    tmp_path: Path, name: str, mark: bytes
) -> None:
    """The suffix determines the format in any case; a path may be text or a Path."""
    (tmp_path / name).write_bytes(mark + GOOD)
    path: os.PathLike[str] = tmp_path / name
    assert load_suite(path).providers[0].id == "echo"
    assert load_suite(str(path)).file == tmp_path / name


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_line_ends_of_any_system_are_accepted(tmp_path: Path, name: str) -> None:
    """Each line end counts as one."""
    text = '{"providers":\r\n["echo"],\r\n  "bogus": 1}\r\n'
    (tmp_path / name).write_bytes(text.encode())
    assert problems(tmp_path / name).splitlines()[0] == (
        f'{tmp_path / name}:3:3: $.bogus: "bogus" is not a key here'
    )


def test_a_valid_file_has_no_mistakes(tmp_path: Path) -> None:
    """Its positions can be looked up all the same."""
    file = tmp_path / "a.json"
    file.write_bytes(GOOD)
    document = read_document(file)
    assert (document.data, document.mistakes) == ({"providers": ["echo"]}, [])
    spots = document.spots().root
    assert spots is not None
    assert spots.find(("providers", 0)) == (1, 16)


def test_an_object_that_merges_thousands_of_others_is_read(tmp_path: Path) -> None:
    """Each merges the one before it; reading uses no recursion."""
    file = tmp_path / "a.yaml"
    merged = "".join(f"k{n}: &a{n} {{<<: *a{n - 1}}}\n" for n in range(1, 2000))
    file.write_text(f"k0: &a0 {{x: 1}}\n{merged}<<: *a1999\nmore: [{'1, ' * 20_000}]\n")
    assert read_document(file).data["x"] == 1


@pytest.mark.parametrize("name", ["a.json", "a.yaml", "a.toml"])
def test_a_suite_is_equal_in_every_format(tmp_path: Path, name: str) -> None:
    """JSON, YAML and TOML load alike."""
    texts = {
        "a.json": '{"providers": ["echo"], "tests": [{"vars": {"day": "2024-01-31", "n": 10}}]}',
        "a.yaml": "providers: [echo]\ntests:\n- vars: {day: 2024-01-31, n: 010}\n",
        "a.toml": 'providers = ["echo"]\n[[tests]]\nvars = {day = 2024-01-31, n = 1_0}\n',
    }
    (tmp_path / name).write_text(texts[name])
    suite = load_suite(tmp_path / name)
    assert suite.providers[0].id == "echo"
    assert suite.tests[0].vars == {"day": "2024-01-31", "n": 10}
