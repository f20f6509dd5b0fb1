from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.documents.paths import DocumentPath, read_path, show_path
from trioeval.errors import Problem, SuiteError
from trioeval.loading.load import load_suite, parse_suite, place_problems

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ((), "$"),
        (("tests", 3, "assert", 0, "type"), "$.tests[3].assert[0].type"),
        (("x-b_1", "$schema"), "$.x-b_1.$schema"),
        (("a b", "1", ""), '$["a b"]["1"][""]'),
        (('a"]\n', "ü", "\ud800"), '$["a\\"]\\n"]["ü"]["\\ud800"]'),
    ],
)
def test_a_path_is_shown_on_one_printable_line(path: DocumentPath, shown: str) -> None:
    """Plain keys follow a dot, others are quoted as in JSON."""
    assert show_path(path) == shown
    assert shown.encode()


@pytest.mark.slow
@given(st.lists(ANY_TEXT | st.text('[]".$a1\\') | st.integers(0)).map(tuple))
@example(("\ud800", '"]["', "a.b"))
def test_a_shown_path_can_be_parsed_again(path: DocumentPath) -> None:
    """This holds for any keys."""
    assert read_path(show_path(path)) == path


def test_problems_found_later_have_positions_in_the_file(tmp_path: Path) -> None:
    """This also holds for a file that uses `targets`; a problem with its own file is unchanged."""
    file = tmp_path / "s.yaml"
    file.write_text("targets:\n- id: echo\n  config: {sped: 1}\n")
    elsewhere = Problem("$", "broken", file="replies.jsonl", line=7)
    suite = load_suite(file)
    assert place_problems(
        [elsewhere, Problem("$.providers[0].config.sped", "no", "speed")], suite
    ) == [
        Problem("$.targets[0].config.sped", "no", "speed", str(file), 3, 18),
        elsewhere,
    ]
    file.write_text("providers: [echo]\n")
    suite = load_suite(file)
    assert [
        problem.column for problem in place_problems([Problem("$.providers[0].x", "no")], suite)
    ] == [13]


def test_problems_of_data_have_no_position() -> None:
    """Data has no file."""
    suite = parse_suite({"providers": ["echo"]})
    assert place_problems([Problem("$.a", "no")], suite) == [Problem("$.a", "no")]


@pytest.mark.parametrize("url", ["https://example.org/a/ask.txt", "http://example.org/a?b=c.txt"])
def test_a_url_is_not_taken_for_a_file(tmp_path: Path, url: str) -> None:
    """Only tests are fetched."""
    suite = tmp_path / "s.yaml"
    suite.write_text(
        f"providers: [echo]\nprompts: [{{raw: 'file://a'}}]\ntests: [{{vars: '{url}'}}]\n"
    )
    with pytest.raises(SuiteError) as caught:
        load_suite(suite)
    found = [str(problem) for problem in caught.value.problems]
    assert any(f'"{url}" is a URL, and only tests' in one for one in found), found
