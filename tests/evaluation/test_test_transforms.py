"""The results of transforms."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import MistakenError
from trioeval.errors import ScriptError
from trioeval.evaluation.scripts import open_scripts
from trioeval.evaluation.transforms import apply_transform, read_output_transform
from trioeval.providers.generic.reply import MemberPath, ReplyQuery
from trioeval.scripting.engine import program
from trioeval.scripting.javascript import Script, transform_script

CONTEXT = {"vars": {"q": "Q"}, "prompt": {"label": "l"}, "metadata": {"m": 1}}
DATA = {"a": [1, {"b": None, "c": 0}], "t": "x"}


def outputs(folder: Path, *applied: tuple[str, Any]) -> list[Any]:
    """Return the result of each transform for its output; an error as a text that starts with a mark."""
    context = FileContext(directory=folder, environ=dict(os.environ))
    transforms = [(read_output_transform(text, context), output) for text, output in applied]
    found: list[Any] = []

    async def main() -> None:
        with trio.fail_after(60):
            async with open_scripts(folder, context.environ) as scripts:
                for transform, output in transforms:
                    try:
                        found.append(await apply_transform(transform, output, CONTEXT, scripts))
                    except ScriptError as error:
                        found.append(f"! {error}")

    trio.run(main)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "output", "expected"),
    [
        ("output.trim()", " a ", "a"),
        ("output.trim();", " a ", "a"),
        ("output.split(',').map(Number)", "1,2", [1, 2]),
        ("JSON.parse(output).a", '{"a": {"b": 1.0}}', {"b": 1}),
        ("output + context.vars.q + context.prompt.label + context.metadata.m", "a", "aQl1"),
        ("(output, context) => context.vars.q + output", "a", "Qa"),
        ("(output) => {\n  return output + 1;\n}", "a", "a1"),
        ("function (output) { return output.length }", "abc", 3),
        ("function last(text) { return text.at(-1) }\nreturn last(output)", "abc", "c"),
        ("const last = text => text.at(-1)\nreturn last(output)", "abc", "c"),
        ("const x = output\nreturn x + '!'", "a", "a!"),
        ("async (output) => (await output) + 1", "a", "a1"),
        ("console.log(output)\nreturn output", "a", "a"),
        ("{a: output}", "x", {"a": "x"}),
        ("output === 'x'", "y", False),
        ("''", "y", ""),
        ("0 // nothing", "y", 0),
        ("python: output[::-1]", "abc", "cba"),
        ("python: x = context['vars']['q']\nreturn x * 2", "abc", "QQ"),
        ("python: output['t']", DATA, "x"),
        ("file://t.py", "abc", "cba"),
        ("file://t.py:second", "abc", "bQ"),
        ("file://t.js", "abc", "abc Q"),
        ("file://t.js:up", "abc", "ABC"),
        ("file://t.mjs", "abc", 3),
        ("file://t.mjs:twice", "a", "aa"),
        ("file://t.mjs:thrice", "a", "aaa"),
        ("undefined", "abc", "! the transform returned nothing: undefined"),
        ("null", "abc", "! the transform returned nothing: null"),
        (
            "output\n",
            "abc",
            "! the transform returned nothing; code on several lines needs a return: output",
        ),
        (
            "notDefined.x",
            "abc",
            '! the transform failed: "notDefined.x" fails: ReferenceError: notDefined is not defined',
        ),
        ("python: None", "abc", "! the transform returned nothing: None"),
        ("file://t.py:fail", "abc", "! the transform failed: t.py:fail: ValueError: no luck"),
        ("file://t.py:nothing", "abc", "! the transform returned nothing: t.py:nothing"),
    ],
)
def test_code_transforms_an_output(text: str, output: Any, expected: Any, tmp_path: Path) -> None:
    """One line is an expression, several are a body; None is not an output."""
    (tmp_path / "t.py").write_text(
        "def get_transform(output, context):\n    return output[::-1]\n"
        "def second(output, context):\n    return output[1] + context['vars']['q']\n"
        "def fail(output, context):\n    raise ValueError('no luck')\n"
        "def nothing(output, context):\n    pass\n"
    )
    (tmp_path / "t.js").write_text(
        "module.exports = (output, context) => `${output} ${context.vars.q}`;\n"
        "module.exports.up = function (output) { return output.toUpperCase(); };\n"
    )
    (tmp_path / "t.mjs").write_text(
        "export default function (output) { return output.length; }\n"
        "export const twice = (output) => output + output;\n"
        "export function thrice(output) { return output + twice(output); }\n"
    )
    assert outputs(tmp_path, (text, output)) == [expected]


@pytest.mark.parametrize(
    ("text", "output", "expected"),
    [
        ("$.a[1].c", DATA, 0),
        ("$.a[1].c", json.dumps(DATA), 0),
        ("$..c", DATA, [0]),
        ("$", "[1]", [1]),
        (
            "$.t",
            "not JSON",
            "! the transform failed: the reply is not JSON, which $.t needs",
        ),
        ("$.no", DATA, "! the transform failed: $.no finds nothing in the reply"),
        ("jmespath: a[1].c", json.dumps(DATA), 0),
        ("jmespath:a[1].b", DATA, "! the transform failed: a[1].b finds nothing in the reply"),
        ("output.a[1].c", DATA, 0),
        ("output.a[1].b", DATA, "! the transform failed: output.a[1].b finds nothing in the reply"),
        (
            "output.t",
            '{"t": 1}',
            "! the transform failed: the reply is not JSON, which output.t needs",
        ),
    ],
)
def test_paths_are_evaluated_at_once(text: str, output: Any, expected: Any, tmp_path: Path) -> None:
    """They need no process and no engine."""
    transform = read_output_transform(text, FileContext(directory=tmp_path))
    assert isinstance(transform, ReplyQuery | MemberPath)
    assert outputs(tmp_path, (text, output)) == [expected]


def test_a_query_of_a_large_value_runs_in_a_process(tmp_path: Path) -> None:
    """The result is the same."""
    much = {"a": [{"b": "x" * 100, "n": n} for n in range(200)]}
    assert outputs(tmp_path, ("$.a[150].n", much), ("jmespath: a[-1].n", json.dumps(much))) == [
        150,
        199,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" ", "a transform must not be empty"),
        ("output.", '"output." is not JavaScript: SyntaxError'),
        ("const x =\nreturn x", "is not JavaScript: SyntaxError"),
        ("$..[", "$..[ is not a valid JSONPath"),
        ("jmespath: [", "jmespath: [ is not a valid JMESPath"),
        ("python: 1 +", '"1 +" is not Python: '),
        ("file://no.py", 'file not found: "no.py"'),
        ("file://t.py:nothing", 'function "nothing" not found in "t.py"'),
        ("file://bad.py", "not Python: "),
        ("file://bad.js", "is not JavaScript: SyntaxError"),
        ("file://t.txt", '"file://t.txt" is not code that can be run'),
        ("file://../t.py", '"../t.py" is outside'),
    ],
)
def test_invalid_code_of_a_transform_is_reported_before_the_run(
    text: str, message: str, tmp_path: Path
) -> None:
    """It would fail for every row."""
    (tmp_path / "t.py").write_text("def get_transform(output, context): ...\n")
    (tmp_path / "bad.py").write_text("def get_transform(:\n")
    (tmp_path / "bad.js").write_text("module.exports = (\n")
    with pytest.raises(MistakenError) as caught:
        read_output_transform(text, FileContext(directory=tmp_path))
    (part,) = caught.value.parts
    assert message in part.message


@pytest.mark.slow
@given(st.text(), st.text())
def test_a_script_returns_its_argument_unchanged(output: str, other: str) -> None:
    """This covers any contents of texts."""
    script = transform_script("output + context", ("output", "context"))
    if not any("\ud800" <= letter <= "\udfff" for letter in output + other):
        assert program.run(script.source, [output, other]) == {"value": output + other}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "function", "value"),
    [
        ("module.exports = () => 1", None, 1),
        ("exports.f = () => 2; exports.g = () => 3", "g", 3),
        ("exports.default = () => 4", None, 4),
        ("export default () => 5", "no", 5),
        ("export default async function f(output) { return output }", None, "x"),
        ("export async function f() { await 0; return {a: 1} }", "f", {"a": 1}),
        ("export async function f() { }", "f", None),
        ("export async function f() { await 0; throw new Error('no') }", "f", "Error: no"),
        ("exports.f = () => new Promise(() => {})", "f", "its promise is never settled"),
        ("exports.f = async () => { for (;;) await 0 }", "f", "it took longer than 2 seconds"),
        ("exports.f = async () => { await 0; for (;;); }", "f", "it took longer than 2 seconds"),
        ("let n = 5;\nexport let f = () => n;\n", "f", 5),
        ("module.exports = {}", None, "it exports no function"),
        ("module.exports = { toString: 1 }", "toString", "it exports no function"),
    ],
)
def test_a_module_exports_a_function(module: str, function: str | None, value: Any) -> None:
    """It is found by name, alone, or as default."""
    script = Script(module, ("output",), "module", function)
    assert script.fault() is None
    result = program.run(script.source, ["x"])
    assert result == {"value": value} or value in result["error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "function", "value"),
    [
        ("module.exports = () => 1", None, 1),
        ("exports.f = () => 2; exports.g = () => 3", "g", 3),
        ("module.exports = { default: { f: () => 4 } }", "f", 4),
        ("export default () => 5", "no", 'it exports no function "no"'),
        ("module.exports = () => 6; exports.f = 6", "f", 'it exports no function "f"'),
        ("module.exports = null", "f", 'it exports no function "f"'),
        ("module.exports = {}", None, "it exports no function"),
    ],
)
def test_a_named_function_must_exist(module: str, function: str | None, value: Any) -> None:
    """No other one is called in its place."""
    script = Script(module, ("output",), "module", function, must_exist=True)
    assert script.fault() is None
    result = program.run(script.source, ["x"])
    assert result == {"value": value} or value in result["error"]


@pytest.mark.parametrize(
    "code",
    [
        "return output.split(',').every(process => process.length > 0)",
        "const {process, id} = JSON.parse(output)\nreturn process.name",
        "const [process] = output.split(',')\nreturn process.length",
        "const api = { fetch(x) { return x } }\nreturn fetch.name",
        "function require(x) { return x }\nreturn require(1)",
        'return output.replace(/"/g, \'\').includes("process.env")',
        "return /it's/.test(output) && output.includes('fetch(')",
        "return /process.env/.test(output)",
    ],
)
def test_code_that_works_without_node_is_accepted(code: str) -> None:
    """It binds the name itself, or has it in a text or pattern."""
    assert Script(code, ("output",), "body").fault({"PATH": "/nowhere"}) is None


@pytest.mark.parametrize(
    ("code", "use"),
    [
        ("try { output.x({a: 1}) } catch (e) {}\nconst fs = require('fs')", "require in line 2"),
        ("if (output) {\n  return fetch('http://a')\n}", "fetch in line 2"),
        ("return output.length / 2 + process.env.X / 3", "process in line 1"),
        ("\nimport fs from 'fs'\nreturn 1", "import in line 2"),
        ("if (process && process.env) return 1", "process in line 1"),
        ("try { require('fs') } catch (e) { return 1 }", "require in line 1"),
        ("return `${new URL(output).host} URL`", "URL in line 1"),
        ("\nreturn typeof Buffer", "Buffer in line 2"),
        ("return (1234.5).toLocaleString() === output", "toLocaleString in line 1"),
        ("return output.split().sort((a, b) => a.localeCompare(b))", "localeCompare in line 1"),
    ],
)
def test_code_that_needs_node_is_refused_without_it(code: str, use: str) -> None:
    """The message has the line, and no call is made."""
    fault = Script(code, ("output",), "body").fault({"PATH": "/nowhere"})
    assert (fault or "").startswith(f'uses {use}, so it needs Node: program "node" not found')
