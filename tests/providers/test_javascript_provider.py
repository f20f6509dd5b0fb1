"""Providers in JavaScript and TypeScript, in real processes of Node."""

import os
import signal
import stat
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
import trio
from node_programs import NEEDS_NODE, NEEDS_TYPES, WITHOUT_NODE, write
from program_runs import NothingShared, ask, carriers, context, is_alive, run, wait_gone

from trioeval.errors import Fault, ProviderError
from trioeval.providers import Reply, Request
from trioeval.providers.programs.javascript import JavaScriptSettings, read
from trioeval.providers.programs.workers import open_workers

pytestmark = [pytest.mark.slow, NEEDS_NODE]  # processes

CLASS = """
const path = require('path');
console.log('noise when loaded');
let calls = 0;
module.exports = class {
  constructor(options) { this.options = options; this.own = 0; }
  id() { return 'mine'; }
  async callApi(prompt, context, more) {
    console.log('noise', prompt); process.stdout.write('{"id": 1}');
    calls += 1; this.own += 1;
    context.logger.debug('logged');
    const seen = { calls, own: this.own, pid: process.pid, vars: context.vars, ...this.options, more };
    const metadata = { name: path.basename(__filename) };
    return { output: seen, tokenUsage: { total: 3 }, cost: 0.5, metadata };
  }
};
"""
EVAL = "module.exports = async (prompt) => eval(prompt);"


def settings(
    folder: Path, named: str, environ: dict[str, str] | None = None, **config: Any
) -> JavaScriptSettings:
    found = read("javascript", named, config, context(folder, **(environ or {})))
    assert isinstance(found, JavaScriptSettings), found
    return found


def faults(
    folder: Path, named: str, environ: dict[str, str] | None = None, **config: Any
) -> list[str]:
    found = read("javascript", named, config, context(folder, **(environ or {})))
    assert isinstance(found, list)
    return [str(problem) for problem in found]


def asked(folder: Path, named: str, *prompts: str, **config: Any) -> list[Reply | ProviderError]:
    """Return the replies of one provider to several prompts, one after another."""

    async def main() -> list[Reply | ProviderError]:
        replies: list[Reply | ProviderError] = []
        async with settings(folder, named, **config).open(NothingShared()) as provider:
            for prompt in prompts:
                try:
                    replies.append(await provider(Request(prompt=prompt, vars={"x": 1})))
                except ProviderError as error:
                    replies.append(error)
        return replies

    return run(main)


def outputs(replies: list[Reply | ProviderError]) -> list[Any]:
    return [reply.output if isinstance(reply, Reply) else str(reply) for reply in replies]


def test_a_class_is_created_once_and_called(tmp_path: Path) -> None:
    """It keeps its state, and gets its config; what it prints does not disturb a reply."""
    write(tmp_path, mine_js=CLASS)
    first, second = asked(tmp_path, "mine.js", "a", "b", style="dry", timeoutMs=50_000)
    assert isinstance(first, Reply)
    assert isinstance(second, Reply)
    seen = first.output
    assert {key: seen[key] for key in ("calls", "own", "vars", "id", "config", "more")} == {
        "calls": 1,
        "own": 1,
        "vars": {"x": 1},
        "id": "file://mine.js",
        "config": {"style": "dry", "timeoutMs": 50_000},
        "more": {},
    }
    assert (second.output["own"], second.output["pid"]) == (2, seen["pid"])
    assert (first.usage.total, first.cost, first.metadata["name"]) == (3, 0.5, "mine.js")


@pytest.mark.parametrize(
    ("name", "code", "output"),
    [
        ("a.mjs", "export default async (prompt, { vars }) => `${prompt}${vars.x}`", "p1"),
        ("a.cjs", "module.exports = (prompt) => ({ output: Buffer.from(prompt).length })", 1),
        ("a.js", "export default class { async callApi(p) { return { output: p } } }", "p"),
        ("a.js", "module.exports = { callApi: async (p) => ({ output: p }) }", "p"),
        ("a.js", "function P() {} P.prototype.callApi = async (p) => p; module.exports = P;", "p"),
        ("a.js:named", "exports.named = class { async callApi(p) { return p } }", "p"),
        ("a.js:deep.0", "exports.deep = [(p) => p]", "p"),
        (
            "a.js",
            "module.exports = class { callEmbeddingApi(p) { return { embedding: [p.length, 2] } } }",
            [1, 2],
        ),
        (
            "a.js",
            "module.exports = class { callEmbeddingApi() { return 1 } callApi(p) { return p } }",
            "p",
        ),
    ],
)
def test_every_form_of_a_provider_is_called(
    tmp_path: Path, name: str, code: str, output: Any
) -> None:
    """Classes, objects and functions, as ES modules and as CommonJS."""
    (tmp_path / name.partition(":")[0]).write_text(code)
    assert outputs(asked(tmp_path, name, "p")) == [output]


def test_an_export_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """It is not the default export that is missing."""
    write(tmp_path, a_js="exports.default = (p) => p; exports.five = 5; // another")
    (missing,) = outputs(asked(tmp_path, "a.js:another", "p"))
    assert 'it exports no "another"' in missing
    (number,) = outputs(asked(tmp_path, "a.js:five", "p"))
    assert 'its export "five" is neither a class with callApi nor a function' in number


@pytest.mark.parametrize(
    ("name", "code", "fault"),
    [
        (
            "a.js:aks",
            "exports.ask = (p) => p; exports.other = 1",
            'exports no "aks"; it exports ask, other',
        ),
        ("a.mjs:aks", "export async function ask(p) {}", 'exports no "aks"; it exports ask'),
        (
            "a.js",
            "exports.ask = (p) => p; exports.other = 1",
            "has no default export; it exports ask, other",
        ),
        ("a.js", "const ask = (p) => p;", "has no default export; it exports nothing"),
        ("a.js", "exports.callApi = (p) => p", None),
        ("a.js:aks", "for (const name of NAMES) exports[name] = 1", None),
        ("a.js:aks", "module.exports = require('./b')", None),
        ("a.mjs:aks", "export * from './b.mjs'", None),
        ("a.js:deep.0", "exports.deep = []", None),
    ],
)
def test_an_export_that_cannot_exist_is_found_before_the_run(
    tmp_path: Path, name: str, code: str, fault: str | None
) -> None:
    """The file is not run; where its code leaves the exports open, the run decides."""
    file = tmp_path / name.partition(":")[0]
    file.write_text(code)
    found = read("javascript", name, {}, context(tmp_path))
    wanted = [] if fault is None else [f'.id: "{file}" {fault}']
    assert ([str(one) for one in found] if isinstance(found, list) else []) == wanted


def test_objects_that_refer_to_themselves_are_cut_off(tmp_path: Path) -> None:
    """The rest of the reply is kept, and so is an object that occurs twice."""
    code = """
    module.exports = (p) => {
      const timer = { name: 'timer', list: [] };
      timer.list.push(timer);
      const twice = { n: 1 };
      return { output: p, metadata: { timer, a: twice, b: twice } };
    };"""
    write(tmp_path, a_js=code)
    (reply,) = asked(tmp_path, "a.js", "p")
    assert isinstance(reply, Reply)
    assert reply.output == "p"
    kept = {"timer": {"name": "timer", "list": ["[Circular]"]}, "a": {"n": 1}, "b": {"n": 1}}
    assert reply.metadata == kept


def test_common_js_runs_in_a_package_of_modules(tmp_path: Path) -> None:
    """The original falls back to it as well."""
    (tmp_path / "package.json").write_text('{"type": "module"}')
    write(tmp_path, a_js="const os = require('os'); module.exports = (p) => os.EOL + p;")
    assert outputs(asked(tmp_path, "a.js", "p")) == ["\np"]


@NEEDS_TYPES
def test_types_are_removed_and_files_without_suffix_are_found(tmp_path: Path) -> None:
    """An enum and a parameter property are more than types; imports that only types use are left out."""
    write(
        tmp_path,
        a_ts="""
        import { shout } from './lib/shout';
        import type { Options } from 'not-installed';
        import { Settings, Other as Another } from './lib/shout';
        import absent, { Missing } from 'not-installed';
        enum Kind { One = 'one' }
        export default class P {
          constructor(private options: Options | Settings | Another<Missing>) {}
          async callApi(prompt: string): Promise<{ output: string }> {
            return { output: shout(prompt) + Kind.One + this.options.config.x };
          }
        }""",
    )
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/shout.ts").write_text("export const shout = (a: string) => a.toUpperCase();")
    assert outputs(asked(tmp_path, "a.ts", "p", x="!")) == ["Pone!"]


def test_an_exception_has_its_file_and_line(tmp_path: Path) -> None:
    """The next call is served by the same process."""
    write(
        tmp_path,
        a_js="let n = 0;\nmodule.exports = (p) => {\n  n += 1;\n  if (p === 'x') p.y.z();\n  return n;\n};",
    )
    (error, reply) = asked(tmp_path, "a.js", "x", "y")
    assert isinstance(error, ProviderError)
    assert str(error).startswith("unexpected: a.js: TypeError: Cannot read properties of undefined")
    assert str(error).endswith("(line 4)")
    assert "a.js:4:" in (error.body_excerpt or "")
    assert "worker.mjs" not in (error.body_excerpt or "")
    assert error.fault is not Fault.FATAL
    assert isinstance(reply, ProviderError)  # a number is not a reply
    assert str(reply).endswith(
        'a.js must return an object with "output" or "error", or text, got int: 2'
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "require('no-such-package'); module.exports = () => 1",
            "Cannot find module 'no-such-package'",
        ),
        ("throw new Error('at\\n once'); module.exports = 1", "Error: at once (line 1)"),
        ("throw 'text'; module.exports = 1", "it throws text"),
        ("module.exports = 5", "its default export is neither a class with callApi nor a function"),
    ],
)
def test_a_file_that_cannot_be_used_is_fatal(tmp_path: Path, code: str, message: str) -> None:
    """No later call would succeed either."""
    write(tmp_path, a_js=code)
    (error,) = asked(tmp_path, "a.js", "x")
    assert isinstance(error, ProviderError)
    assert message in str(error)
    assert error.fault is Fault.FATAL


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (
            "({output: 1n})",
            "a.js: TypeError: the result must be JSON: Do not know how to serialize a BigInt",
        ),
        ("({error: 'its own'})", "unexpected: a.js: its own"),
        ("undefined", 'must return an object with "output" or "error", or text'),
        ("'x'.repeat(2000)", "more than the maximum of 1000 (maxResponseBytes)"),
        ("process.exit(3)", "worker_crashed: a.js: the worker ended with exit code 3"),
        (
            "setTimeout(() => { throw new Error('late') }); new Promise(() => {})",
            "exit code 1: Error: late",
        ),
    ],
)
def test_a_call_without_a_usable_result_fails_alone(
    tmp_path: Path, prompt: str, message: str
) -> None:
    """The call after it has a reply."""
    write(tmp_path, a_js=EVAL)
    error, reply = asked(tmp_path, "a.js", prompt, "'fine'", maxResponseBytes=1000)
    assert message in str(error)
    assert isinstance(reply, Reply)
    assert reply.output == "fine"


@pytest.mark.parametrize("code", ["while (true) {}", "await new Promise(() => {})"])
def test_a_call_that_takes_too_long_ends_its_process_and_children(
    tmp_path: Path, code: str
) -> None:
    """PR-27: an endless loop with a child in another session is ended, and the next call served."""
    mark = uuid.uuid4().hex
    start = (
        "require('child_process').spawn('sleep', ['1000'], { detached: true, stdio: 'ignore' });"
    )
    write(
        tmp_path,
        a_js=f"module.exports = async (p) => {{ if (p === 'x') {{ {start} {code} }} return p; }};",
    )
    found = settings(tmp_path, "a.js", {"FAMILY": mark}, timeoutMs=1500)

    async def main() -> tuple[str, list[int], Any]:
        async with found.open(NothingShared()) as provider:
            with pytest.raises(ProviderError) as caught:
                await provider(Request(prompt="x"))
            left = carriers(mark)
            reply = await provider(Request(prompt="y"))
        return str(caught.value), left, reply.output

    message, left, output = run(main)
    assert message == "attempt_timeout: a.js did not answer within 1.5 seconds (timeoutMs)"
    assert (left, output) == ([], "y")
    assert carriers(mark) == []


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    """The end is noticed at once."""
    write(tmp_path, a_js=EVAL)
    error, reply = asked(
        tmp_path, "a.js", "process.kill(process.pid, 'SIGKILL'); new Promise(() => {})", "'b'"
    )
    assert str(error) == "worker_crashed: a.js: the worker was ended by SIGKILL"
    assert isinstance(reply, Reply)


def test_a_cancelled_call_ends_its_worker(tmp_path: Path) -> None:
    """Nothing of it is left when the block ends."""
    os.mkfifo(tmp_path / "pid")
    write(
        tmp_path,
        a_js="""module.exports = () => {
          require('fs').writeFileSync('pid', `${process.pid}`);
          while (true) {}
        };""",
    )

    async def main() -> int:
        async with (
            settings(tmp_path, "a.js").open(NothingShared()) as provider,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(provider, Request(prompt="x"))
            pid = int(await trio.to_thread.run_sync((tmp_path / "pid").read_text))
            nursery.cancel_scope.cancel()
        return pid

    assert not is_alive(run(main))


HOST = """
import os, sys
from pathlib import Path
import trio
from trioeval.providers.programs.workers import WorkerSpec, open_workers

async def main():
    folder = Path(sys.argv[1])
    spec = WorkerSpec.in_node("a", folder / "a.js", "provider:", folder, os.environ)
    async with open_workers(spec) as workers:
        await workers.call(["x", {}, {}], 60)

trio.run(main)
"""


def test_a_busy_worker_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """It notices that by itself, with its children, even if its code never returns."""
    os.mkfifo(tmp_path / "pids")
    write(
        tmp_path,
        a_js="""module.exports = () => {
          const child = require('child_process').spawn('sleep', ['1000'], { stdio: 'ignore' });
          require('fs').writeFileSync('pids', `${process.pid} ${child.pid}`);
          while (true) {}
        };""",
    )
    with subprocess.Popen([sys.executable, "-c", HOST, tmp_path]) as host:
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert len(pids) == 2
        host.kill()
    assert all(wait_gone(pid, 20) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    """Two signals end a run at once."""
    mark = uuid.uuid4().hex
    os.mkfifo(tmp_path / "ready")
    write(
        tmp_path,
        a_js="module.exports = () => { require('fs').writeFileSync('ready', 'x'); while (true) {} };",
        suite_yaml="providers: [file://a.js]\nprompts: [x]\n",
    )
    command = [sys.executable, "-m", "trioeval", "run", "suite.yaml", "--db", "runs.db"]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "FAMILY": mark}, stderr=subprocess.PIPE, text=True
    ) as process:
        (tmp_path / "ready").read_text()
        process.send_signal(number)
        assert process.stderr is not None
        while "again" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(number)
        process.communicate(timeout=60)
    assert carriers(mark) == []


def test_workers_run_at_once_if_the_config_says_so(tmp_path: Path) -> None:
    """Each has its own object."""
    write(tmp_path, mine_js=CLASS)

    async def main() -> set[int]:
        pids = set[int]()
        both = trio.Event()

        async def one() -> None:
            reply = await ask_one(Request(prompt="x"))
            pids.add(reply.output["pid"])
            both.set()

        async with open_workers(settings(tmp_path, "mine.js", workers=2).workers) as workers:

            async def ask_one(request: Request) -> Reply:
                value = await workers.call([request.prompt, {"vars": {}}, {}], 60)
                return Reply(output=value["output"])

            async with trio.open_nursery() as nursery:
                nursery.start_soon(one)
                nursery.start_soon(one)
        return pids

    assert len(run(main)) == 2


def test_secrets_of_the_config_are_hidden(tmp_path: Path) -> None:
    """They are known as secrets by their names, as for Python."""
    write(tmp_path, a_js=EVAL)
    found = settings(tmp_path, "a.js", {"HF_TOKEN": "hf_0123456789"}, server={"apiKey": "sk-1"})
    assert {"sk-1", "hf_0123456789"} <= {*found.secrets}
    assert "sk-1" not in repr(found)
    reply = run(lambda: ask(found, "process.env.HF_TOKEN"))
    assert reply.output == "hf_0123456789"


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("none.js", '.id: file "HERE/none.js" not found'),
        ("../a.js", '.id: "../a.js" is outside'),
        (
            "bad.js",
            ".id: \"HERE/bad.js\" is not JavaScript: SyntaxError: Unexpected token ';' (line 2)",
        ),
        (
            "bad.mjs",
            ".id: \"HERE/bad.mjs\" is not JavaScript: SyntaxError: Unexpected token ';' (line 2)",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, named: str, expected: str) -> None:
    """A syntax error is found without running the file."""
    bad = "require('fs').writeFileSync('ran', '')\nconst a = ;\n"
    write(tmp_path, bad_js=bad, bad_mjs=f"import fs from 'fs'; {bad}export default 1\n")
    (found,) = faults(tmp_path, named)
    assert found.replace(str(tmp_path), "HERE").startswith(expected)
    assert not (tmp_path / "ran").exists()


@NEEDS_TYPES
def test_a_syntax_error_in_typescript_has_its_line(tmp_path: Path) -> None:
    """It is found without running the file."""
    write(tmp_path, bad_ts="export const a: number = 1;\nconst b: = 2;\n")
    (found,) = faults(tmp_path, "bad.ts")
    assert "is not TypeScript: SyntaxError: " in found
    assert found.endswith("(line 2)")


def test_unknown_values_of_the_config_are_refused(tmp_path: Path) -> None:
    write(tmp_path, a_js=EVAL)
    assert faults(tmp_path, "a.js", workers=0, timeoutms=5) == [
        '.config.timeoutms: "timeoutms" is not a key\n  did you mean "timeoutMs"?',
        ".config.workers: must be a whole number from 1 to 64, got 0",
    ]


def test_a_missing_node_is_named(tmp_path: Path) -> None:
    """Also one that is named but does not exist, or is something else."""
    write(tmp_path, a_js=EVAL)
    (missing,) = faults(tmp_path, "a.js", WITHOUT_NODE)
    assert missing.endswith(
        'is a provider, so it needs Node: program "node" not found in PATH; '
        "install it, or set TRIOEVAL_NODE to its path"
    )
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho 1\n")
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    for path, message in (
        ("/no/node", 'program "/no/node" not found'),
        (str(other), "is not Node"),
    ):
        (found,) = faults(tmp_path, "a.js", {"TRIOEVAL_NODE": path})
        assert message in found


def test_an_old_node_is_named_with_the_version_that_is_needed(tmp_path: Path) -> None:
    """Files without types run in it."""
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\necho 20.1.0 --disable-warning\n")
    old.chmod(old.stat().st_mode | stat.S_IXUSR)
    write(tmp_path, a_ts="export default () => 1")
    (found,) = faults(tmp_path, "a.ts", {"TRIOEVAL_NODE": str(old)})
    assert "is TypeScript, which Node runs from version 22.6 on, but " in found
    assert "old is version 20.1.0; install a newer one" in found
