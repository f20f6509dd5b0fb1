"""Code in an untrusted suite: refused when it is loaded, and at every later point."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import MistakenError
from trioeval.documents.trust import CODE_PREFIXES, Trust
from trioeval.errors import GradingError, ScriptError, SuiteError, UsageError
from trioeval.evaluation.judge_services import SuiteCommands
from trioeval.evaluation.scripts import open_scripts
from trioeval.grading import KINDS
from trioeval.grading.kind import ExternalJudge
from trioeval.loading.load import load_suite, parse_suite
from trioeval.providers.resolve import CODE, LOCAL, MODULES
from trioeval.run import prepare, run_suite
from trioeval.scripting.javascript import Script
from trioeval.suite.model import Suite
from trioeval.suite.sources.code import call_function, load_filters

pytestmark = pytest.mark.attack("code of an untrusted suite")

REFUSED = "is code, and an untrusted suite runs none"
UNTRUSTED = Trust(trusted=False)
PLAIN: Mapping[str, Any] = {
    "providers": ["echo"],
    "prompts": ["{{x}}"],
    "tests": [{"vars": {"x": "1"}}],
}
PROGRAM = "def f(*a):\n    return {}\n\n\ndef generate_tests(*a):\n    return []\n"


def judged(**assertion: Any) -> dict[str, Any]:
    return {"tests": [{"vars": {"x": "1"}, "assert": [assertion]}]}


def optioned(**options: Any) -> dict[str, Any]:
    return {"tests": [{"vars": {"x": "1"}, "options": options}]}


def http(**config: Any) -> dict[str, Any]:
    return {"providers": [{"id": "https://api.example/v1", "config": config}]}


def socket(**config: Any) -> dict[str, Any]:
    config["messageTemplate"] = "{{prompt}}"
    return {"providers": [{"id": "wss://api.example/v1", "config": config}]}


def task(kind: str, **keys: Any) -> dict[str, Any]:
    return {"prompts": None, "tests": None, "tasks": [{"id": "t", "type": kind, **keys}]}


def columns(*entries: Mapping[str, Any], **keys: Any) -> dict[str, Any]:
    return task("columns", rows=2, columns=list(entries), **keys)


KINDS_THAT_RUN = {
    name: judged(type=name, value="true") for name, kind in KINDS.items() if kind.runs_code
}
PREFIXES = {
    f"{prefix}:": {"providers": [f"{prefix}:code.py"]} for prefix in sorted({*CODE, "file"})
}
CODE_IN_OPTIONS = (
    ("transform", "output.trim()"),
    ("transform", "file://code.py:f"),
    ("transform", "python: output"),
    ("transformVars", "return {x: 1}"),
    ("temperature", "file://code.py:f"),
)
CODE_IN_SUITES: Mapping[str, tuple[dict[str, Any], str]] = {
    **{
        f"assertion {name}": (keys, "$.tests[0].assert[0].type")
        for name, keys in KINDS_THAT_RUN.items()
        if name != "command"
    },
    "assertion not-python": (
        judged(type="not-python", value="False"),
        "$.tests[0].assert[0].type",
    ),
    "assertion command": (
        task(
            "agent",
            prompts=["go"],
            tests=[{"id": "a", "assert": [{"type": "command", "value": "true"}]}],
        ),
        "$.tasks[0].tests[0].assert[0].type",
    ),
    "assertion in a set": (
        judged(type="assert-set", **{"assert": [{"type": "javascript", "value": "1"}]}),
        "$.tests[0].assert[0].assert[0].type",
    ),
    "assertion of the default test": (
        {"defaultTest": {"assert": [{"type": "ruby", "value": "true"}]}},
        "$.defaultTest.assert[0].type",
    ),
    **{
        f"value from {suffix}": (
            judged(type="equals", value=f"file://code{suffix}"),
            "$.tests[0].assert[0].value",
        )
        for suffix in (".py", ".js", ".cjs", ".mjs", ".rb", ".ts")
    },
    "transform of an assertion": (
        judged(type="equals", value="a", transform="output.trim()"),
        "$.tests[0].assert[0].transform",
    ),
    "contextTransform": (
        judged(type="equals", value="a", contextTransform="python: output"),
        "$.tests[0].assert[0].contextTransform",
    ),
    **{
        f"option of a test {key}: {value}": (
            optioned(**{key: value}),
            f"$.tests[0].options.{key}",
        )
        for key, value in CODE_IN_OPTIONS
    },
    "transformVars of Python": (
        {"defaultTest": {"options": {"transformVars": "python: {}"}}},
        "$.defaultTest.options.transformVars",
    ),
    "transform of a provider": (
        {"providers": [{"id": "echo", "transform": "output.trim()"}]},
        "$.providers[0].transform",
    ),
    **{f"provider {prefix}": (keys, "$.providers[0]") for prefix, keys in PREFIXES.items()},
    "provider with a label": (
        {"providers": [{"id": "exec:cat", "label": "harmless"}]},
        "$.providers[0].id",
    ),
    "provider as a key": (
        {"providers": [{"exec:cat": {"label": "harmless"}}]},
        '$.providers[0]["exec:cat"]',
    ),
    "judge": (
        {"defaultTest": {"options": {"provider": "python:code.py"}}},
        "$.defaultTest.options.provider",
    ),
    "judge of an assertion": (
        judged(type="llm-rubric", value="a", provider={"text": "exec:cat"}),
        "$.tests[0].assert[0].provider.text",
    ),
    "prompt of a program": ({"prompts": ["exec:./make"]}, "$.prompts[0]"),
    "prompt of a function": ({"prompts": ["file://code.py:f"]}, "$.prompts[0]"),
    "prompt of a file": ({"prompts": ["code.py"]}, "$.prompts[0]"),
    "prompt of a shell": ({"prompts": [{"raw": "file://code.sh"}]}, "$.prompts[0].raw"),
    "tests": ({"tests": "file://code.py"}, "$.tests"),
    "tests with a config": (
        {"tests": [{"path": "file://code.py:f", "config": {}}]},
        "$.tests[0]",
    ),
    "tests of scenarios": (
        {"scenarios": [{"config": [{}], "tests": "file://code.py"}]},
        "$.scenarios[0].tests",
    ),
    "variable of Python": (
        {"tests": [{"vars": {"x": "file://code.py"}}]},
        "$.tests[0].vars.x",
    ),
    "variable of JavaScript": (
        {"tests": [{"vars": {"x": ["file://code.js"]}}]},
        "$.tests[0].vars.x",
    ),
    "config of a provider": (
        {"providers": [{"id": "openai:m", "config": {"user": "file://code.py:f"}}]},
        "$.providers[0].config.user",
    ),
    "config of a prompt": (
        {"prompts": [{"raw": "a", "config": {"a": {"b": ["file://code.py:f"]}}}]},
        "$.prompts[0].config.a.b[0]",
    ),
    "response parser in a file": (
        http(responseParser="file://code.py:f"),
        "$.providers[0].config.responseParser",
    ),
    "stream of a WebSocket in a file": (
        socket(streamResponse="file://code.py:f"),
        "$.providers[0].config.streamResponse",
    ),
    "filter": ({"nunjucksFilters": {"f": "code.py"}}, "$.nunjucksFilters.f"),
    "hook": ({"extensions": ["file://code.py:f"]}, "$.extensions[0]"),
    "hook of the command line": (
        {"commandLineOptions": {"extension": ["file://code.py:f"]}},
        "$.commandLineOptions.extension[0]",
    ),
    "assertion type": ({"assertionTypes": {"mine": "file://code.py:f"}}, "$.assertionTypes.mine"),
    "derived metric": (
        {"derivedMetrics": [{"name": "m", "value": "file://code.py:f"}]},
        "$.derivedMetrics[0].value",
    ),
    "scoring": (
        {"defaultTest": {"assertScoringFunction": "file://code.py:f"}},
        "$.defaultTest.assertScoringFunction",
    ),
    "column of Python": (
        columns({"type": "python", "name": "a", "target": "file://code.py:f"}),
        "$.tasks[0].columns[0].target",
    ),
    "column of an expression": (
        columns({"type": "expression", "name": "a", "python": "1"}),
        "$.tasks[0].columns[0].python",
    ),
    "processor": (
        columns(
            {"type": "expression", "name": "a", "template": "1"},
            processors=[{"name": "p", "stage": "after", "target": "file://code.py:f"}],
        ),
        "$.tasks[0].processors[0].target",
    ),
    "commands of a model": (
        task("agent", prompts=["go"], tests=[{"id": "a"}], allowCommands=True),
        "$.tasks[0].allowCommands",
    ),
    "tool of questions": (
        task(
            "question_eval",
            questions=[{"question": "?", "choices": ["a", "b"], "answer": "A"}],
            tools=[{"name": "f", "description": "d", "target": "file://code.py:f"}],
        ),
        "$.tasks[0].tools[0]",
    ),
}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for suffix in (".py", ".js", ".cjs", ".mjs", ".rb", ".sh", ".ts"):
        (tmp_path / f"code{suffix}").write_text(PROGRAM if suffix == ".py" else "")


def untrusted(keys: Mapping[str, Any], **more: Any) -> Suite:
    return parse_suite(document(keys), trusted=False, **more)


def document(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in {**PLAIN, **keys}.items() if part is not None}


@pytest.mark.parametrize(("keys", "path"), CODE_IN_SUITES.values(), ids=CODE_IN_SUITES)
def test_code_is_refused_at_its_position(keys: dict[str, Any], path: str) -> None:
    """The message has its path, and an alternative."""
    with pytest.raises(SuiteError) as caught:
        untrusted(keys)
    refused = [problem for problem in caught.value.problems if REFUSED in problem.message]
    assert [one for one in refused if one.path.startswith(path)], caught.value
    assert all("without --untrusted" in (one.hint or "") for one in refused)


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        (http(transformResponse="json.a()"), "$.providers[0].config.transformResponse"),
        (http(transformRequest="(prompt) => prompt"), "$.providers[0].config.transformRequest"),
        (socket(transformResponse="data.a()"), "$.providers[0].config.transformResponse"),
        (socket(streamResponse="[1, true]"), "$.providers[0].config.streamResponse"),
        (optioned(streamResponse="[1, true]"), "$.tests[0].options.streamResponse"),
        (optioned(transformResponse="json.a()"), "$.tests[0].options.transformResponse"),
        (
            {"prompts": [{"raw": "a", "config": {"transformRequest": "(p) => p"}}]},
            "$.prompts[0].config.transformRequest",
        ),
        (
            {"defaultTest": {"options": {"responseParser": "json.a()"}}},
            "$.defaultTest.options.responseParser",
        ),
    ],
)
def test_code_of_providers_is_refused_before_any_call(keys: dict[str, Any], path: str) -> None:
    """Only the check of providers shows whether they are code."""
    with pytest.raises(SuiteError) as caught:
        prepare(untrusted(keys), environ={})
    assert [one.path for one in caught.value.problems if REFUSED in one.message] == [path]


def test_all_code_of_a_suite_is_reported_at_once(tmp_path: Path) -> None:
    """All positions of a file are reported at once, with lines; then those of configs of providers."""
    code = "transformResponse: f()"
    providers = [f"{{id: 'https://{host}.example', config: {{{code}}}}}" for host in "ab"]
    files = (
        (
            f"providers: [echo, 'exec:cat', {', '.join(providers)}]\n"
            "prompts: ['exec:make']\n"
            "extensions: ['file://code.py:f']\n"
            "tests: file://code.py\n"
        ),
        f"providers: [echo, {', '.join(providers)}]\n",
    )
    found: list[list[tuple[str | None, int | None, str]]] = []
    for text in files:
        (tmp_path / "suite.yaml").write_text(text)
        with pytest.raises(SuiteError) as caught:
            prepare("suite.yaml", trusted=False, environ={})
        refused = [problem for problem in caught.value.problems if REFUSED in problem.message]
        found.append([(problem.file, problem.line, problem.path) for problem in refused])
    assert found[0] == [
        ("suite.yaml", 1, "$.providers[1]"),
        ("suite.yaml", 2, "$.prompts[0]"),
        ("suite.yaml", 3, "$.extensions[0]"),
        ("suite.yaml", 4, "$.tests"),
    ]
    assert found[1] == [
        ("suite.yaml", 1, "$.providers[1].config.transformResponse"),
        ("suite.yaml", 1, "$.providers[2].config.transformResponse"),
    ]


def test_every_provider_prefix_declares_whether_it_runs_code() -> None:
    """A new family must declare it."""
    assert MODULES.keys() >= CODE | LOCAL
    assert {*CODE_PREFIXES} == {f"{prefix}:" for prefix in {*CODE, "file"}}
    servers = MODULES.keys() - CODE - LOCAL
    modules = {MODULES[prefix].partition(".")[0] for prefix in servers}
    # These call servers, and run nothing; servers of mcp that are programs are refused one by one.
    assert modules == {"vendors", "generic", "sdk", "mcp"}


def test_every_assertion_type_that_reaches_outside_is_declared() -> None:
    """A type that calls neither a model nor a server runs code, and declares it."""
    alone = {
        name
        for name, kind in KINDS.items()
        if isinstance(kind.judge, ExternalJudge) and not kind.judge.roles
    }
    assert alone == {name for name, kind in KINDS.items() if kind.runs_code} | {"webhook"}


def test_later_stages_refuse_code_too(tmp_path: Path) -> None:
    """Code that passed the checks of the loader does not start."""
    trio.run(_try_doors, tmp_path)


async def _try_doors(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    context = FileContext(directory=tmp_path, environ={}, trust=UNTRUSTED)
    with pytest.raises(MistakenError, match="runs none"):
        call_function(file, "f", [], context)
    with pytest.raises(MistakenError, match="runs none"):
        load_filters({"f": "code.py"}, context)
    async with open_scripts(tmp_path, {}, trust=UNTRUSTED) as scripts:
        for call in (
            lambda: scripts.call(file, "f", []),
            lambda: scripts.python("1", {}),
            lambda: scripts.javascript(Script("1", ()), []),
            lambda: scripts.program("true", "x"),
            lambda: scripts.python_file(file, "x"),
        ):
            with pytest.raises(ScriptError, match="runs none"):
                await call()
    commands = SuiteCommands(tmp_path, {}, UNTRUSTED)
    with pytest.raises(GradingError, match="runs none"):
        await commands(["true"], folder=tmp_path, environ={}, limit=1)


@pytest.mark.parametrize("prefix", sorted(CODE))
def test_providers_that_are_added_later_are_refused_too(prefix: str) -> None:
    """This covers a suite that was loaded, and then changed by a program."""
    suite = untrusted({})
    entry = attrs.evolve(suite.providers[0], id=f"{prefix}:code.py")
    with pytest.raises(SuiteError, match="runs none"):
        prepare(attrs.evolve(suite, providers=(entry,)), environ={})


def test_trust_is_stated_once_and_consistently() -> None:
    """Contradictions are refused, and a loaded suite keeps its permissions."""
    suite = untrusted({})
    assert suite.trust == UNTRUSTED
    with pytest.raises(UsageError, match="exclude each other"):
        untrusted({}, allow_outside=True)
    with pytest.raises(UsageError, match="trusted suite sees the whole"):
        parse_suite(document({}), allow_env=["A"])
    with pytest.raises(UsageError, match="pass trusted or allow_env to `load_suite`"):
        prepare(suite, trusted=False)

    async def run() -> None:
        async def emit(_row: object) -> None:
            raise AssertionError("nothing runs")

        await run_suite(prepare(suite), emit=emit, trusted=False)

    with pytest.raises(UsageError, match="pass trusted or allow_env to `load_suite`"):
        trio.run(run)


def test_an_untrusted_suite_without_code_runs(tmp_path: Path) -> None:
    """Paths into outputs are data, and files of the folder are read."""
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "suite.json").write_text(
        '{"providers": ["echo"], "prompts": ["{{x}}"], "tests": [{"vars": {"x": "file://text.txt"},'
        ' "assert": [{"type": "equals", "value": "hello"}]}]}'
    )
    rows: list[Any] = []

    async def keep(row: object) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    summary = trio.run(lambda: run_suite("suite.json", emit=keep, trusted=False))
    assert (summary.passed, summary.rows) == (1, 1)
    assert load_suite("suite.json", trusted=False).trust.code == "refused"
