"""Problems are reported in lists: those of the file first, then those of the things it names."""

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


MENDED = """\
targets:
- opnai:gpt-4
- id: openai:chat:gpt-4.1
  config: {temprature: 1, apiKey: k}
  transform: "output..x("
- {id: echo, lane: slow, label: five, transform: "x("}
prompts: ["{{x}}", "ok {{a}}"]
defaultTest:
  options: {transform: "file://none.py"}
  assert: [{type: contains, value: x}]
tests:
- vars: {a: 1}
  assert: [{type: equals, value: x}]
  options: {transform: "}{", repeat: 1}
- vars: {a: 2}
  options: {transformVars: "python:nope"}
nunjucksFilters: {f: nof.py}
extensions: ["file://noext.py:x"]
lanes: {slow: {rpm: 1}}
"""
"""The same, as a file without problems."""


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def places(error: SuiteError) -> list[tuple[str | None, int | None, str]]:
    return [(problem.file, problem.line, problem.path) for problem in error.problems]


def problems_of(text: str) -> list[tuple[int | None, str]]:
    """Return line and path of each problem of a suite with this text, in the working directory."""
    Path("s.yaml").write_text(text)
    with pytest.raises(SuiteError) as caught:
        prepare("s.yaml", environ={"PATH": os.environ["PATH"]})
    assert {problem.file for problem in caught.value.problems} == {"s.yaml"}
    return [(problem.line, problem.path) for problem in caught.value.problems]


@pytest.mark.slow
def test_each_list_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every problem is reported once, in the order of the file, without consequences of others."""
    monkeypatch.chdir(tmp_path)
    assert problems_of(FULL) == [
        (6, "$.targets[2].label"),
        (7, "$.prompts[0]"),
        (10, "$.defaultTest.assert[0].type"),
        (12, "$.tests[0]"),
        (14, "$.tests[1].assert[0]"),
        (15, "$.tests[1].options.repeat"),
        (16, "$.tests[2].vars.a"),
        (22, "$.provders"),
        (23, "$.lanes.slow.rpm"),
    ]
    # Code that returns variables runs before anything else that the file names is checked.
    assert problems_of(MENDED) == [(16, "$.tests[1].options.transformVars")]
    assert problems_of(MENDED.replace("python:nope", "python:vars")) == [
        (2, "$.targets[0].id"),
        (4, "$.targets[1].config.temprature"),
        (5, "$.targets[1].transform"),
        (6, "$.targets[2].transform"),
        (9, "$.defaultTest.options.transform"),
        (14, "$.tests[0].options.transform"),
        (17, "$.nunjucksFilters.f"),
        (18, "$.extensions[0]"),
    ]


_RUBRIC = "providers: [echo]\ntests: [{assert: [{type: llm-rubric, value: x}]"
_BEST = "tests: [{assert: [{type: select-best, value: x, provider: echo}]}]"


def test_an_invalid_assertion_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds in sets, and for the test's judges, comparisons and transforms."""
    text = """\
providers: [echo]
tests:
- assert:
  - {type: javascript}
  - {type: llm-rubric, value: x}
  - {type: select-best, value: x, provider: echo}
  - type: assert-set
    assert: [{type: contians, value: x}, {type: similar, value: x}]
  - {type: rouge-n}
  options: {transform: "}{"}
- {threshold: x}
"""
    monkeypatch.chdir(tmp_path)
    assert problems_of(text) == [
        (4, "$.tests[0].assert[0]"),
        (8, "$.tests[0].assert[3].assert[0].type"),
        (9, "$.tests[0].assert[4]"),
        (11, "$.tests[1].threshold"),
    ]
    for wrong, right in {
        "javascript}": "contains, value: x}",
        "contians": "contains",
        "rouge-n}": "llm-rubric, provider: echo}",
        "threshold: x": "threshold: 1",
    }.items():
        text = text.replace(wrong, right)
    assert problems_of(text) == [
        (5, "$.tests[0].assert[1]"),
        (6, "$.tests[0].assert[2]"),
        (8, "$.tests[0].assert[3].assert[1]"),
        (9, "$.tests[0].assert[4]"),
        (10, "$.tests[0].options.transform"),
    ]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        # A provider with an invalid config or environment may be valid after its correction.
        ("providers: [{id: 'https://x', env: {A: []}}]", ["$.providers[0].env.A"]),
        ("providers: ['openai:gpt-4.1']\nenv: {OPENAI_API_KEY: []}", ["$.env.OPENAI_API_KEY"]),
        # A prompt, a lane or a variable that cannot be read exists all the same.
        ("providers: [{id: echo, prompts: [p]}]\nprompts: [{label: p}]", ["$.prompts[0]"]),
        ("providers: [{id: echo, lane: a}]\nlanes: {a: {rpm: 0}}", ["$.lanes.a.rpm"]),
        (
            (
                "providers: [echo]\ntests: [{vars: {a: 1}, threshold: x}]\ndefaultTest:\n"
                "  vars: {b: 'file://no'}\n  options: {transformVars: \"python:vars['b']\"}"
            ),
            ["$.tests[0].threshold", "$.defaultTest.vars.b"],
        ),
        # Judges and their prompts may be valid after their correction.
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
def test_consequences_of_other_problems_are_not_reported(
    tmp_path: Path, text: str, paths: list[str] | None
) -> None:
    """Removed parts cause no further problems."""
    write(tmp_path, {"s.yaml": text})
    with pytest.raises(SuiteError) as loaded:
        load_suite(tmp_path / "s.yaml", environ={})
    with pytest.raises(SuiteError) as prepared:
        prepare(tmp_path / "s.yaml", environ={})
    assert prepared.value.problems == loaded.value.problems
    if paths is not None:
        assert [problem.path for problem in prepared.value.problems] == paths


def test_programs_that_generate_tests_are_called_once(tmp_path: Path) -> None:
    """This holds whatever the other mistakes."""
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
    assert [problem.path for problem in caught.value.problems] == ["$.tests[1].threshold"]
    assert (tmp_path / "calls").read_text() == "x"
    write(tmp_path, {"s.yaml": "providers: [echo, opnai:x]\ntests: 'file://gen.py:make'\n"})
    with pytest.raises(SuiteError) as caught:
        prepare(tmp_path / "s.yaml")
    assert [problem.path for problem in caught.value.problems] == ["$.providers[1].id"]
    assert (tmp_path / "calls").read_text() == "xx"


def test_problems_of_all_tasks_are_in_one_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its position; then the problems of things that valid tasks name follow."""
    monkeypatch.chdir(tmp_path)
    text = (
        "providers: [opnai:x]\n"
        "tasks:\n"
        "- {type: prompt_eval, prompts: [a], tests: [{threshold: x}]}\n"
        "- 5\n"
        "- {type: prompt_eval, prompts: [a], tests: [{options: {transform: '}{'}}]}\n"
    )
    assert problems_of(text) == [(3, "$.tasks[0].tests[0].threshold"), (4, "$.tasks[1]")]
    mended = text.replace("threshold: x", "threshold: 1").replace("- 5\n", "")
    assert problems_of(mended) == [
        (1, "$.providers[0].id"),
        (4, "$.tasks[1].tests[0].options.transform"),
    ]


def test_a_mistake_hides_no_names_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of providers, columns, rows, cases and tasks are checked despite other mistakes."""
    monkeypatch.chdir(tmp_path)
    text = """\
providers: [{id: echo, label: back, delay: x}]
tasks:
- id: made
  type: columns
  rows: 1
  columns:
  - {name: a, type: llm, provider: bcak, prompt: hi}
- id: also
  type: columns
  rows: 1
  columns: [{name: a, type: llm, provider: back, prompt: hi}]
- {id: exam, type: prompt_eval, prompts: [a], tests: {fromTask: also, vars: {q: b}}}
- {id: quiz, type: question_eval, questions: {fromTask: also, question: b, answers: a, correctAnswers: a}}
- {id: work, type: agent, dependsOn: exma, prompts: [a], tests: [{id: one, dependsOn: two}]}
"""
    assert problems_of(text) == [
        (1, "$.providers[0].delay"),
        (7, "$.tasks[0].columns[0].provider"),
        (12, "$.tasks[2].tests.vars.q"),
        (13, "$.tasks[3].questions.question"),
        (14, "$.tasks[4].dependsOn[0]"),
        (14, "$.tasks[4].tests[0].dependsOn"),
    ]
    with pytest.raises(SuiteError, match='unknown provider "bcak"\n  did you mean "back"'):
        load_suite("s.yaml")


def test_readable_files_are_checked_beside_an_unreadable_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are checked in order. Names that the broken file may define are not reported."""
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


def test_late_problems_are_reported_in_the_file_that_causes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position is in the file that contains the cause; providers of the command line have none."""
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


def test_an_option_at_the_top_is_reported_there(tmp_path: Path) -> None:
    """The position is not that of the usual place of options."""
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


def test_a_reference_without_a_target_hides_nothing_and_is_reported_once(tmp_path: Path) -> None:
    """Neither its replacement nor names that it may have defined are reported."""
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


def test_definitions_are_only_targets_of_references(tmp_path: Path) -> None:
    """They have no effect by themselves."""
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


def test_files_of_the_suite_are_named_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds if they are below it, as the suite is."""
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
