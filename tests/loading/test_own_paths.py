"""Paths of a suite file have the same meaning alone and merged with a file of another folder."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite
from trioeval.suite.model import Suite

FIRST = "providers: [echo]\nprompts: [first]\n"

SECOND = """\
providers: [echo, "file://more.yaml", {id: "replay:r.jsonl"}]
prompts:
- second
- plain.txt
- file://globbed/*.txt
- {raw: file://ask.py:ask, label: asked}
- exec:./say.sh --loud
- {id: plain.txt, label: again}
tests:
- t.yaml
- {path: "file://gen.py:make", config: {file: "file://one.txt"}}
- vars: vars.yaml
- vars: [vars.yaml, more-vars.yaml]
- vars: {x: "file://one.txt"}
  metadata: {kept: "file://one.txt"}
- vars: {y: 1}
  assert: [{type: equals, value: "file://one.txt"}]
  options: {transform: "file://change.py", transformVars: "file://change.py:more"}
defaultTest:
  vars: {d: "file://one.txt"}
  options: {transform: "file://change.py"}
scenarios:
- config: [{vars: vars.yaml}]
  tests: [t.yaml]
nunjucksFilters: {loud: filters.py}
extensions: ["file://hooks.py:hook"]
"""

FILES = {
    "more.yaml": "- id: echo\n  label: from a file\n",
    "plain.txt": "plain {{x}}",
    "globbed/a.txt": "a",
    "globbed/b.txt": "b",
    "ask.py": "def ask(context):\n    return 'hi'\n",
    "say.sh": "#!/bin/sh\necho hi\n",
    "t.yaml": "- vars: {t: 1}\n",
    "gen.py": "def make(config):\n    return [{'vars': config}]\n",
    "vars.yaml": "v: 1\n",
    "more-vars.yaml": "w: 2\n",
    "one.txt": "one",
    "change.py": "def get_transform(o, c):\n    return o\n\ndef more(v, c):\n    return {'made': 1}\n",
    "filters.py": "def loud(text):\n    return text.upper()\n",
    "hooks.py": "def hook(*args):\n    pass\n",
    "r.jsonl": "",
}


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create one suite in a folder, and one with all of its files in another."""
    write(tmp_path / "here", {"s.yaml": FIRST})
    write(tmp_path / "over there", {"s.yaml": SECOND, **FILES})
    return tmp_path


def prompts(suite: Suite) -> list[tuple[str, str, str]]:
    return [(prompt.raw, prompt.label, prompt.id) for prompt in suite.prompts]


@pytest.mark.slow
def test_a_merged_suite_means_the_same_as_alone(folder: Path) -> None:
    """Prompts keep labels and ids; tests and named files stay the same."""
    alone = load_suite(folder / "over there" / "s.yaml")
    both = load_suite(folder / "here" / "s.yaml", folder / "over there" / "s.yaml")
    assert prompts(both)[0][0] == "first"
    assert prompts(both)[1:] == prompts(alone)
    assert [entry.label or entry.id for entry in both.providers] == [
        entry.label or entry.id for entry in alone.providers
    ]
    assert [test.assertions for test in both.tests] == [test.assertions for test in alone.tests]
    changed = {"x", "d"}  # a file is named from the first suite's folder
    assert [
        {name: value for name, value in test.vars.items() if name not in changed}
        for test in both.tests
    ] == [
        {name: value for name, value in test.vars.items() if name not in changed}
        for test in alone.tests
    ]
    assert both.tests[4].vars["x"] == "file://../over there/one.txt"
    assert both.tests[4].metadata == alone.tests[4].metadata
    assert [*map(len, (both.tests, both.scenarios or ()))] == [
        *map(len, (alone.tests, alone.scenarios or ()))
    ]
    for found in (both.nunjucks_filters["loud"], both.extensions[0].split("//", 1)[1]):
        assert found.startswith(f"{folder / 'over there'}/./")


def test_labels_contain_no_absolute_path(folder: Path) -> None:
    """They are equal on every machine."""
    both = load_suite(folder / "here" / "s.yaml", folder / "over there" / "s.yaml")
    assert str(folder) not in str([(*one, both.providers[-1].label) for one in prompts(both)])


def test_a_missing_file_is_named_as_it_is_written(folder: Path) -> None:
    """A file of the same name in the first folder is not used instead."""
    write(folder, {"here/only.txt": "x", "here/only.csv": "x\n1\n"})
    write(folder, {"over there/s.yaml": "prompts: [only.txt]\ntests: only.csv\n"})
    with pytest.raises(SuiteError) as caught:
        load_suite(folder / "here" / "s.yaml", folder / "over there" / "s.yaml")
    assert [problem.message for problem in caught.value.problems] == [
        'file not found: "only.txt"',
        'file not found: "only.csv"',
    ]


def test_equal_texts_of_two_folders_are_one_prompt_and_equal_files_are_two(tmp_path: Path) -> None:
    """Only entries that name files depend on the folder."""
    write(tmp_path, {"a/s.yaml": "providers: [echo]\nprompts: [same, p.txt]\n", "a/p.txt": "one"})
    write(tmp_path, {"b/s.yaml": "prompts: [same, p.txt]\n", "b/p.txt": "two"})
    suite = load_suite(tmp_path / "a" / "s.yaml", tmp_path / "b" / "s.yaml")
    assert [prompt.label for prompt in suite.prompts] == ["same", "p.txt: one", "p.txt: two"]


def test_paths_of_tasks_stay_relative_to_their_file(tmp_path: Path) -> None:
    """A task of another folder names files in that folder."""
    write(tmp_path, {"a/s.yaml": "providers: [echo]\ntasks: []\n", "b/p.txt": "two"})
    task = "tasks: [{type: prompt_eval, prompts: [p.txt], tests: [{vars: v.yaml}]}]\n"
    write(tmp_path, {"b/s.yaml": task, "b/v.yaml": "v: 1\n"})
    suite = load_suite(tmp_path / "a" / "s.yaml", tmp_path / "b" / "s.yaml")
    assert suite.tasks[0].suite.prompts[0].label == "p.txt: two"
    assert suite.tasks[0].suite.tests[0].vars == {"v": 1}
