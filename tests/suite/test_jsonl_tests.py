"""Tests from JSONL: small files are checked at once, large ones are read on access."""

import json
import os
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError
from trioeval.suite.model import Test
from trioeval.suite.sources.jsonl_tests import (
    CHECKED_AT_ONCE,
    JsonlFile,
    JsonlTests,
    is_irregular,
    read_jsonl_tests,
)

MANY = CHECKED_AT_ONCE + 1


def plain(data: Any) -> Test:
    """Stand in for the reader of suites."""
    if data.get("vars") == {"q": "bad"}:
        raise MistakenError(Mistake("a bad value", at=("vars", "q")))
    return Test(vars=data.get("vars", {}), description=data.get("description"))


def read(file: Path, *, alone: bool = False) -> Any:
    return read_jsonl_tests(file, FileContext(directory=file.parent), plain, alone=alone)


def written(tmp_path: Path, *lines: Any) -> Path:
    file = tmp_path / "t.jsonl"
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return file


@pytest.fixture
def large(tmp_path: Path) -> Callable[..., JsonlTests]:
    """Create a file of many tests that ends with the given lines, and read it."""

    def make(*last: Any) -> JsonlTests:
        regular = ({"vars": {"q": str(number)}} for number in range(MANY))
        found = read(written(tmp_path, *regular, *last))
        assert isinstance(found, JsonlTests)
        return found

    return make


def test_every_line_that_is_not_blank_is_a_test(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"vars": {"q": 1}}\r\n\n \t\r\n{"vars": {"q": "\xc3\xa4"}}')
    assert [test.vars["q"] for test in read(file)] == [1, "ä"]


def test_an_empty_file_has_no_tests(tmp_path: Path) -> None:
    assert read(written(tmp_path)) == ()


def test_tests_of_a_single_file_are_named_by_their_number(tmp_path: Path) -> None:
    file = written(tmp_path, {"vars": {}}, "", {"description": "mine"}, {"description": ""})
    assert [test.description for test in read(file, alone=True)] == ["Row #1", "mine", "Row #3"]
    assert [test.description for test in read(file)] == [None, "mine", ""]


def test_all_mistakes_of_a_small_file_are_reported_with_their_lines(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        {"vars": {"q": "bad"}},
        "",
        "{'vars': 1}",
        "[1]",
        '{"vars": {"a": 1, "a": 2}}',
        '{"vars": {"a": 1e999}}',
        '{"vars": {"a": "\\ud800"}}',
        {"vars": {"q": "good"}},
        "[" * 100_000,
    )
    with pytest.raises(MistakenError) as caught:
        read(file)
    mistakes = [(part.file, part.place, part.at, part.message) for part in caught.value.parts]
    assert mistakes == [
        (file, (1, 1), ("vars", "q"), "a bad value"),
        (
            file,
            (3, 2),
            (),
            'single quotes are not allowed in JSON: write double quotes, "…"',
        ),
        (file, (4, 1), (), "a test must be an object, got a list"),
        (file, (5, 1), (), 'duplicate key "a"'),
        (file, (6, 1), ("vars", "a"), "must be a finite number, got Infinity"),
        (
            file,
            (7, 1),
            ("vars", "a"),
            'a lone surrogate is not a valid character, in the text "\\ud800"',
        ),
        (file, (9, 1), (), "nested too deeply"),
    ]


def test_invalid_bytes_are_reported_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes(b'{"vars": {}}\n{"vars": {"q": "\xff"}}\n')
    with pytest.raises(MistakenError, match=re.escape("byte 16 of the line (0xff)")) as caught:
        read(file)
    assert caught.value.parts[0].place == (2, 1)


def test_a_removed_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MistakenError, match="cannot be read: No such file"):
        read(tmp_path / "none.jsonl")


def test_a_large_file_is_a_lazy_sequence(large: Callable[..., JsonlTests], tmp_path: Path) -> None:
    tests = large()
    assert len(tests) == MANY
    assert repr(tests) == f"<{MANY} tests in {tmp_path / 't.jsonl'}>"
    assert tests[0].vars == {"q": "0"}
    assert tests[-1] == tests[MANY - 1]
    assert [test.vars["q"] for test in tests[3:6]] == ["3", "4", "5"]
    assert tests[7] is tests[7]
    with pytest.raises(IndexError):
        tests[MANY]


def test_an_invalid_line_of_a_large_file_is_an_error_on_access(
    large: Callable[..., JsonlTests], tmp_path: Path
) -> None:
    tests = large("{'", {"vars": {"q": "bad"}}, "", '{"vars": {}} 7')
    file = tmp_path / "t.jsonl"
    assert [test.fault for test in tests[-3:]] == [
        (
            f"{file}:{MANY + 1}:2: $: single quotes are not allowed in JSON: "
            'write double quotes, "…"'
        ),
        f"{file}:{MANY + 2}:1: $.vars.q: a bad value",
        f"{file}:{MANY + 4}:14: $: not JSON: extra data\n  write one object a line",
    ]
    assert tests[0].fault is None


@pytest.mark.slow
def test_irregular_lines_of_a_large_file_are_checked_at_once(
    large: Callable[..., JsonlTests],
) -> None:
    tests = large(
        {"vars": {"q": ["a", "b"]}}, {"metadata": {"l": ["a"]}}, {"options": {"repeat": 2}}
    )
    assert list(tests.irregular) == [MANY, MANY + 2]
    with pytest.raises(MistakenError) as caught:
        large({"vars": {"q": "bad"}, "prompts": ["p"]}, '{"options": ')
    assert [part.place for part in caught.value.parts] == [(MANY + 1, 1), (MANY + 2, 12)]


@pytest.mark.slow
@pytest.mark.parametrize("space", ["", " \t"])
def test_a_line_that_names_a_file_is_read_at_once(
    large: Callable[..., JsonlTests], tmp_path: Path, space: str
) -> None:
    """This holds for any name: such a line makes as many rows as the file contains."""
    (tmp_path / "extra.yaml").write_text("vars: {q: [a, b]}")
    tests = large(f'{space}"extra.yaml"', {"vars": {"q": "c"}})
    assert list(tests.irregular) == [MANY]
    assert tests[MANY].vars == {"q": ["a", "b"]}
    with pytest.raises(MistakenError, match=re.escape('file not found: "file://none.yaml"')):
        large(f'{space}"none.yaml"')


@given(
    lines=st.lists(
        st.sampled_from(['{"vars": {}}', ' {"vars": {}}', '"a.yaml"', ' "a.yaml"', "7", "[1]", ""])
        | st.sampled_from([" \t", "null", "\x0b7", "é", '{"vars": [1]}', '{"prompts": []}']),
        max_size=12,
    ),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_lines_are_counted_and_classified_in_one_pass(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str
) -> None:
    """This holds for blank lines, and for lines with any beginning."""
    file = tmp_path_factory.getbasetemp() / "counted.jsonl"
    file.write_bytes(end.join(lines).encode())
    scanned = JsonlFile(file)
    starts, candidates = scanned.scan()
    filled = [number for number, line in enumerate(lines, 1) if line.strip()]
    assert [scanned.number(place, start) for place, start in enumerate(starts)] == filled
    texts = [line.strip() for line in lines if line.strip()]
    assert list(candidates) == [place for place, text in enumerate(texts) if text != '{"vars": {}}']


def test_a_file_of_invalid_lines_is_reported_quickly_and_briefly(tmp_path: Path) -> None:
    """Fifty mistakes suffice; no line is searched from the beginning of the file."""
    count = CHECKED_AT_ONCE
    file = written(tmp_path, *(line for _ in range(count // 2) for line in ("", "7" + " " * 200)))
    started_at = time.process_time()
    with pytest.raises(MistakenError) as caught:
        read(file)
    assert time.process_time() - started_at < 5  # 16 s if each line is searched separately
    *mistakes, last = caught.value.parts
    assert [part.place for part in mistakes] == [(2 * number, 1) for number in range(1, 51)]
    assert (last.message, last.place) == (f"… and {count // 2 - 50} more mistakes", (102, 1))


def test_a_file_that_changed_after_loading_is_an_error(
    large: Callable[..., JsonlTests], tmp_path: Path
) -> None:
    """Each test is the one that was loaded, or an error: lines that were read before the change are valid."""
    tests = large()
    before = tests[5]
    file = tmp_path / "t.jsonl"
    state = file.stat()
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    message = f"{file}: the file has changed since the suite was loaded\n  load the suite again"
    assert tests[6].vars == {"q": "6"}
    assert tests[MANY - 2].fault == message
    assert tests[5] is before
    file.unlink()
    assert tests[MANY - 1].fault == f"{file}: cannot be read any more: No such file or directory"


def test_variables_of_a_test_are_relative_to_the_file_or_the_suite(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "v.yaml").write_text("q: suite")
    (tmp_path / "sub" / "v.yaml").write_text("q: beside")
    file = written(tmp_path / "sub", {"vars": "v.yaml"})
    context = FileContext(directory=tmp_path)
    for alone, wanted in ((False, "beside"), (True, "suite")):
        (test,) = read_jsonl_tests(file, context, plain, alone=alone)
        assert test.vars == {"q": wanted}


@pytest.mark.parametrize(
    "test",
    [
        {"provider": "echo"},
        {"providers": ["echo"]},
        {"prompts": ["a"]},
        {"vars": "v.yaml"},
        {"vars": ["v.yaml"]},
        {"vars": {"q": ["a"]}},
        {"vars": {"q": "file://*.txt"}},
        {"options": {"repeat": 2}},
        {"options": {"runSerially": True}},
        {"options": {"run_serially": True}},
        {"options": {"storeOutputAs": "r"}},
        {"options": {"transformVars": "vars"}},
        {"options": {"disableVarExpansion": True}},
        {"options": "file://o.yaml"},
        {"metadata": {"conversationId": "c"}},
        {"metadata": "file://m.yaml"},
        {"vars": None},
        "file://test.yaml",
    ],
)
def test_lines_that_change_the_shape_or_order_of_a_run_are_irregular(test: Any) -> None:
    assert is_irregular(test)


@pytest.mark.parametrize(
    "test",
    [
        {"vars": {"q": "a", "l": [1, "a"], "e": [], "o": {"a": ["b"]}}},
        {"vars": {}, "assert": [{"type": "contains-any", "value": ["a"]}]},
        {"options": {"prefix": "a"}, "metadata": {"topic": "a", "l": ["a"]}, "threshold": 1},
    ],
)
def test_all_other_lines_are_regular(test: Any) -> None:
    assert not is_irregular(test)


KEYS = st.sampled_from(
    [
        *("vars", "options", "metadata", "assert", "provider", "providers", "prompts", "prompt"),
        *("repeat", "runSerially", "run_serially", "storeOutputAs", "transformVars", "topic"),
        *("disableVarExpansion", "conversationId", "description", "q"),
    ]
)
TEXTS = st.sampled_from(["", "a", "file://x", "file:", '["', "é", "\n", "options", "/"])
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@given(
    tests=st.lists(VALUES, max_size=4),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]),
    spaced=st.booleans(),
    letter=st.sampled_from('aeiopv/:"'),
    long=st.booleans(),
)
def test_every_irregular_line_is_recognised_by_its_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    tests: list[Any],
    separators: tuple[str, str],
    spaced: bool,
    letter: str,
    long: bool,
) -> None:
    """This holds for any escapes and any white space."""
    file = tmp_path_factory.mktemp("lines") / "t.jsonl"
    texts = [json.dumps(test, separators=separators, ensure_ascii=long) for test in tests]
    if letter == "/":
        texts = [text.replace("/", "\\/") for text in texts]
    elif letter != '"' and long:
        texts = [text.replace(letter, f"\\u{ord(letter):04x}") for text in texts]
    if spaced:
        texts = [text.replace("[", "[ \t").replace("{", " {\t") for text in texts]
    texts = [text for text in texts if _is_json(text)]
    file.write_text("\n \n".join(texts), encoding="utf-8")
    starts, candidates = JsonlFile(file).scan()
    assert len(starts) == len(texts)
    irregular = {place for place, text in enumerate(texts) if is_irregular(json.loads(text))}
    assert irregular <= set(candidates)
    assert sorted(set(candidates)) == list(candidates)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:  # an escape where none is allowed, such as in null, or a tab in a text
        return False
    return True


@pytest.mark.slow
def test_a_line_needs_little_memory(tmp_path: Path) -> None:
    """At most nine bytes, however long the lines are."""
    count = 200_000
    file = tmp_path / "t.jsonl"
    with file.open("w") as out:
        out.writelines(f'{{"vars": {{"q": "{"x" * 100}", "n": {n}}}}}\n' for n in range(count))
    tracemalloc.start()
    try:
        tests = read(file)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(tests) == count
    assert kept < 10 * count + 100_000
