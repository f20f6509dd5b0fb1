"""Types that examine the files that an agent left in its workspace."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import GradingError, Problem
from trioeval.grading import Assertion, Subject, grade
from trioeval.grading.grade import check_assertion
from trioeval.grading.kinds.workspace_files import (
    LARGEST,
    NoFileError,
    find_file,
    path_fault,
    place_of,
)
from trioeval.text import Computed

Result = tuple[bool, str]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a workspace, with a file beside it that must not be read."""
    folder = tmp_path / "workspace"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    (folder / "scores.json").write_text(json.dumps({"scores": [3, 4], "name": "x"}))
    (folder / "noise").write_bytes(b"\xff\xfeadd\x00")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "out").symlink_to(tmp_path / "secret.txt")
    (folder / "in").symlink_to(folder / "src" / "calc.py")
    (folder / "round").symlink_to(folder / "round")
    os.mkfifo(folder / "pipe")
    return folder


def judged(place: Path | None, name: str, value: Any = None, **known: Any) -> Result:
    """Return the result of an assertion, and its reason."""
    subject = Subject.of("text", workspace=place, **known)
    assertion = Assertion(type=name, value=value)
    (part,) = grade(subject, [assertion]).parts
    return part.passed, part.reason


def problems(name: str, value: Any) -> list[Problem]:
    """Return the problems of an assertion before a run."""
    return list(check_assertion(Assertion(type=name, value=value)))


@pytest.mark.parametrize(
    ("value", "passes", "reason"),
    [
        ("src/calc.py", True, 'file "src/calc.py" exists'),
        (["src/calc.py", "in"], True, 'files ["src/calc.py","in"] exist'),
        ("src/*.py", True, 'file "src/*.py" exists'),
        ("**/calc.??", True, 'file "**/calc.??" exists'),
        ("DONE", False, 'file "DONE" not found'),
        (["src/calc.py", "*.txt"], False, 'file "*.txt" not found'),
        ("src", False, 'file "src" not found'),
        ("pipe", False, 'file "pipe" not found'),
        ("round", False, 'file "round" not found'),
        ("scores.json/x", False, 'file "scores.json/x" not found'),
        ("src/*", True, 'file "src/*" exists'),
        ("**", True, 'file "**" exists'),
        ("src/**", True, 'file "src/**" exists'),
        ("**/src/**/c*.py", True, 'file "**/src/**/c*.py" exists'),
        ("*/calc.py", True, 'file "*/calc.py" exists'),
        ("*/*/calc.py", False, 'file "*/*/calc.py" not found'),
        ("**/[!a-z]*", False, 'file "**/[!a-z]*" not found'),
        ("**/src", False, 'file "**/src" not found'),
    ],
)
def test_files_exist_or_not(place: Path, value: Any, passes: bool, reason: str) -> None:  # noqa: FBT001
    """Each path and each pattern must match at least one file; folders and pipes do not count."""
    assert judged(place, "file-exists", value) == (passes, reason)
    if isinstance(value, str):
        assert judged(place, "not-file-exists", value) == (not passes, reason)


@pytest.mark.parametrize(
    ("value", "passes", "reason"),
    [
        (["DONE", "*.txt"], True, 'files ["DONE","*.txt"] not found'),
        (["DONE", "src/*.py"], False, 'file "src/*.py" exists'),
        (["in", "DONE"], False, 'file "in" exists'),
        (["in", "src/calc.py"], False, 'file "in" exists'),
    ],
)
def test_each_of_several_files_may_be_forbidden(
    place: Path,
    value: Any,
    passes: bool,  # noqa: FBT001
    reason: str,
) -> None:
    """One existing file fails the negation, although not all of them exist."""
    assert judged(place, "not-file-exists", value) == (passes, reason)


def test_matching_a_pattern_takes_bounded_time(place: Path) -> None:
    """Repeated `**` equals `**`; each folder is read once; an agent may leave any number of them."""
    deep = place.joinpath(*"abcdefghijkl")
    deep.mkdir(parents=True)
    readings = itertools.count()
    many = "/".join(["**"] * 30 + ["*"] + ["**", "?"] * 5 + ["nothing"])
    assert find_file(place, many, longest=1000, now=readings.__next__) is None
    with pytest.raises(NoFileError, match=r'the search for ".*nothing" took longer than 9 seconds'):
        find_file(place, "**/nothing", longest=9, now=itertools.count().__next__)
    assert find_file(place, "**/calc.py", longest=1000, now=itertools.count().__next__)
    (place / " ").mkdir()
    assert find_file(place, "?") is None


def test_a_path_with_wildcards_matches_a_file_of_that_name_first(place: Path) -> None:
    """A file with exactly that name is preferred to matches of the pattern."""
    (place / "a[1].txt").write_text("x")
    assert find_file(place, "a[1].txt") == "a[1].txt"
    assert find_file(place, "a[2].txt") is None


@pytest.mark.parametrize(
    ("value", "passes", "reason"),
    [
        ({"text": "return a + b"}, True, '"src/calc.py" contains "return a + b"'),
        ({"text": "a - b"}, False, '"src/calc.py" does not contain "a - b"'),
        ({"texts": ["def", "return"]}, True, '"src/calc.py" contains all of ["def","return"]'),
        ({"texts": ["def", "class"]}, False, '"src/calc.py" does not contain "class"'),
        ({"pattern": "add\\(a, *b\\)"}, True, '"src/calc.py" matches "add\\\\(a, *b\\\\)"'),
        ({"pattern": "^$"}, False, '"src/calc.py" does not match "^$"'),
    ],
)
def test_files_contain_texts_and_patterns(
    place: Path,
    value: dict[str, Any],
    passes: bool,  # noqa: FBT001
    reason: str,
) -> None:
    """All of several texts must occur; patterns are those of JavaScript."""
    value = {"file": "src/calc.py", **value}
    assert judged(place, "file-contains", value) == (passes, reason)
    assert judged(place, "not-file-contains", value) == (not passes, reason)


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("calc.py", 'file "calc.py" not found'),
        ("src", '"src" is a folder'),
        ("pipe", '"pipe" is not a file but a pipe or a device'),
        ("round", '"round" cannot be read: Too many levels of symbolic links'),
    ],
)
@pytest.mark.parametrize("inverted", ["", "not-"])
def test_an_unreadable_file_fails_either_way(
    place: Path, named: str, reason: str, inverted: str
) -> None:
    """A misspelt name must not pass under `not-`; a pipe without a writer must not block."""
    contains = f"{inverted}file-contains"
    assert judged(place, contains, {"file": named, "text": "x"}) == (False, reason)
    assert judged(place, f"{inverted}file-json", named) == (False, reason)


def test_files_that_are_not_valid_text_are_searched_nevertheless(place: Path) -> None:
    """As text, invalid bytes are replaced; as JSON, the file is invalid."""
    assert judged(place, "file-contains", {"file": "noise", "text": "add"})[0]
    assert judged(place, "file-json", "noise") == (False, '"noise" is not JSON: it is not UTF-8')


SCHEMA = {"type": "object", "required": ["scores"]}


@pytest.mark.parametrize(
    ("value", "passes", "reason"),
    [
        ({}, True, '"scores.json" is JSON'),
        ({"schema": SCHEMA}, True, '"scores.json" matches the schema'),
        ({"schema": json.dumps(SCHEMA)}, True, '"scores.json" matches the schema'),
        (
            {"equals": {"name": "x", "scores": [3, 4.0]}},
            True,
            '"scores.json" is {"scores":[3,4],"name":"x"}',
        ),
        ({"path": "$.scores[1]", "equals": 4}, True, '$.scores[1] in "scores.json" is 4'),
        ({"path": "$.scores[*]", "equals": [3, 4]}, True, '$.scores[*] in "scores.json" is [3,4]'),
        ({"path": "$.name"}, True, '$.name in "scores.json" exists'),
        ({"path": "$.name", "equals": "y"}, False, '$.name in "scores.json" is "x", not "y"'),
        ({"path": "$.none"}, False, '$.none not found in "scores.json"'),
        ({"path": "$.none[*]"}, False, '$.none[*] not found in "scores.json"'),
        (
            {"path": "$.scores", "schema": {"type": "string"}},
            False,
            '$.scores in "scores.json" does not match the schema: [3,4] is not of type "string"',
        ),
    ],
)
def test_json_files_are_compared_with_the_expectation(
    place: Path,
    value: dict[str, Any],
    passes: bool,  # noqa: FBT001
    reason: str,
) -> None:
    """The expectation is a part by a path, a value, or a schema."""
    value = {"file": "scores.json", **value}
    assert problems("file-json", value) == []
    assert judged(place, "file-json", value) == (passes, reason)
    assert judged(place, "not-file-json", value) == (not passes, reason)


@pytest.mark.parametrize("path", ["$..x", "$..*"])
@pytest.mark.parametrize("inverted", ["", "not-"])
def test_a_json_path_that_fails_on_the_content_is_a_failure_of_the_agent(
    place: Path, path: str, inverted: str
) -> None:
    """It fails under `not-` as well, because nothing was determined."""
    (place / "deep").write_text('{"x": ' * 500 + "1" + "}" * 500)
    result = judged(place, f"{inverted}file-json", {"file": "deep", "path": path})
    assert result == (False, f'"{path}" fails: recursion limit exceeded')


def test_a_json_path_finds_a_bounded_number_of_values(place: Path) -> None:
    """More values are a failure of the agent as well."""
    (place / "wide").write_text(json.dumps([0] * 100_001))
    result = judged(place, "not-file-json", {"file": "wide", "path": "$.*"})
    assert result == (False, '"$.*" finds more than 100,000 values')


def test_a_file_that_is_not_json_fails(place: Path) -> None:
    """The reason has the position of the error."""
    result = judged(place, "file-json", "src/calc.py")
    assert result == (False, '"src/calc.py" is not JSON: line 1, column 1: expecting value')


@pytest.mark.parametrize("named", ["/etc/passwd", "../secret.txt", "src/../../secret.txt"])
@pytest.mark.parametrize("name", ["file-exists", "file-contains", "file-json"])
def test_paths_outside_of_the_workspace_are_never_read(place: Path, named: str, name: str) -> None:
    """A suite that names such a path gets an error with the path, not a verdict."""
    value = {"file": named, "text": "secret"} if name == "file-contains" else named
    with pytest.raises(GradingError, match="the workspace") as raised:
        judged(place, name, value)
    assert f'"{named}"' in str(raised.value)


LEADS_OUT = "is a link, or beneath one, that leads out of the workspace"


@pytest.mark.parametrize("name", ["file-exists", "file-contains", "file-json"])
@pytest.mark.parametrize("named", ["out", "up/secret.txt"])
@pytest.mark.parametrize("inverted", ["", "not-"])
def test_a_link_to_elsewhere_is_a_failure_of_the_agent(
    place: Path, named: str, name: str, inverted: str
) -> None:
    """The agent cannot turn its failure into an error; under `not-` nothing is determined either."""
    (place / "up").symlink_to(place.parent)
    value = {"file": named, "text": "secret"} if name == "file-contains" else named
    assert judged(place, f"{inverted}{name}", value) == (False, f'"{named}" {LEADS_OUT}')


def test_a_pattern_that_only_finds_links_to_elsewhere_is_a_failure(place: Path) -> None:
    """A file among the matches is used."""
    for name in ("file-exists", "not-file-exists"):
        assert judged(place, name, "ou*") == (False, f'"out" {LEADS_OUT}')
    assert judged(place, "file-exists", "*")[0]
    (place / "up").symlink_to(place.parent)
    with pytest.raises(NoFileError, match="leads out"):
        place_of(place, "up/new.txt")


PARTS = st.sampled_from(["..", ".", "src", "up", "in", "x", "/", "//", "out", "a b"])


@given(st.lists(PARTS, min_size=1, max_size=6))
def test_no_path_leaves_the_workspace(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    """Every path is rejected or inside of it."""
    root = tmp_path_factory.getbasetemp() / "paths" / "workspace"
    if not root.exists():
        (root / "src").mkdir(parents=True)
        (root / "up").symlink_to(root.parent)
        (root / "in").symlink_to(root / "src")
    named = "/".join(parts)
    try:
        found = place_of(root, named)
    except (GradingError, NoFileError):
        return
    assert path_fault(named) is None
    assert found.is_relative_to(root.resolve())


def test_a_file_may_have_ten_mebibytes(place: Path) -> None:
    """A larger file is not read, and fails either way."""
    with (place / "log").open("wb") as file:
        file.truncate(LARGEST)
    assert judged(place, "not-file-contains", {"file": "log", "text": "x"})[0]
    with (place / "log").open("wb") as file:
        file.truncate(LARGEST + 1)
    passes, reason = judged(place, "not-file-contains", {"file": "log", "text": "x"})
    assert not passes
    assert reason.startswith('"log" has more than 10,485,760 bytes')


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("file-exists", "x"),
        ("file-contains", {"file": "x", "text": "y"}),
        ("file-json", "x"),
        ("agent-done", None),
    ],
)
def test_only_rows_of_agents_can_be_judged(name: str, value: Any) -> None:
    """Other rows have neither a workspace nor an agent."""
    with pytest.raises(GradingError, match="only outputs of tasks of type agent"):
        judged(None, name, value)


@pytest.mark.parametrize("outcome", ["done", "failed"])
def test_an_agent_is_done_or_not(outcome: str) -> None:
    """The reason describes the end of the command."""
    metadata = {"agent": {"outcome": outcome, "message": "after 2 attempts"}}
    is_done = outcome == "done"
    assert judged(None, "agent-done", metadata=metadata) == (is_done, "after 2 attempts")
    assert judged(None, "not-agent-done", metadata=metadata) == (not is_done, "after 2 attempts")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("file-exists", "/x", '.value: "/x" is absolute'),
        ("file-exists", ["x", "../y"], '.value[1]: "../y" leads out of the workspace'),
        ("file-exists", [], ".value: must be the path of a file in the workspace"),
        ("file-contains", "x", ".value: must be {file, text}, {file, texts} or {file, pattern}"),
        ("file-contains", {"file": "x"}, ".value: must be {file, text}"),
        (
            "file-contains",
            {"file": "x", "text": "a", "texts": ["b"]},
            ".value: must be {file, text}",
        ),
        ("file-contains", {"file": "/x", "text": "a"}, '.value.file: "/x" is absolute'),
        ("file-contains", {"file": "x", "pattern": "("}, ".value.pattern: "),
        ("file-json", {"file": "x", "is": 1}, ".value: must be the path of a file"),
        ("file-json", {"file": "../x"}, '.value.file: "../x" leads out of the workspace'),
        ("file-json", {"file": "x", "path": "a["}, '.value.path: "a[" is not a JSONPath: '),
        ("file-json", {"file": "x", "path": "$[?search(@.a, 'b')]"}, ".value.path: "),
        ("file-json", {"file": "x", "schema": {"tpye": "a"}}, ".value.schema.tpye: "),
    ],
)
def test_invalid_values_are_reported_before_a_run(name: str, value: Any, message: str) -> None:
    """The message has the invalid key."""
    (problem,) = problems(name, value)
    assert str(problem).startswith(message)


def test_texts_of_an_object_are_templates(place: Path) -> None:
    """Its texts and those in its lists are rendered; their values are known, and rejected, only then."""

    def render(text: str) -> str:
        return text.replace("{{name}}", "calc").replace("{{up}}", "..")

    subject = Subject.of("", workspace=place)
    value = {"file": "src/{{name}}.py", "texts": ["def", "{{name}}"]}
    assert problems("file-contains", value) == []
    (part,) = grade(subject, [Assertion(type="file-contains", value=value)], render=render).parts
    assert part.reason == '"src/calc.py" does not contain "calc"'
    assert part.metadata["renderedAssertionValue"]["file"] == "src/calc.py"
    value = {"file": "{{up}}/secret.txt", "text": "x"}
    assert problems("file-contains", value) == []
    with pytest.raises(GradingError, match=r'"\.\./secret\.txt" leads out of the workspace'):
        grade(subject, [Assertion(type="file-contains", value=value)], render=render)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("file-exists", "a\0b", '"a\\u0000b" is not a path'),
        ("file-exists", "a**b/*", '"a**b/*" is not a valid pattern: '),
        ("file-json", {"file": "scores.json", "path": "{{x}}"}, '"{{x}}" is not a JSONPath'),
        ("file-json", {"file": "scores.json", "schema": "{{x}}: ["}, "the schema is not usable: "),
    ],
)
def test_values_that_are_invalid_when_rendered_are_errors(
    place: Path, name: str, value: Any, message: str
) -> None:
    """Their meaning cannot be determined."""
    with pytest.raises(GradingError) as raised:
        judged(place, name, value)
    assert message in str(raised.value)


def test_a_pattern_that_is_invalid_when_rendered_fails_either_way(place: Path) -> None:
    """It is treated as in `regex`."""
    value = {"file": "in", "pattern": "({{x}}"}
    assert problems("file-contains", value) == []
    for name in ("file-contains", "not-file-contains"):
        passed, reason = judged(place, name, value)
        assert not passed
        assert reason.startswith('"({{x}}" is not a valid regular expression')


def test_values_of_templates_and_programs_are_not_checked_before_the_run(place: Path) -> None:
    """A text that is not a valid schema is reported."""
    computed = Computed(place / "x.py", None, "file://x.py")
    assert problems("file-contains", computed) == []
    assert problems("file-json", {"file": "x", "schema": "{{x}}", "path": "{{x}}"}) == []
    (problem,) = problems("file-json", {"file": "x", "schema": "a: ["})
    assert problem.path == ".value.schema"
    (problem,) = problems("file-json", {"file": "x", "schema": json.dumps({"tpye": "a"})})
    assert problem.path == ".value.schema"
    (problem,) = problems("command", computed)
    assert problem.message == "file://x.py is a file, but a command must be written in the suite"
