"""References, the environment and several files: their resolution and their mistakes."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.documents import SuiteDocument, read_suite_documents, suite_files
from trioeval.documents.mistakes import Mistake, MistakenError, kind
from trioeval.documents.paths import DocumentPath, show_path


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def read(folder: Path, *names: str, **environ: str) -> SuiteDocument:
    return read_suite_documents([folder / name for name in names], environ=environ)


def described(mistake: Mistake) -> str:
    assert mistake.file is not None
    line, column = mistake.place or (0, 0)
    hint = f" ({mistake.hint})" if mistake.hint else ""
    return f"{mistake.file.name}:{line}:{column}: {show_path(mistake.at)}: {mistake.message}{hint}"


def refused(folder: Path, *names: str, **environ: str) -> list[str]:
    try:
        mistakes = read(folder, *names, **environ).mistakes
    except MistakenError as error:
        mistakes = error.parts
    return [described(mistake) for mistake in mistakes]


def placed(document: SuiteDocument, *path: str | int, key: bool = False) -> str:
    return described(document.placed(Mistake("x", at=path, key=key)))


def test_a_reference_is_replaced_by_its_target(tmp_path: Path) -> None:
    """The target may be in the document or in another file; keys next to the reference override its own."""
    write(
        tmp_path,
        {
            "s.yaml": (
                "shared: {a/b: [x, {k: 1}]}\n"
                "one: {$ref: '#/shared/a~1b/1'}\n"
                "two: {$ref: '#/one', k: 2, own: {$ref: 'parts/p.json#/q'}}\n"
                "three: {$ref: 'parts/p.json#/r/0'}\n"
            ),
            "parts/p.json": '{"q": {"$ref": "deep.toml"},\n "r": [{"$ref": "#/q/t"}]}',
            "parts/deep.toml": "[t]\nv = 7\n",
        },
    )
    document = read(tmp_path, "s.yaml")
    assert document.data["one"] == {"k": 1}
    assert document.data["two"] == {"k": 2, "own": {"t": {"v": 7}}}
    assert document.data["three"] == {"v": 7}
    assert {file.name for file in document.files} == {"s.yaml", "p.json", "deep.toml"}
    assert placed(document, "one", "k") == 's.yaml:1:23: $.shared["a/b"][1].k: x'
    assert placed(document, "two", "k") == "s.yaml:3:25: $.two.k: x"
    assert placed(document, "two", "own", "t", "v") == "deep.toml:2:5: $.t.v: x"
    assert placed(document, "three", "v", key=True) == "deep.toml:2:1: $.t.v: x"
    assert placed(document, "three", key=True) == "s.yaml:4:1: $.three: x"


ASTRAY = [
    ('{"$ref": "#/a"}', "#/a → #/a"),
    ('{"b": {"$ref": "#/a"}}', "#/a → #/a"),
    ('{"$ref": "#"}', "# → #"),
    ('[{"$ref": "s.json#/a"}]', "s.json#/a → s.json#/a"),
]


@pytest.mark.parametrize(("value", "way"), ASTRAY, ids=[way for _, way in ASTRAY])
def test_a_cycle_of_references_is_shown(tmp_path: Path, value: str, way: str) -> None:
    """The cycle is reported once, with its path."""
    write(tmp_path, {"s.json": f'{{"a": {value}}}'})
    (message,) = refused(tmp_path, "s.json")
    assert message.endswith(f"the references form a cycle: {way}")


def test_references_through_each_other_are_a_cycle(tmp_path: Path) -> None:
    """This holds even if neither target exists."""
    write(tmp_path, {"s.json": '{"a": {"$ref": "#/b/x"}, "b": {"$ref": "#/a/y"}}'})
    assert refused(tmp_path, "s.json") == [
        "s.json:1:16: $.a.$ref: the references form a cycle: #/b/x",
        "s.json:1:40: $.b.$ref: the references form a cycle: #/a/y",
    ]


def test_references_without_a_target_are_reported_together(tmp_path: Path) -> None:
    """Each is reported at its position, with a suggestion."""
    outside = tmp_path.parent / "outside.json"
    outside.write_text("{}")
    write(
        tmp_path,
        {
            "s.json": (
                '{"definitions": [1],\n'
                '"a": {"$ref": "#/defintions/0"},\n'
                '"b": {"$ref": "#/definitions/1"},\n'
                '"c": {"$ref": "#/definitions/0/z"},\n'
                '"d": {"$ref": "../outside.json"},\n'
                '"e": {"$ref": "https://example.com/x.json"},\n'
                '"f": {"$ref": "oter.json#/x"},\n'
                '"g": {"$ref": "other.json"},\n'
                '"h": {"$ref": "twice.json"},\n'
                f'"i": {{"$ref": "#/definitions/{"1" * 30}"}}}}'
            ),
            "other.json": '{"x": ]',
            "twice.json": '{"x": 1, "x": 2}',
            "t.json": '{"d": {"$ref": "../outside.json"}}',
        },
    )
    assert refused(tmp_path, "s.json") == [
        (
            's.json:2:15: $.a.$ref: #/defintions/0 cannot be resolved: $ has no "defintions" '
            '(did you mean "definitions"?)'
        ),
        (
            's.json:3:15: $.b.$ref: #/definitions/1 cannot be resolved: $.definitions has no "1" '
            "($.definitions has 1 member, counted from 0)"
        ),
        (
            's.json:4:15: $.c.$ref: #/definitions/0/z cannot be resolved: $.definitions[0] has no "z" '
            "($.definitions[0] is 1)"
        ),
        (
            f's.json:5:15: $.d.$ref: "../outside.json" is outside of the suite\'s folder {tmp_path} '
            "(allow it with --allow-outside)"
        ),
        (
            "s.json:6:15: $.e.$ref: references to https:// are not followed "
            "(copy the target into a file)"
        ),
        's.json:7:15: $.f.$ref: file not found: "oter.json" (did you mean "other.json"?)',
        "other.json:1:7: $: not JSON: expecting value",
        'twice.json:1:10: $.x: duplicate key "x": it is already in line 1',
        (
            f"s.json:10:15: $.i.$ref: #/definitions/{'1' * 30} cannot be resolved: $.definitions has no "
            f'"{"1" * 30}" ($.definitions has 1 member, counted from 0)'
        ),
    ]
    allowed = read_suite_documents([tmp_path / "t.json"], environ={}, allow_outside=True)
    assert allowed.data == {"d": {}}


def test_references_of_references_cannot_exhaust_the_memory(tmp_path: Path) -> None:
    """They are counted, not expanded; their depth is bounded as well."""
    bomb = {f"a{n}": [{"$ref": f"#/a{n - 1}"}] * 9 if n else [1] for n in range(12)}
    chain = {f"a{n}": {"$ref": f"#/a{n + 1}"} if n < 1200 else [1] for n in range(1201)}
    write(tmp_path, {"bomb.json": json.dumps(bomb), "chain.json": json.dumps(chain)})
    (message,) = refused(tmp_path, "bomb.json")
    assert message.endswith("(use fewer references)")
    (message,) = refused(tmp_path, "chain.json")
    assert message.endswith("is nested more than 200 levels deep")


def test_schemas_of_functions_keep_their_references(tmp_path: Path) -> None:
    """Parameters of a function are sent unchanged; everything else in a config is resolved."""
    kept = {"$ref": "#/$defs/place"}
    config = {
        "tools": [{"type": "function", "function": {"name": "f", "parameters": kept}}],
        "functions": [{"name": "f", "parameters": kept}],
        "shape": {"$ref": "#/shape"},
    }
    document = {"providers": [{"id": "x", "config": config}, {"y": {"config": config}}], "shape": 5}
    write(tmp_path, {"s.json": json.dumps(document)})
    resolved = {**config, "shape": 5}
    assert read(tmp_path, "s.json").data["providers"] == [
        {"id": "x", "config": resolved},
        {"y": {"config": resolved}},
    ]


def test_schemas_of_assertions_keep_their_internal_references(tmp_path: Path) -> None:
    """References without a target in the document stay; targets in the document have precedence."""
    own = {
        "$ref": "#/definitions/tree",
        "definitions": {"tree": {"items": {"$ref": "#/definitions/tree"}, "$ref": "#/shared"}},
    }
    document = {
        "shared": {"type": "array"},
        "a": {"type": "not-is-json", "value": own},
        "b": {"type": ["is-json"], "value": own},
        "c": {"type": "is-json", "value": {"not": {"$ref": "#/definitions/no"}, "definitions": {}}},
    }
    write(tmp_path, {"s.json": json.dumps(document)})
    tree = {"items": {"$ref": "#/definitions/tree"}, "type": "array"}
    kept = {"$ref": "#/definitions/tree", "definitions": {"tree": tree}}
    found = read(tmp_path, "s.json")
    assert found.data["a"]["value"] == kept
    # The others have no such reference, or are not schemas.
    assert [mistake.at for mistake in found.mistakes] == [
        ("b", "value", "$ref"),
        ("c", "value", "not", "$ref"),
    ]


@pytest.mark.parametrize("name", ["is-json", "not-contains-json"])
def test_the_root_of_a_schema_is_the_schema(name: str, tmp_path: Path) -> None:
    """It is the schema itself, whether pasted, in a file, or elsewhere in the suite; never the suite."""
    tree = {"type": ["array", "number"], "items": {"$ref": "#"}}
    values = [tree, {"$ref": "tree.json"}, {"$ref": "#/trees/own"}]
    tests = [{"assert": [{"type": name, "value": value}]} for value in values]
    document = {"tests": tests, "trees": {"own": tree}}
    write(tmp_path, {"s.json": json.dumps(document), "tree.json": json.dumps(tree)})
    found = read(tmp_path, "s.json")
    assert [test["assert"][0]["value"] for test in found.data["tests"]] == [tree] * 3


def test_the_root_of_a_part_of_a_schema_is_reported(tmp_path: Path) -> None:
    """It would mean another root after the part has been inserted."""
    value = {"properties": {"a": {"$ref": "tree.json"}}}
    tests = [{"assert": [{"type": "is-json", "value": value}]}]
    tree = '{"items": {"$ref": "#"}}'
    write(tmp_path, {"s.json": json.dumps({"tests": tests}), "tree.json": tree})
    (described,) = refused(tmp_path, "s.json")
    assert described.startswith(
        "tree.json:1:20: $.items.$ref: # is not the root of the schema here, "
    )
    assert described.endswith("(move the schema to a separate file: value: file://schema.json)")


@pytest.mark.parametrize("value", [3, None, ["#/a"]])
def test_a_reference_is_text(tmp_path: Path, value: Any) -> None:
    """Anything else is a mistake; all of them are reported at once."""
    write(tmp_path, {"s.json": json.dumps({"a": {"$ref": value}, "b": [{"$ref": value}]})})
    mistakes = read(tmp_path, "s.json").mistakes
    assert [(mistake.at, mistake.message) for mistake in mistakes] == [
        (("a", "$ref"), f"$ref must be text, got {kind(value)}"),
        (("b", 0, "$ref"), f"$ref must be text, got {kind(value)}"),
    ]


@pytest.mark.parametrize("value", [{"$ref": ""}, {"$ref": "#name"}, {"$ref": {"type": "string"}}])
def test_text_that_only_looks_like_a_reference_is_unchanged(tmp_path: Path, value: Any) -> None:
    """References begin with a file or with #/."""
    write(tmp_path, {"s.json": json.dumps({"a": value})})
    assert read(tmp_path, "s.json").data == {"a": value}


ENVIRONMENT = [
    ("{{env.A}}", "one"),
    ("{{ env.A | upper }}-{{ x }}", "ONE-{{ x }}"),
    ("{{ env['A'] }}{{ env[\"A\"] }}", "oneone"),
    ("{{ env.NO | default('none') }}", "none"),
    ("{{ env.NO }}", "{{ env.NO }}"),
    ("{% if env.A %}{{ env.A }}{% endif %}", "{% if env.A %}one{% endif %}"),
    ("{{ env.EMPTY }}|", "|"),
    ("{{ environment.A }} {{ xenv.A }}", "{{ environment.A }} {{ xenv.A }}"),
    ("{{ env.A | nofilter }}", "{{ env.A | nofilter }}"),
    ("{{ env.A }} {{ env.A", "one {{ env.A"),
    ("{{ env.OWN }} {{ env.N }}", "own-one 5"),
    ("env.A", "env.A"),
]


@pytest.mark.parametrize(("text", "rendered"), ENVIRONMENT, ids=[text for text, _ in ENVIRONMENT])
def test_templates_of_the_environment_are_rendered(
    tmp_path: Path, text: str, rendered: str
) -> None:
    """The suite's `env` overrides the process environment; all other templates are left to the run."""
    document = {"env": {"OWN": "own-{{env.A}}", "N": 5}, "tests": [{"vars": {"q": text}}]}
    write(tmp_path, {"s.json": json.dumps(document)})
    found = read(tmp_path, "s.json", A="one", EMPTY="").data
    assert found["tests"][0]["vars"]["q"] == rendered
    assert found["env"] == {"OWN": "own-one", "N": 5}


def test_provider_configs_are_rendered_later(tmp_path: Path) -> None:
    """Providers know which variables are secrets; outputs of models are not rendered either."""
    secret = {"key": "{{env.A}}"}
    document = {
        "providers": [{"id": "{{env.A}}", "config": secret}, {"x": {"config": secret}}],
        "tests": [
            {
                "options": {"provider": {"id": "{{env.A}}", "config": secret}},
                "vars": {"_conversation": ["{{env.A}}"]},
            }
        ],
    }
    write(tmp_path, {"s.json": json.dumps(document)})
    assert read(tmp_path, "s.json", A="one").data == json.loads(
        json.dumps(document).replace('"id": "{{env.A}}"', '"id": "one"')
    )


def test_unset_variables_cause_warnings(tmp_path: Path) -> None:
    """Each use is a warning; a use with a filter is not."""
    write(tmp_path, {"s.yaml": "prompts:\n- '{{env.NO}}'\n- '{{env.NEITHER | default(1)}}'\n"})
    document = read(tmp_path, "s.yaml")
    assert [described(warning) for warning in document.warnings] == [
        (
            "s.yaml:2:3: $.prompts[0]: the environment variable NO is not set "
            "(set NO, or name a file that sets it with --env-file)"
        )
    ]


def test_a_similar_variable_is_suggested_by_its_name(tmp_path: Path) -> None:
    """The value is never used for a suggestion."""
    write(tmp_path, {"s.yaml": "prompts: ['{{env.OPENAI_KEY}}']\n"})
    document = read(tmp_path, "s.yaml", OPENAI_API_KEY="sk-secret", HOME="/root")
    [warning] = map(described, document.warnings)
    assert "(did you mean OPENAI_API_KEY? Otherwise set OPENAI_KEY, or name a file" in warning
    assert "sk-secret" not in warning


def test_shell_style_variables_cause_warnings(tmp_path: Path) -> None:
    """They are checked among the providers and in `env`, in capitals; a prompt may contain code."""
    suite = {
        "providers": [{"id": "echo", "config": {"apiKey": "${KEY}", "b": "${lower} ${NOT_SET}"}}],
        "env": {"A": "${KEY}-${KEY}"},
        "prompts": ["${KEY}"],
    }
    write(tmp_path, {"s.json": json.dumps(suite)})
    warnings = [described(warning) for warning in read(tmp_path, "s.json", KEY="k").warnings]
    assert [warning.partition(": $.")[2] for warning in warnings] == [
        (
            "providers[0].config.apiKey: ${KEY} is not replaced by the environment variable "
            "(write {{env.KEY}})"
        ),
        (
            "providers[0].config.b: ${NOT_SET} is not replaced by the environment variable "
            "(write {{env.NOT_SET}}; NOT_SET is not set: "
            "set NOT_SET, or name a file that sets it with --env-file)"
        ),
        "env.A: ${KEY} is not replaced by the environment variable (write {{env.KEY}})",
    ]


def test_the_environment_can_be_excluded(tmp_path: Path) -> None:
    """This works for the process environment only, and for all rendering."""
    write(tmp_path, {"s.yaml": "env: {B: b}\nprompts: ['{{env.A}}{{env.B}}']\n"})
    without = read(tmp_path, "s.yaml", A="a", TRIOEVAL_DISABLE_TEMPLATE_ENV_VARS="true")
    assert without.data["prompts"] == ["{{env.A}}b"]
    nothing = read(tmp_path, "s.yaml", A="a", PROMPTFOO_DISABLE_TEMPLATING="1")
    assert nothing.data["prompts"] == ["{{env.A}}{{env.B}}"]


def test_a_variable_that_is_not_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 come from the system as lone surrogates, which cannot be printed."""
    write(tmp_path, {"s.yaml": "prompts: ['{{env.A}}']\n"})
    assert refused(tmp_path, "s.yaml", A="\udcff") == [
        's.yaml:1:11: $.prompts[0]: the environment variable A is not UTF-8, in "{{env.A}}"'
    ]


def test_several_files_are_one_suite(tmp_path: Path) -> None:
    """Lists are appended without duplicate providers and prompts, objects are merged, later files win."""
    write(
        tmp_path,
        {
            "a.yaml": (
                "description: one\nproviders: [echo, {id: echo, label: x}]\n"
                "prompts: [a, 'file://p.txt']\ntests:\n- vars: {x: 1}\n"
                "defaultTest: {threshold: 1, vars: {a: 1}, assert: [{type: one}]}\n"
                "evaluateOptions: {repeat: 2, delay: 1}\nenv: {A: '1'}\noutputPath: a.json\n"
            ),
            "sub/b.toml": (
                'description = "two"\ntargets = [{id = "echo", label = "x"}, "other"]\n'
                'prompts = ["file://p.txt", "a"]\ntests = "file://t.csv"\noutputPath = ["b.json"]\n'
                '[default_test]\nvars = {b = 2}\nassert = [{type = "two"}]\n'
                "metadata = {m = 1}\n[evaluateOptions]\nrepeat = 3\n"
            ),
        },
    )
    document = read(tmp_path, "a.yaml", "sub/b.toml")
    assert document.data == {
        "description": "one, two",
        "providers": ["echo", {"id": "echo", "label": "x"}, "other"],
        "prompts": ["a", "file://p.txt", "file://p.txt"],
        "tests": [{"vars": {"x": 1}}, "file://t.csv"],
        "defaultTest": {
            "threshold": 1,
            "vars": {"a": 1, "b": 2},
            "assert": [{"type": "one"}, {"type": "two"}],
            "metadata": {"m": 1},
        },
        "evaluateOptions": {"repeat": 3, "delay": 1},
        "env": {"A": "1"},
        "outputPath": ["a.json", "b.json"],
    }
    assert [
        placed(document, *path)
        for path in [
            ("providers", 2),
            ("prompts", 2),
            ("tests", 0, "vars", "x"),
            ("tests", 1),
            ("evaluateOptions", "repeat"),
            ("evaluateOptions", "delay"),
            ("defaultTest", "vars", "b"),
            ("defaultTest", "vars", "a"),
            ("defaultTest", "assert", 1, "type"),
            ("defaultTest", "threshold"),
        ]
    ] == [
        "b.toml:2:40: $.targets[1]: x",
        "b.toml:3:12: $.prompts[0]: x",
        "a.yaml:5:13: $.tests[0].vars.x: x",
        "b.toml:4:9: $.tests: x",
        "b.toml:11:10: $.evaluateOptions.repeat: x",
        "a.yaml:7:37: $.evaluateOptions.delay: x",
        "b.toml:7:13: $.default_test.vars.b: x",
        "a.yaml:6:39: $.defaultTest.vars.a: x",
        "b.toml:8:19: $.default_test.assert[0].type: x",
        "a.yaml:6:26: $.defaultTest.threshold: x",
    ]


def test_a_file_without_prompts_beside_others_adds_the_default_prompt(tmp_path: Path) -> None:
    """This is as in promptfoo, with a warning, because every row is requested once more."""
    write(tmp_path, {"a.yaml": "prompts: [a]\n", "b.yaml": "tests: []\n"})
    document = read(tmp_path, "a.yaml", "b.yaml")
    assert document.data["prompts"] == ["a", "{{prompt}}"]
    assert [described(warning) for warning in document.warnings] == [
        (
            "b.yaml:1:1: $: no prompts here, so the prompt {{prompt}} is added "
            "(give it a prompt of the other files)"
        )
    ]
    write(tmp_path, {"a.yaml": "providers: [echo]\n"})
    assert "prompts" not in read(tmp_path, "a.yaml", "b.yaml").data


def test_prompts_of_every_form_are_one_list(tmp_path: Path) -> None:
    """Files with labels are merged with texts."""
    files = {
        "a.yaml": "prompts: {p.txt: long}\n",
        "b.yaml": "prompts: [b]\n",
        "c.yaml": "prompts: c\n",
    }
    write(tmp_path, files)
    assert read(tmp_path, *files).data == {"prompts": [{"raw": "p.txt", "label": "long"}, "b", "c"]}


def test_null_counts_as_absent(tmp_path: Path) -> None:
    """This holds for known keys; unknown ones stay, so that they are reported."""
    write(
        tmp_path,
        {
            "a.yaml": "tests: ~\nscenarios: ~\nenv: ~\ndefaultTest: {vars: {a: 1}}\nbogus: ~\n",
            "b.yaml": "env: {A: '1'}\ndefaultTest: ~\n",
        },
    )
    assert read(tmp_path, "a.yaml", "b.yaml").data == {
        "env": {"A": "1"},
        "defaultTest": {"vars": {"a": 1}},
        "bogus": None,
    }


def test_values_of_the_wrong_type_are_kept_for_later_checks(tmp_path: Path) -> None:
    """The later value wins, with its position."""
    write(
        tmp_path,
        {"a.yaml": "env: {A: '1'}\ndefaultTest: {}\n", "b.yaml": "env: 5\ndefaultTest: 6\n"},
    )
    document = read(tmp_path, "a.yaml", "b.yaml")
    assert document.data == {"env": 5, "defaultTest": 6}
    assert placed(document, "env") == "b.yaml:1:6: $.env: x"
    assert placed(document, "defaultTest") == "b.yaml:2:14: $.defaultTest: x"


def test_a_default_test_in_a_file_is_not_merged(tmp_path: Path) -> None:
    """The last text wins; objects next to it have no effect, with a warning if they come later."""
    files = {"a.yaml": "defaultTest: {threshold: 1}\n", "b.yaml": "defaultTest: file://d.yaml\n"}
    write(tmp_path, files)
    assert read(tmp_path, "a.yaml", "b.yaml").data == {"defaultTest": "file://d.yaml"}
    document = read(tmp_path, "b.yaml", "a.yaml")
    assert document.data == {"defaultTest": "file://d.yaml"}
    assert [described(warning) for warning in document.warnings] == [
        'a.yaml:1:1: $.defaultTest: has no effect beside the file "file://d.yaml"'
    ]


def test_unreadable_files_are_reported_together(tmp_path: Path) -> None:
    """Each is reported with its name, together with files that are not objects and other mistakes."""
    write(tmp_path, {"a.json": "{", "b.yaml": "- 1\n", "c.yaml": "a: {$ref: '#/b'}\n"})
    assert refused(tmp_path, "a.json", "b.yaml", "c.yaml", "d.yaml") == [
        "a.json:1:2: $: not JSON: expecting property name enclosed in double quotes",
        (
            "b.yaml:1:1: $: a suite must be an object, got a list "
            "(write its keys, such as providers, prompts and tests)"
        ),
        "d.yaml:0:0: $: file not found",
        'c.yaml:1:11: $.a.$ref: #/b cannot be resolved: $ has no "b" (known are a)',
    ]


def test_duplicate_keys_are_reported_in_their_file(tmp_path: Path) -> None:
    """Such documents stay readable."""
    write(tmp_path, {"a.yaml": "tests: []\n", "b.yaml": "tests: []\ntests: []\n"})
    document = read(tmp_path, "a.yaml", "b.yaml")
    assert [described(mistake) for mistake in document.mistakes] == [
        'b.yaml:2:1: $.tests: duplicate key "tests": it is already in line 1'
    ]


def test_globs_name_suite_files_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths start at the working directory; files of a glob are sorted; it must match."""
    write(
        tmp_path, {"s/b.yaml": "", "s/a.yaml": "", "z.yaml": "", "s/c.yaml/d": "", "[x].yaml": ""}
    )
    monkeypatch.chdir(tmp_path)
    assert [str(path) for path in suite_files(["z.yaml", "s/*.yaml", "[x].yaml", "no.yaml"])] == [
        "z.yaml",
        "s/a.yaml",
        "s/b.yaml",
        "[x].yaml",
        "no.yaml",
    ]
    with pytest.raises(MistakenError, match="no file matches"):
        suite_files(["q*.yaml"])


JSON_DATA = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text("ab/~%", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab/~%", max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def paths(value: Any, path: DocumentPath = ()) -> Iterator[DocumentPath]:
    yield path
    steps = range(len(value)) if isinstance(value, list) else value
    for step in steps if isinstance(value, list | dict) else ():
        yield from paths(value[step], (*path, step))


@pytest.mark.slow
@given(JSON_DATA, st.data())
def test_every_part_of_a_document_can_be_a_target(
    tmp_path_factory: pytest.TempPathFactory, value: Any, data: st.DataObject
) -> None:
    """This holds for any keys, and the target is traced to its origin."""
    path = data.draw(st.sampled_from([*paths(value)]))
    pointer = "".join(
        f"/{str(step).replace('~', '~0').replace('/', '~1').replace('%', '%25')}" for step in path
    )
    file = tmp_path_factory.getbasetemp() / "referred.json"
    file.write_text(json.dumps({"value": value, "here": {"$ref": f"#/value{pointer}"}}))
    document = read_suite_documents([file], environ={})
    target = value
    for step in path:
        target = target[step]
    assert document.data == {"value": value, "here": target}
    for below in paths(target):
        assert document.placed(Mistake("x", at=("here", *below))).at == ("value", *path, *below)
