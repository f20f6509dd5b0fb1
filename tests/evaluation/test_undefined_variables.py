"""Errors of undefined variables name the prompt, its place in the file, and the nearest variable."""

from pathlib import Path

import pytest
import trio

from trioeval import Row, collect, load_suite, parse_suite
from trioeval.suite.model import Suite

STRICT = "evaluateOptions: {strictVariables: true}\nproviders: [echo]\n"
MEANT = '{{ nmae }} is not defined; did you mean "name"?'


def rows_of(suite: Suite) -> list[Row]:
    """Run a suite and return its rows."""
    return trio.run(collect, suite)


def errors_in(file: Path, text: str) -> list[str | None]:
    """Write a suite file, run it, and return the errors of its rows."""
    file.write_text(text)
    return [row.error for row in rows_of(load_suite(file))]


def test_the_error_names_the_prompt_its_position_and_the_nearest_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position is that of the entry in the file, also for an object and for a single text."""
    monkeypatch.chdir(tmp_path)
    tests = "tests: [{vars: {name: Bob}}]\n"
    listed = "prompts:\n  - Hi\n  - raw: Hello {{ nmae }}\n    label: greeting\n"
    assert errors_in(tmp_path / "list.yaml", STRICT + listed + tests) == [
        None,
        f'prompt "greeting" (list.yaml:5:5): {MEANT}',
    ]
    single = "prompts: Hello {{ nmae }}\n"
    assert errors_in(tmp_path / "one.yaml", STRICT + single + tests) == [
        f'prompt "Hello {{{{ nmae }}}}" (one.yaml:3:10): {MEANT}'
    ]


def test_the_prompt_of_a_task_is_found_in_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task has its own list of prompts."""
    monkeypatch.chdir(tmp_path)
    task = "  - {id: %s, type: prompt_eval, prompts: ['%s'], tests: [{vars: {name: Bob}}]}\n"
    text = STRICT + "tasks:\n" + task % ("a", "Hi") + task % ("b", "{{ nmae }}")
    (_, error) = errors_in(tmp_path / "tasks.yaml", text)
    assert error == f'prompt "{{{{ nmae }}}}" (tasks.yaml:5:42): {MEANT}'


def test_a_suite_made_in_python_has_no_positions_and_long_labels_are_cut() -> None:
    """The prompt is named by its label alone."""
    suite = parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["Hello {{ nmae }}", "word " * 20 + "{{ other }}"],
            "tests": [{"vars": {"name": "Bob"}}],
            "evaluateOptions": {"strictVariables": True},
        }
    )
    first, second = (row.error for row in rows_of(suite))
    assert first == f'prompt "Hello {{{{ nmae }}}}": {MEANT}'
    assert second is not None
    assert second.startswith('prompt "word word word word word word word word…": ')
    assert second.endswith("{{ other }} is not defined; the test has name")
