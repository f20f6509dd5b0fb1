"""Messages about documents that are not valid suites: all mistakes, once, at their positions."""

from pathlib import Path

import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite

NEEDED = "assert, metadata, options, provider, providerOutput, threshold, vars"

JSON = """\
{
  "providers": [
    "echo",
    {"id": 5},
    {"label": "x"},
    {"id": "echo", "lable": "x"},
    {"id": "echo", "lane": "slwo"},
    {"echo": {"label": 3, "lane": {"rpm": 0}}},
    {"echo": "x"},
    {"id": "echo", "lane": {"itpm": 5, "max_concurrency": 0, "maxConcurrency": 1}},
    {"id": "echo", "prompts": ["capitals", "short*", "capitols"], "transform": "x"},
    {"id": "echo", "lane": {"delay": 1}, "delay": -1},
    {"echo": {"lane": "slow", "delay": 5}}
  ],
  "lanes": {"slow": {"burst": 1.5, "burts": 2}},
  "prompts": [
    "{% if x %}",
    {"raw": "file://x.txt"},
    {"label": "capitals"},
    {"raw": "a", "label": "short:a", "config": {}},
    5,
    " "
  ],
  "provders": [],
  "scenarios": [],
  "x-mine": {"anything": true},
  "$schema": "x"
}
"""

JSON_PROBLEMS = """\
suite.json:4:12: $.providers[1].id: must be text, got 5
suite.json:5:5: $.providers[2]: "id" is missing
suite.json:6:20: $.providers[3].lable: "lable" is not a key here
  did you mean "label"?
suite.json:7:28: $.providers[4].lane: unknown lane "slwo": it is not in $.lanes
  did you mean "slow"?
suite.json:8:24: $.providers[5].echo.label: must be text, got 3
suite.json:8:43: $.providers[5].echo.lane.rpm: must be more than 0, got 0
suite.json:9:14: $.providers[6].echo: must be an object, got the text "x"
suite.json:10:29: $.providers[7].lane.itpm: itpm is not supported yet
suite.json:10:59: $.providers[7].lane.max_concurrency: must be at least 1, got 0
suite.json:10:62: $.providers[7].lane.maxConcurrency: max_concurrency and maxConcurrency are the same key: \
write one of them
suite.json:12:42: $.providers[9].delay: the delay is given twice, here and in the lane
  write one of them
suite.json:12:51: $.providers[9].delay: must be at least 0, got -1
suite.json:13:31: $.providers[10].echo.delay: the delay of a named lane belongs in $.lanes
  move it there
suite.json:15:31: $.lanes.slow.burst: must be a whole number, got 1.5
suite.json:15:36: $.lanes.slow.burts: "burts" is not a key here
  did you mean "burst"?
suite.json:17:5: $.prompts[0]: not a template: line 1: expected elif, else, or endif, got end of file
suite.json:18:13: $.prompts[1].raw: file not found: "x.txt"
suite.json:19:5: $.prompts[2]: "raw" is missing
  write the text of the prompt, or its file
suite.json:21:5: $.prompts[4]: must be text or an object, got 5
suite.json:22:5: $.prompts[5]: a prompt must not be empty
suite.json:24:3: $.provders: "provders" is not a key here
  did you mean "providers"?"""

YAML = """\
targets: [echo, {id: ""}, "file://list.yaml"]
defaultTest:
  provider: x
  vars: [a]
tests:
- vars: {q: "file://q.txt", r: [a, "file://r.txt"]}
- {}
- description: only words
- file://tests.csv
- assert:
  - "contains: x"
  - {type: contians, valeu: x}
  - {type: regex, value: "["}
  - {type: contains, value: x, weight: -2e9}
  - {type: contains, value: x, weight: true}
  - {type: javascript}
  - {value: x}
  - {type: 5}
  - {type: assert-set, assert: [1]}
  - {type: as-you-like, value: x}
  - [contains, x]
- options: {runSerially: 1, repeat: 0, prefix: x, bogus: 1}
  threshold: "0.5"
- vars: {1: x}
evaluateOptions:
  max_concurrency: 0
  timeoutMs: -1
  repeat: "5"
  delay: -1
  cache: true
description: [5]
"""

YAML_PROBLEMS = f"""\
suite.yaml:1:22: $.targets[1].id: the id of a provider must not be empty
  for example "echo"
suite.yaml:1:27: $.targets[2]: file not found: "file://list.yaml"
  did you mean "suite.yaml"?
suite.yaml:4:10: $.defaultTest.vars[0]: file not found: "a"
suite.yaml:6:13: $.tests[0].vars.q: file not found: "file://q.txt"
suite.yaml:6:36: $.tests[0].vars.r[1]: file not found: "file://r.txt"
suite.yaml:7:3: $.tests[1]: a test needs at least one of {NEEDED}
suite.yaml:8:3: $.tests[2]: a test needs at least one of {NEEDED}
suite.yaml:9:3: $.tests[3]: file not found: "file://tests.csv"
suite.yaml:11:5: $.tests[4].assert[0]: must be an object, got the text "contains: x"
  write {{"type": "contains", "value": "contains: x"}}
suite.yaml:12:12: $.tests[4].assert[1].type: "contians" is not an assertion type
  did you mean "contains" or "icontains"?
suite.yaml:12:22: $.tests[4].assert[1].valeu: "valeu" is not a key here
  did you mean "value"?
suite.yaml:13:26: $.tests[4].assert[2].value: "[" is not a valid regular expression: \
unexpected end
  patterns are those of JavaScript, without flags
suite.yaml:14:40: $.tests[4].assert[3].weight: must be from -1000000000 to 1000000000, got -2000000000
suite.yaml:15:40: $.tests[4].assert[4].weight: must be a number, got true
suite.yaml:16:5: $.tests[4].assert[5]: "value" is missing
  it must be JavaScript code, or file://<file>[:<function>]
suite.yaml:17:5: $.tests[4].assert[6]: "type" is missing
suite.yaml:18:12: $.tests[4].assert[7].type: must be text, got 5
suite.yaml:19:33: $.tests[4].assert[8].assert[0]: must be an object, got 1
suite.yaml:20:12: $.tests[4].assert[9].type: "as-you-like" is not an assertion type
  all types are listed in docs/reference/assertions.md
suite.yaml:21:5: $.tests[4].assert[10]: must be an object, got a list
suite.yaml:22:26: $.tests[5].options.runSerially: must be true or false, got 1
suite.yaml:22:37: $.tests[5].options.repeat: must be at least 1, got 0
suite.yaml:23:14: $.tests[5].threshold: must be a number, got the text "0.5"
suite.yaml:26:20: $.evaluateOptions.max_concurrency: must be at least 1, got 0
suite.yaml:27:14: $.evaluateOptions.timeoutMs: must be at least 0, got -1
suite.yaml:28:11: $.evaluateOptions.repeat: must be a whole number, got the text "5"
suite.yaml:29:10: $.evaluateOptions.delay: must be at least 0, got -1
suite.yaml:31:14: $.description: must be text, got a list"""


def message_of(name: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(folder)
    (folder / name).write_text(text)
    with pytest.raises(SuiteError) as caught:
        load_suite(name, strict=True)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "problems"),
    [("suite.json", JSON, JSON_PROBLEMS), ("suite.yaml", YAML, YAML_PROBLEMS)],
)
def test_all_mistakes_are_reported_in_file_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, problems: str
) -> None:
    """Messages contain line, column, path, value, and a correction."""
    assert message_of(name, text, tmp_path, monkeypatch) == problems


KEYS_HINT = "  write its keys, such as providers, prompts and tests"
SINGLE: list[tuple[str, str]] = [
    (
        "[]",
        "s.json:1:1: $: a suite must be an object, got a list\n" + KEYS_HINT,
    ),
    (
        "null",
        "s.json:1:1: $: a suite must be an object, got null\n" + KEYS_HINT,
    ),
    (
        '"echo"',
        's.json:1:1: $: a suite must be an object, got the text "echo"\n' + KEYS_HINT,
    ),
    ("{}", 's.json:1:1: $: the suite has no providers\n  for example "providers": ["echo"]'),
    (
        '{"providers": []}',
        's.json:1:15: $.providers: the suite has no providers\n  for example "providers": ["echo"]',
    ),
    (
        '{"targets": null}',
        's.json:1:13: $.targets: the suite has no providers\n  for example "providers": ["echo"]',
    ),
    (
        '{"providers": 5}',
        "s.json:1:15: $.providers: must be a list of providers, got 5",
    ),
    (
        '{"providers": ["echo"], "targets": ["echo"]}',
        "s.json:1:25: $.targets: providers and targets are the same key: write one of them",
    ),
    (
        '{"providers": ["echo"], "prompts": []}',
        (
            "s.json:1:36: $.prompts: the suite has no prompts\n"
            "  leave the key out for the one prompt {{prompt}}"
        ),
    ),
    (
        '{"providers": ["echo"], "prompts": "file://prompts.txt"}',
        's.json:1:36: $.prompts: file not found: "prompts.txt"',
    ),
    (
        '{"providers": ["echo"], "tests": "tests.csv"}',
        's.json:1:34: $.tests: file not found: "tests.csv"',
    ),
    ('{"providers": ["echo"], "tests": 5}', "s.json:1:34: $.tests: must be a list of tests, got 5"),
    (
        '{"providers": ["echo"], "defaultTest": "file://t.yaml"}',
        's.json:1:40: $.defaultTest: file not found: "file://t.yaml"',
    ),
    (
        '{"providers": ["echo"], "lanes": [1]}',
        "s.json:1:34: $.lanes: must be an object, got a list",
    ),
    (
        '{"providers": [{"echo": {"id": 7}}]}',
        "s.json:1:32: $.providers[0].echo.id: must be text, got 7",
    ),
    (
        '{"providers": [{"config": {"a": 1}}]}',
        's.json:1:16: $.providers[0]: "id" is missing',
    ),
    (
        '{"providers": [7]}',
        "s.json:1:16: $.providers[0]: must be an object, got 7",
    ),
    (
        '{"providers": [{"id": "echo", "lane": 5}]}',
        "s.json:1:39: $.providers[0].lane: must be an object, got 5",
    ),
    (
        '{"providers": [{"id": "echo", "lane": "a"}], "lanes": {}}',
        's.json:1:39: $.providers[0].lane: unknown lane "a": it is not in $.lanes\n  there are none',
    ),
    (
        '{"providers": [{"id": "echo", "prompts": ["b"]}], "prompts": ["a"]}',
        (
            's.json:1:43: $.providers[0].prompts[0]: unknown prompt "b"\n'
            "  no prompt has a label or an id"
        ),
    ),
    (
        '{"providers": [{"id": "echo", "prompts": [5]}], "prompts": ["a"]}',
        "s.json:1:43: $.providers[0].prompts[0]: must be text, got 5",
    ),
    (
        '{"providers": ["echo"], "evaluateOptions": {"delay": 1e999}}',
        "s.json:1:54: $.evaluateOptions.delay: must be a finite number, got Infinity",
    ),
    (
        '{"providers": ["echo"], "evaluateOptions": {"delay": 1%s}}' % ("0" * 400),
        "s.json:1:54: $.evaluateOptions.delay: must be a finite number, got a number with very many digits",
    ),
    (
        '{"providers": ["echo"],\n "tests": [{"vars": {"a": NaN, "\\ud800": 1}}]}',
        (
            "s.json:2:27: $.tests[0].vars.a: must be a finite number, got NaN\n"
            's.json:2:32: $.tests[0].vars["\\ud800"]: a lone surrogate is not a valid character, '
            'in the text "\\ud800"'
        ),
    ),
    (
        '{"providers": ["echo"], "prompts": ["\\udc00"]}',
        (
            "s.json:1:37: $.prompts[0]: a lone surrogate is not a valid character, "
            'in the text "\\udc00"'
        ),
    ),
    (
        '{{"providers": ["echo"], "a": {}1{}}}'.format("[" * 250, "]" * 250),
        "s.json:1:229: $.a[0][0][0]: is nested more than 200 levels deep",
    ),
    (
        '{"providers": ["echo"],\n "providers": ["echo"],\n "tests": [{"vars": {"a": 1,\n "a": 2}, "t": 1}]}',
        (
            's.json:2:2: $.providers: duplicate key "providers": it is already in line 1\n'
            's.json:4:2: $.tests[0].vars.a: duplicate key "a": it is already in line 3\n'
            's.json:4:11: $.tests[0].t: "t" is not a key here\n'
            "  nearest are assert, prompts, options"
        ),
    ),
]


@pytest.mark.parametrize(("text", "problems"), SINGLE, ids=[text[:60] for text, _ in SINGLE])
def test_a_problem_has_its_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problems: str
) -> None:
    """A missing key is reported at its object, an unknown key at the key, an invalid value at the value."""
    assert message_of("s.json", text, tmp_path, monkeypatch) == problems


def test_mistakes_of_merged_settings_are_reported_at_their_definition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not reported where they are merged."""
    text = "x-base: &b {rpm: 0}\nproviders: [echo]\nlanes:\n  1: {<<: *b, burst: 2}\n  true: *b\n"
    assert message_of("s.yaml", text, tmp_path, monkeypatch) == (
        's.yaml:1:18: $.lanes["1"].rpm: must be more than 0, got 0\n'
        "s.yaml:1:18: $.lanes.true.rpm: must be more than 0, got 0"
    )


def test_problems_are_structured_data(tmp_path: Path) -> None:
    """The text is generated from them."""
    (tmp_path / "s.yaml").write_text("providers: [echo]\nprompt: [a]\n")
    with pytest.raises(SuiteError) as caught:
        load_suite(tmp_path / "s.yaml")
    (problem,) = caught.value.problems
    assert (problem.path, problem.line, problem.column) == ("$.prompt", 2, 1)
    assert (problem.message, problem.hint) == (
        '"prompt" is not a key here',
        'did you mean "prompts"?',
    )
    assert problem.file == str(tmp_path / "s.yaml")
