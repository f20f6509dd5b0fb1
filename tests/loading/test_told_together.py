"""What is wrong with a suite is told in one go, whoever finds it: the loader, or the checks of a run."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite
from trioeval.run import prepare

FULL = """\
targets:
- opnai:gpt-4
- id: openai:chat:gpt-4.1
  config: {temprature: 1, apiKey: k}
  transform: "output..x("
- {id: echo, lane: slow, label: 5, transform: "x("}
prompts: ["{% if x %}", "ok {{a}}"]
defaultTest:
  options: {transform: "file://none.py"}
  assert: [{type: contians, value: x}]
tests:
- file://missing.csv
- vars: {a: 1}
  assert: [{type: equals}]
  options: {transform: "}{", repeat: 0}
- vars: {a: "file://none.txt"}
  options: {transformVars: "python:vars['a'] + 1"}
- vars: {a: 2}
  options: {transformVars: "python:nope"}
nunjucksFilters: {f: nof.py}
extensions: ["file://noext.py:x"]
provders: []
lanes: {slow: {rpm: 0}}
"""


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def places(error: SuiteError) -> list[tuple[str | None, int | None, str]]:
    return [(problem.file, problem.line, problem.path) for problem in error.problems]


@pytest.mark.slow
def test_everything_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, in the order of the file, and without what only follows from something else."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"s.yaml": FULL})
    with pytest.raises(SuiteError) as caught:
        prepare("s.yaml", environ={"PATH": os.environ["PATH"]})
    assert places(caught.value) == [
        ("s.yaml", line, path)
        for line, path in [
            (2, "$.targets[0].id"),
            (4, "$.targets[1].config.temprature"),
            (5, "$.targets[1].transform"),
            (6, "$.targets[2].label"),
            (6, "$.targets[2].transform"),
            (7, "$.prompts[0]"),
            (9, "$.defaultTest.options.transform"),
            (10, "$.defaultTest.assert[0].type"),
            (12, "$.tests[0]"),
            (14, "$.tests[1].assert[0]"),
            (15, "$.tests[1].options.transform"),
            (15, "$.tests[1].options.repeat"),
            (16, "$.tests[2].vars.a"),
            (19, "$.tests[3].options.transformVars"),
            (20, "$.nunjucksFilters.f"),
            (21, "$.extensions[0]"),
            (22, "$.provders"),
            (23, "$.lanes.slow.rpm"),
        ]
    ]


_RUBRIC = "providers: [echo]\ntests: [{assert: [{type: llm-rubric, value: x}]"
_BEST = "tests: [{assert: [{type: select-best, value: x, provider: echo}]}]"


def test_a_wrong_assertion_hides_no_other(tmp_path: Path) -> None:
    """Nor the test's judges, comparisons and transforms, in sets as well."""
    text = """\
providers: [echo]
tests:
- assert:
  - {type: contains}
  - {type: llm-rubric, value: x}
  - {type: select-best, value: x, provider: echo}
  - type: assert-set
    assert: [{type: contians, value: x}, {type: similar, value: x}]
  - {type: llm-rubric, provider: echo}
  options: {transform: "}{"}
- {threshold: x}
"""
    write(tmp_path, {"s.yaml": text})
    with pytest.raises(SuiteError) as caught:
        prepare(tmp_path / "s.yaml", environ={"PATH": os.environ["PATH"]})
    assert [(line, path) for _, line, path in places(caught.value)] == [
        (4, "$.tests[0].assert[0]"),
        (5, "$.tests[0].assert[1]"),
        (6, "$.tests[0].assert[2]"),
        (8, "$.tests[0].assert[3].assert[0].type"),
        (8, "$.tests[0].assert[3].assert[1]"),
        (9, "$.tests[0].assert[4]"),
        (10, "$.tests[0].options.transform"),
        (11, "$.tests[1].threshold"),
    ]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        # A provider whose config or environment is wrong may be right once it is mended.
        ("providers: [{id: 'https://x', env: {A: []}}]", ["$.providers[0].env.A"]),
        ("providers: ['openai:gpt-4.1']\nenv: {OPENAI_API_KEY: []}", ["$.env.OPENAI_API_KEY"]),
        # A prompt, a lane or a variable that cannot be read is there all the same.
        ("providers: [{id: echo, prompts: [p]}]\nprompts: [{label: p}]", ["$.prompts[0]"]),
        ("providers: [{id: echo, lane: a}]\nlanes: {a: {rpm: 0}}", ["$.lanes.a.rpm"]),
        (
            (
                "providers: [echo]\ntests: [{vars: {a: 1}, threshold: x}]\ndefaultTest:\n"
                "  vars: {b: 'file://no'}\n  options: {transformVars: \"python:vars['b']\"}"
            ),
            ["$.tests[0].threshold", "$.defaultTest.vars.b"],
        ),
        # Judges, and what they are asked, may be right once they are mended.
        (
            f"{_RUBRIC}, options: {{provider: {{id: 5}}}}}}]",
            ["$.tests[0].options.provider.id"],
        ),
        (
            f"{_RUBRIC}}}]\ndefaultTest: {{options: {{provider: 5}}}}",
            ["$.defaultTest.options.provider"],
        ),
        (f"{_RUBRIC}}}]\nenv: {{OPENAI_API_KEY: []}}", ["$.env.OPENAI_API_KEY"]),
        (
            (
                "providers: [echo]\ntests: [{assert: [{type: llm-rubric, provider: echo}],"
                " options: {rubricPrompt: 5}}]"
            ),
            ["$.tests[0].options.rubricPrompt"],
        ),
        # So may columns that are compared.
        (f"{_BEST}\nproviders: ['file://none.yaml']", ["$.providers[0]"]),
        (f"{_BEST}\nproviders: [echo]\nprompts: ['file://none.txt']", ["$.prompts[0]"]),
        (
            (
                "providers: [echo]\ntests: [{assert: [{type: assert-set, assert: [{type: equals}]},"
                " {type: max-score}]}]\nprompts: [a, b]"
            ),
            ["$.tests[0].assert[0].assert[0]"],
        ),
        ("providers: 5", ["$.providers"]),
        ("providers: [echo]\ntests: 5", ["$.tests"]),
        ("providers: [echo]\ndefaultTest: 5\ntests: [{vars: {a: 1}}]", ["$.defaultTest"]),
        ("providers: [echo]\nprompts: [a]\nscenarios: 5\ncommandLineOptions: []", None),
    ],
)
def test_nothing_is_told_that_only_follows(
    tmp_path: Path, text: str, paths: list[str] | None
) -> None:
    """What is left out of the rest makes no complaint of its own."""
    write(tmp_path, {"s.yaml": text})
    with pytest.raises(SuiteError) as loaded:
        load_suite(tmp_path / "s.yaml", environ={})
    with pytest.raises(SuiteError) as prepared:
        prepare(tmp_path / "s.yaml", environ={})
    assert prepared.value.problems == loaded.value.problems
    if paths is not None:
        assert [problem.path for problem in prepared.value.problems] == paths


def test_programs_that_make_tests_are_called_once(tmp_path: Path) -> None:
    """Whatever else is wrong."""
    generator = "def make():\n    open('calls', 'a').write('x')\n    return [{'vars': {'a': 1}}]\n"
    write(
        tmp_path,
        {
            "s.yaml": "providers: [echo, opnai:x]\ntests: ['file://gen.py:make', {threshold: x}]\n",
            "gen.py": generator,
        },
    )
    with pytest.raises(SuiteError) as caught:
        prepare(tmp_path / "s.yaml")
    assert [problem.path for problem in caught.value.problems] == [
        "$.providers[1].id",
        "$.tests[1].threshold",
    ]
    assert (tmp_path / "calls").read_text() == "x"


def test_tasks_are_told_of_together(tmp_path: Path) -> None:
    """Those that are right and those that are not, each where it stands."""
    write(
        tmp_path,
        {
            "s.yaml": (
                "providers: [opnai:x]\n"
                "tasks:\n"
                "- {type: prompt_eval, prompts: [a], tests: [{threshold: x}]}\n"
                "- 5\n"
                "- {type: prompt_eval, prompts: [a], tests: [{options: {transform: '}{'}}]}\n"
            )
        },
    )
    with pytest.raises(SuiteError) as caught:
        prepare(tmp_path / "s.yaml")
    assert [problem.path for problem in caught.value.problems] == [
        "$.providers[0].id",
        "$.tasks[0].tests[0].threshold",
        "$.tasks[1]",
        "$.tasks[2].tests[0].options.transform",
    ]


def test_files_that_can_be_read_are_looked_at_beside_one_that_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in its turn. What may stand in the broken one is not missed."""
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path,
        {
            "a.yaml": "providers: [echo\n",
            "b.yaml": "prompts: [a]\ntest: []\n",
            "c.yaml": "prompts: [{label: x}]\ntests: [{prompts: [other]}]\n",
        },
    )
    with pytest.raises(SuiteError) as caught:
        load_suite("a.yaml", "b.yaml", "c.yaml")
    assert [(problem.file, problem.path) for problem in caught.value.problems] == [
        ("a.yaml", "$"),
        ("b.yaml", "$.test"),
        ("c.yaml", "$.prompts[0]"),
        ("c.yaml", "$.tests[0]"),
    ]


def test_what_is_found_later_stands_in_the_file_that_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several files, the right one; and providers of the command line in none."""
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path,
        {
            "a.yaml": "providers: [echo]\nprompts: [a]\n",
            "sub/b.yaml": (
                "targets: [opnai:x]\nprompts: [b]\n\ntests: [{options: {transform: '}{'}}]\n"
                "nunjucksFilters: {f: f.py}\nextensions: ['file://x.py:y']\n"
            ),
        },
    )
    with pytest.raises(SuiteError) as caught:
        prepare(load_suite("a.yaml", "sub/b.yaml"))
    assert places(caught.value) == [
        ("sub/b.yaml", 1, "$.targets[0].id"),
        ("sub/b.yaml", 4, "$.tests[0].options.transform"),
        ("sub/b.yaml", 5, "$.nunjucksFilters.f"),
        ("sub/b.yaml", 6, "$.extensions[0]"),
    ]
    with pytest.raises(SuiteError) as caught:
        prepare(load_suite("a.yaml", given={"providers": ["opnai:x"]}))
    assert places(caught.value) == [(None, None, "$.providers[0].id")]


def test_an_option_at_the_top_is_wrong_there(tmp_path: Path) -> None:
    """Not where options usually stand."""
    write(
        tmp_path,
        {
            "s.yaml": "evaluateOptions: {repeat: 0}\nproviders: [echo]\nserialize: x\nregisterScope: y"
        },
    )
    with pytest.raises(SuiteError) as caught:
        load_suite(tmp_path / "s.yaml")
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [
        (1, "$.evaluateOptions.repeat"),
        (3, "$.serialize"),
        (4, "$.registerScope"),
    ]


def test_a_reference_that_leads_nowhere_hides_nothing_and_is_told_once(tmp_path: Path) -> None:
    """What stands in its place is not complained of, nor are names that it may have brought."""
    write(
        tmp_path,
        {
            "s.yaml": (
                "providers: {$ref: '#/x-p'}\nprompts: [{$ref: 'no.yaml'}]\n"
                "tests: [{prompts: [p], providers: [q], vars: {a: 1}}, {threshold: x}]\n"
            )
        },
    )
    with pytest.raises(SuiteError) as caught:
        prepare(tmp_path / "s.yaml")
    assert [problem.path for problem in caught.value.problems] == [
        "$.providers.$ref",
        "$.prompts[0].$ref",
        "$.tests[1].threshold",
    ]


def test_definitions_are_for_references(tmp_path: Path) -> None:
    """They are no keys that have a meaning by themselves."""
    write(
        tmp_path,
        {
            "s.yaml": (
                "definitions: {hi: {raw: Hello}}\n"
                "providers: [echo]\nprompts: [{$ref: '#/definitions/hi', label: x}]\n"
            )
        },
    )
    suite = load_suite(tmp_path / "s.yaml")
    assert [(prompt.raw, prompt.label) for prompt in suite.prompts] == [("Hello", "x")]
    assert suite.warnings == ()


def test_files_beside_the_suite_are_named_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are below it, as the suite is."""
    write(tmp_path, {"in/s.yaml": "providers: [echo]\ntests: t.yaml\n", "in/t.yaml": "- {a: 1}\n"})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SuiteError) as caught:
        load_suite("in/s.yaml")
    assert caught.value.problems[0].file == "in/t.yaml"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(SuiteError) as caught:
        load_suite("../in/s.yaml")
    assert caught.value.problems[0].file == str(tmp_path / "in" / "t.yaml")
