"""Suites whose parts are JavaScript or TypeScript, from the file to the rows, in real processes of Node."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from node_programs import NEEDS_NODE, NEEDS_TYPES, WITHOUT_NODE, write

from trioeval import load_suite
from trioeval.errors import SuiteError

pytestmark = [pytest.mark.slow, NEEDS_NODE]  # processes


def run(
    folder: Path, suite: str, *flags: str, code: int = 0, environ: Mapping[str, str] = {}
) -> None:
    """Run a suite as a user does."""
    command = [sys.executable, "-m", "trioeval", "run", suite, "--db", "runs.db", *flags]
    env = {**os.environ, **environ}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr


def rows_of(
    folder: Path, suite: str = "suite.yaml", *flags: str, code: int = 0
) -> list[dict[str, Any]]:
    """Run a suite, and return its rows."""
    run(folder, suite, "-o", "out.json", *flags, code=code)
    rows: list[dict[str, Any]] = json.loads((folder / "out.json").read_text())["results"]["results"]
    return rows


def outputs(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["response"]["output"] for row in rows]


def problems(folder: Path, name: str = "suite.yaml", **environ: str) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        load_suite(folder / name, environ={**os.environ, **environ})
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_prompts_tests_and_variables_are_made_by_files(tmp_path: Path) -> None:
    """A variable is the output of its file's function, never its source."""
    write(
        tmp_path,
        suite_yaml="""
providers: [echo]
prompts: [file://prompts.js:chat, file://prompts.js, 'v={{v}}']
tests: [file://gen.mjs:make, {path: gen.mjs, config: {x: 3}}]
""",
        prompts_js="""
const fs = require('fs');
module.exports = async ({ vars, provider, config }) => `${vars.x} ${provider.id}`;
module.exports.chat = ({ vars }) => [{ role: 'user', content: `chat ${vars.v}` }];
""",
        gen_mjs="""
import fs from 'node:fs';
console.log('noise');
const test = (x) => ({ vars: { x, v: 'file://v.js' }, metadata: { there: fs.existsSync('v.js') } });
export const make = async () => [test(1)];
export default ({ x }) => [test(x)];
""",
        v_js="""
const path = require('path');
module.exports = (name, prompt, vars, provider) => ({ output: path.join(name, `${vars.x}`, provider.id) });
""",
    )
    first, second = (json.dumps([{"role": "user", "content": f"chat v/{x}/echo"}]) for x in (1, 3))
    found = outputs(rows_of(tmp_path))
    assert [json.loads(text) for text in (found[0], found[3])] == [
        *map(json.loads, (first, second))
    ]
    assert [*found[1:3], *found[4:]] == ["1 echo", "v=v/1/echo", "3 echo", "v=v/3/echo"]


def test_a_prompt_function_that_does_not_exist_is_an_error_of_its_rows(tmp_path: Path) -> None:
    """Another function of the file would make other prompts than the suite names."""
    write(
        tmp_path,
        suite_yaml="""
providers: [echo]
prompts: [file://prompts.js:chta, file://nothing.js]
""",
        prompts_js="module.exports = () => 'other'; module.exports.chat = () => 'chat';",
        nothing_js="",
    )
    errors = [row["error"] for row in rows_of(tmp_path, code=100)]
    assert errors[0] == 'prompts.js:chta: TypeError: it exports no function "chta"'
    assert errors[1] == "nothing.js: TypeError: it exports no function"


def test_a_variable_whose_function_fails_is_an_error_of_its_row(tmp_path: Path) -> None:
    """The error that it returns is shown, and so is an exception with its line."""
    write(
        tmp_path,
        suite_yaml="""
providers: [echo]
prompts: ['{{v}}']
tests: [{vars: {v: file://error.js}}, {vars: {v: file://throws.js}}, {vars: {v: file://nothing.js}}]
""",
        error_js="const fs = require('fs'); module.exports = () => ({ error: 'not today' });",
        throws_js="const fs = require('fs');\nmodule.exports = () => {\n  fs.no();\n};",
        nothing_js="const fs = require('fs'); module.exports = () => ({});",
    )
    errors = [row["error"] for row in rows_of(tmp_path, code=100)]
    assert "the function of file://error.js returned an error: not today" in errors[0]
    assert "TypeError: fs.no is not a function (line 3)" in errors[1]
    assert 'the function of file://nothing.js must return {"output": a value}' in errors[2]


def test_code_of_assertions_and_transforms_uses_node(tmp_path: Path) -> None:
    """Inline code has `require` and `process.mainModule.require`; files are loaded by Node itself."""
    write(
        tmp_path,
        lib_js="exports.size = (text) => Buffer.from(text).length;",
        checks_js="""
const { size } = require('./lib.js');
module.exports = (output, context) => ({ pass: size(output) > 2, score: 0.5, reason: context.vars.x });
exports.named = 5;
module.exports.named = async (output) => size(output) === 5;
""",
        transform_mjs="import { EOL } from 'node:os';\nexport default (output) => output + EOL.length;",
        score_cjs="const os = require('os'); module.exports = (scores) => "
        "({ pass: true, score: scores.m, reason: os.EOL });",
        suite_yaml=r"""
providers: [echo]
prompts: ['{{x}}']
defaultTest: {vars: {x: abc}}
tests:
  - assert:
      - {type: javascript, value: file://checks.js}
      - {type: javascript, value: "process.mainModule.require('path').sep === '/'"}
      - {type: javascript, value: "require('./lib.js').size(output) === 3"}
      - {type: javascript, value: "const u = new URL('http://h/p')\nreturn u.host === 'h'"}
      - {type: javascript, value: "(async () => (await import('node:os')).EOL === '\\n')()"}
  - vars: {x: abcde}
    assert: [{type: javascript, value: "file://checks.js:named"}]
  - options: {transform: "file://transform.mjs"}
    assert: [{type: equals, value: abc1}]
  - options: {transform: "Buffer.from(output).toString('hex')"}
    assert: [{type: equals, value: "616263"}]
  - assertScoringFunction: file://score.cjs
    assert: [{type: javascript, value: "0.25", metric: m}]
""",
    )
    rows = rows_of(tmp_path)
    assert [row["success"] for row in rows] == [True] * 5
    assert rows[0]["gradingResult"]["componentResults"][0]["reason"] == "abc"
    assert rows[4]["score"] == 0.25


def test_hooks_keep_their_state_and_change_rows(tmp_path: Path) -> None:
    """They are called in one process during the run, in every form."""
    write(
        tmp_path,
        suite_yaml="""
providers: [echo]
prompts: ['{{x}}']
tests: [{vars: {x: a}}, {vars: {x: b}}]
evaluateOptions: {maxConcurrency: 1}
extensions: [file://hooks.mjs:beforeEach, file://hooks.mjs:beforeAll, file://all.js]
""",
        hooks_mjs="""
let calls = 0;
export const beforeEach = (context, { hookName }) => {
  calls += 1;
  context.test.vars.x += `-${hookName}-${calls}`;
  return context;
};
export const beforeAll = (context) => {
  context.suite.tests.push({ vars: { x: 'c' } });
  return context;
};
""",
        all_js="module.exports = (hook, context) => "
        "require('fs').appendFileSync('log', `${hook} ${Object.keys(context)}\\n`);",
    )
    found = outputs(rows_of(tmp_path))
    assert [text[:13] for text in found] == ["a-beforeEach-", "b-beforeEach-", "c-beforeEach-"]
    assert sorted(text[13:] for text in found) == ["1", "2", "3"]
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[0] == "beforeAll suite"
    assert sorted(set(lines[1:])) == [
        "afterAll suite,results,prompts,evalId",
        "afterEach test,result",
        "beforeEach test",
    ]


def test_functions_of_a_config_are_called(tmp_path: Path) -> None:
    """A default export that is data is the value itself; a part of a request is called for each."""
    write(
        tmp_path,
        made_js="const os = require('os'); exports.tools = async () => [{ eol: os.EOL }]; exports.level = 3;",
        data_mjs="export default { a: 1 };",
        suite_json=json.dumps(
            {
                "providers": [
                    {
                        "id": "python:p.py",
                        "config": {
                            "tools": "file://made.js:tools",
                            "deep": ["file://data.mjs", {"level": "file://made.js:level"}],
                        },
                    }
                ],
            }
        ),
    )
    (provider,) = load_suite(tmp_path / "suite.json").providers
    assert provider.config == {"tools": [{"eol": "\n"}], "deep": [{"a": 1}, {"level": 3}]}
    # A function inside of a suite in JavaScript is called later, with arguments.
    write(
        tmp_path,
        own_js="module.exports = { prompts: ['x'], providers: [{ id: 'https://h.example', config: "
        "{ body: '{{prompt}}', transformResponse: (json) => json.a } }] };",
    )
    (provider,) = load_suite(tmp_path / "own.js").providers
    assert (
        provider.config["transformResponse"] == "file://own.js:providers.0.config.transformResponse"
    )
    (tmp_path / "made.js").write_text("exports.tools = () => {\n  throw new Error('no tools');\n}")
    (found, _) = problems(tmp_path, "suite.json")
    assert 'config.tools: tools of "made.js" failed: Error: no tools (line 2)' in found


@NEEDS_TYPES
def test_a_suite_in_typescript_may_contain_functions(tmp_path: Path) -> None:
    """They are called where they are: as providers, prompts and assertions."""
    write(
        tmp_path,
        promptfooconfig_ts="""
import type { UnifiedConfig } from 'promptfoo';
class Own {
  constructor(private end: string) {}
  async callApi(prompt: string) { return { output: prompt + this.end }; }
}
const judge = (output: string) => ({ pass: output.includes('1'), score: 1, reason: 'fn' });
const config: UnifiedConfig = {
  providers: ['echo', async (prompt: string) => ({ output: prompt + '!' }), new Own('?')],
  prompts: ['Say {{x}} {{env.WHAT}}', ({ vars }) => `made ${vars.x}`],
  tests: [{
    vars: { x: 1 },
    assert: [{ type: 'javascript', value: judge }],
  }],
};
export default config;
""",
    )
    rows = rows_of(tmp_path, "promptfooconfig.ts", code=0)
    assert outputs(rows) == ["Say 1 ", "made 1", "Say 1 !", "made 1!", "Say 1 ?", "made 1?"]
    reasons = [row["gradingResult"]["componentResults"][0]["reason"] for row in rows]
    assert reasons == ["fn"] * 6


def test_a_suite_in_javascript_is_a_document(tmp_path: Path) -> None:
    """Its mistakes have the file and the path; a function may make it."""
    write(
        tmp_path,
        a_cjs="module.exports = async () => ({ providers: ['echo'], prompts: ['x'], promts: 1, tests: 5 });",
        b_mjs="export default { providers: ['echo'], prompts: [{ 'a b': () => 1 }] };",
        c_js="module.exports = {\n  providers: [echo],\n};",
        d_js="module.exports = 5;",
    )
    assert problems(tmp_path, "a.cjs")[0].startswith("a.cjs: $.")
    (unusual,) = problems(tmp_path, "b.mjs")
    assert "$.prompts.0.a b is a function under an unusual key" in unusual
    (failed,) = problems(tmp_path, "c.js")
    assert "its default export failed: ReferenceError: echo is not defined (line 2)" in failed
    (number,) = problems(tmp_path, "d.js")
    assert "must be an object" in number


def test_tests_may_contain_functions_if_they_are_an_export(tmp_path: Path) -> None:
    """Those that a function makes exist nowhere else, and are refused."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/all.js").write_text(
        "exports.all = [{ assert: [{ type: 'javascript', value: (output) => output === 'x' }] }];"
        "exports.make = () => exports.all;"
    )
    write(
        tmp_path,
        suite_yaml="providers: [echo]\nprompts: [x, y]\ntests: file://sub/all.js:all\n",
        made_yaml="providers: [echo]\nprompts: [x]\ntests: file://sub/all.js:make\n",
    )
    assert [row["success"] for row in rows_of(tmp_path, code=100)] == [True, False]
    (found,) = problems(tmp_path, "made.yaml")
    assert "$.0.assert.0.value is a function, which the result of a function must not" in found


def test_everything_that_needs_node_is_refused_at_once_without_it(tmp_path: Path) -> None:
    """Each problem has its place, and nothing is paid."""
    write(
        tmp_path,
        suite_yaml="""providers: [file://p.js, ./p.ts, {id: 'python:x.py', config: {a: "file://p.js:f"}}]
prompts: [file://p.js]
tests:
  - file://p.js
  - vars: {v: file://v.js, plain: file://plain.js}
    assert:
      - {type: javascript, value: "new URL(output)"}
      - {type: javascript, value: file://v.js}
      - {type: javascript, value: output.length}
extensions: [file://p.js:beforeEach]
""",
        p_js="module.exports = 1;",
        p_ts="",
        v_js="require('fs')",
        plain_js="module.exports = () => ({ output: 'x' })",
    )
    found = problems(tmp_path, **WITHOUT_NODE)
    assert [
        line.partition(": ")[2].partition(", so it needs Node: program")[0] for line in found
    ] == [
        '$.providers[0]: "p.js" is a provider',
        '$.providers[1]: "p.ts" is a provider',
        '$.providers[2].config.a: "p.js" makes a part of a config',
        '$.prompts[0]: "p.js" is a prompt function',
        '$.tests[0]: "p.js" makes tests',
        '$.tests[1].vars.v: "v.js" uses require in line 1',
        '$.tests[1].assert[0].value: "new URL(output)" uses URL in line 1',
        '$.tests[1].assert[1].value: "v.js" uses require in line 1',
        '$.extensions[0]: "p.js" is an extension',
    ]


def test_code_that_needs_nothing_of_node_runs_without_it(tmp_path: Path) -> None:
    """It runs in QuickJS, whether Node is installed or not."""
    write(
        tmp_path,
        suite_yaml="""
providers: [echo]
prompts: ['{{v}}']
tests:
  - vars: {v: file://v.js}
    assert: [{type: javascript, value: file://check.mjs}, {type: javascript, value: output.length > 3}]
    options: {transform: "output + typeof globalThis.process"}
""",
        v_js="module.exports = (name) => ({ output: name + 'alue' });",
        check_mjs="export default (output) => output === 'valueundefined';",
    )
    for environ in ({}, WITHOUT_NODE):
        run(tmp_path, "suite.yaml", environ=environ)


def test_an_untrusted_suite_starts_no_node(tmp_path: Path) -> None:
    """Every kind of file is refused before it is read by Node."""
    write(
        tmp_path,
        node="#!/bin/sh\ntouch started\n",
        suite_yaml="providers: [p.js]\nprompts: [file://p.js]\ntests: file://p.js\n"
        "extensions: [file://p.js]\nassertionTypes: {}\n",
        p_js="module.exports = 1;",
    )
    (tmp_path / "node").chmod(0o755)
    for name in ("suite.yaml", "p.js"):
        with pytest.raises(SuiteError, match="is code, and an untrusted suite runs none"):
            load_suite(
                tmp_path / name, environ={"TRIOEVAL_NODE": str(tmp_path / "node")}, trusted=False
            )
    assert not (tmp_path / "started").exists()


def test_a_plan_runs_no_code_but_the_suite_file(tmp_path: Path) -> None:
    """Tests that only a run can make are listed as unknown."""
    write(
        tmp_path,
        suite_js="module.exports = { providers: ['echo'], prompts: ['x'], tests: ['file://gen.js'] };",
        gen_js="require('fs').writeFileSync('ran', ''); module.exports = [];",
    )
    suite = load_suite(tmp_path / "suite.js", plans=True)
    assert suite.unknown == ('the tests that its default export of "gen.js" makes',)
    assert not (tmp_path / "ran").exists()


def test_a_statement_on_one_line_fails_its_rows_as_in_promptfoo(tmp_path: Path) -> None:
    """`return return x` is not JavaScript; the suite loads, with a warning for each such code."""
    write(
        tmp_path,
        suite_yaml=r"""
providers: [echo]
prompts: [abc]
tests:
  - assert: [{type: javascript, value: "return output === 'abc'"}]
  - assert: [{type: not-javascript, value: "throw new Error('x')"}]
  - options: {transform: "return output + '!'"}
  - options: {transform: "return output + '!'\n"}
    assert: [{type: equals, value: "abc!"}]
""",
    )
    warnings = [str(one) for one in load_suite(tmp_path / "suite.yaml").warnings]
    assert len(warnings) == 2
    assert "suite.yaml:5:40: $.tests[0].assert[0].value" in warnings[0]
    assert "is a statement on one line, where JavaScript is an expression" in warnings[0]
    rows = rows_of(tmp_path, code=100)
    assert [row["success"] for row in rows] == [False, False, False, True]
    assert "SyntaxError" in rows[0]["gradingResult"]["reason"]
    assert "SyntaxError" in rows[2]["error"]
