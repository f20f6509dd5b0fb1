"""Attacks: paths of a suite that lead out of its folder, to read or overwrite other files."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from suite_schema import suite_schema

from trioeval.cli import run_command_line
from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite, parse_suite
from trioeval.run import prepare

pytestmark = pytest.mark.attack("paths out of the suite's folder")

SECRET = "the-secret-of-another-folder"  # noqa: S105 - a text to look for
TEST: Mapping[str, Any] = {
    "providers": ["echo"],
    "prompts": ["{{q}}"],
    "tests": [{"vars": {"q": "a"}}],
}
Make = Callable[[str], Mapping[str, Any]]


@attrs.frozen
class Key:
    """A key that names a path, and a suite with a path there."""

    suite: Make
    ending: str = ".txt"
    """The suffix of the file; empty for a folder."""
    content: str = SECRET
    """The contents of the file outside, which would be usable."""


def top(**keys: Any) -> dict[str, Any]:
    return {**TEST, **keys}


def flag(name: str, ending: str = ".txt", content: str = SECRET) -> Key:
    return Key(lambda path: top(commandLineOptions={name: path}), ending, content)


def with_test(**keys: Any) -> dict[str, Any]:
    return top(tests=[{"vars": {"q": "a"}, **keys}])


def asserted(value: str, **more: Any) -> dict[str, Any]:
    return with_test(**{"assert": [{"type": "equals", **more, "value": value}]})


def provided(entry: Any) -> dict[str, Any]:
    return top(providers=[entry])


def http(**config: Any) -> dict[str, Any]:
    return provided({"id": "https://a.example/x", "config": {"body": "{{prompt}}", **config}})


def dataset(*columns: Any, **keys: Any) -> dict[str, Any]:
    number = {"name": "n", "type": "sampler", "sampler": "uniform", "low": 1, "high": 2}
    task = {"id": "d", "type": "columns", "rows": 1, "columns": [number, *columns], **keys}
    return {"providers": ["echo"], "tasks": [task]}


def questions(**keys: Any) -> dict[str, Any]:
    one = {"question": "Sky?", "answers": ["Red", "Blue"], "correctAnswers": ["Blue"]}
    task = {"id": "q", "type": "question_eval", "questions": [one], **keys}
    return {"providers": ["echo"], "tasks": [task]}


def agent(**keys: Any) -> dict[str, Any]:
    task = {"id": "a", "type": "agent", "prompts": ["do"], "tests": [{"id": "one"}], **keys}
    return {"providers": ["exec:true"], "tasks": [task]}


CODE = f"def f(*args): return '{SECRET}'\n"
TABLE = f"q\n{SECRET}\n"
RECORDED = json.dumps({"prompt": "a", "output": SECRET}) + "\n"

KEYS: Mapping[str, Key] = {
    "outputPath": Key(lambda path: top(outputPath=path), ".json"),
    "outputPath, one of several": Key(lambda path: top(outputPath=["a.json", path]), ".json"),
    "output": flag("output", ".json"),
    "envFile": flag("envFile", ".env", f"Q={SECRET}\n"),
    "envPath": flag("envPath", ".env", f"Q={SECRET}\n"),
    "filterFailing": flag("filterFailing", ".json", "{}"),
    "filterFailingOnly": flag("filterFailingOnly", ".json", "{}"),
    "filterErrorsOnly": flag("filterErrorsOnly", ".json", "{}"),
    "env": Key(lambda path: top(env={"PROMPTFOO_CA_CERT_PATH": path}), ".pem"),
    "outputDir": Key(lambda path: dataset(outputDir=path), ""),
    "extensions": Key(lambda path: top(extensions=[f"file://{path}:f"]), ".py", CODE),
    "nunjucksFilters": Key(lambda path: top(nunjucksFilters={"f": path}), ".py", CODE),
    "assertionTypes": Key(
        lambda path: top(assertionTypes={"mine": f"file://{path}:f"}), ".py", CODE
    ),
    "$ref": Key(lambda path: top(tags={"$ref": f"{path}#/a"}), ".json", '{"a": {"b": "c"}}'),
    "prompts": Key(lambda path: top(prompts=[path])),
    "prompts, a table": Key(lambda path: top(prompts=path), ".csv", f"prompt\n{SECRET}\n"),
    "prompts, a function": Key(lambda path: top(prompts=[f"{path}:f"]), ".py", CODE),
    "providers": Key(lambda path: top(providers=[f"file://{path}"]), ".yaml", "- echo\n"),
    "id": Key(lambda path: provided(f"python:{path}:f"), ".py", CODE),
    "id, a file": Key(lambda path: provided(f"file://{path}"), ".py", CODE),
    "id, in a thread": Key(
        lambda path: provided({"id": f"python:{path}:f", "config": {"mode": "thread"}}),
        ".py",
        CODE,
    ),
    "id, recordings": Key(lambda path: provided(f"replay:{path}"), ".jsonl", RECORDED),
    "id, a model": Key(lambda path: provided(f"local:embedding:{path}"), ""),
    "config.tls.ca": Key(lambda path: http(tls={"ca": path}), ".pem"),
    "config.tls.cert": Key(lambda path: http(tls={"cert": path}), ".pem"),
    "config.tls.key": Key(lambda path: http(tls={"key": path}), ".pem"),
    "config.body": Key(lambda path: http(body=f"file://{path}")),
    "config.transformResponse": Key(
        lambda path: http(transformResponse=f"file://{path}:f"), ".py", CODE
    ),
    "config.request": Key(
        lambda path: provided({"id": "http", "config": {"request": f"file://{path}"}}),
    ),
    "config.multipart": Key(
        lambda path: provided(
            {
                "id": "https://a.example/x",
                "config": {
                    "multipart": {
                        "parts": [
                            {"kind": "file", "name": "f", "source": {"type": "path", "path": path}}
                        ]
                    }
                },
            }
        )
    ),
    "config, any value": Key(
        lambda path: provided({"id": "openai:x", "config": {"tools": f"file://{path}"}}),
        ".json",
        "[]",
    ),
    "tests": Key(lambda path: top(tests=path), ".csv", TABLE),
    "tests, lines": Key(lambda path: top(tests=path), ".jsonl", '{"vars": {"q": "a"}}\n'),
    "tests, one of several": Key(lambda path: top(tests=[path]), ".yaml", "- vars: {q: a}\n"),
    "tests, a sheet": Key(lambda path: top(tests=f"{path}#one"), ".xlsx"),
    "tests, a function": Key(lambda path: top(tests=f"{path}:f"), ".py", CODE),
    "path": Key(lambda path: top(tests=[{"path": path}]), ".csv", TABLE),
    "vars": Key(lambda path: with_test(vars={"q": f"file://{path}"}), ".yaml", "a: b"),
    "defaultTest": Key(lambda path: top(defaultTest=f"file://{path}"), ".yaml", "vars: {q: a}\n"),
    "assert, code": Key(lambda path: asserted(f"file://{path}:f", type="python"), ".py", CODE),
    "assert, a schema": Key(lambda path: asserted(f"file://{path}", type="is-json"), ".json", "{}"),
    "value": Key(lambda path: asserted(f"file://{path}")),
    "assertScoringFunction": Key(
        lambda path: with_test(assertScoringFunction=f"file://{path}:f"), ".py", CODE
    ),
    "transform": Key(
        lambda path: with_test(options={"transform": f"file://{path}:f"}), ".py", CODE
    ),
    "postprocess": Key(
        lambda path: with_test(options={"postprocess": f"file://{path}:f"}),
        ".py",
        CODE,
    ),
    "transformVars": Key(
        lambda path: with_test(options={"transformVars": f"file://{path}:f"}),
        ".py",
        CODE,
    ),
    "contextTransform": Key(
        lambda path: with_test(
            **{
                "assert": [
                    {
                        "type": "context-recall",
                        "value": "a",
                        "contextTransform": f"file://{path}:f",
                        "provider": "echo",
                    }
                ]
            }
        ),
        ".py",
        CODE,
    ),
    "rubricPrompt": Key(
        lambda path: top(defaultTest={"options": {"rubricPrompt": f"file://{path}"}})
    ),
    "limitsFile": Key(
        lambda path: top(limits={"backend": "memory", "limitsFile": path}),
        ".json",
        '{"limits": []}',
    ),
    "questionsFile": Key(
        lambda path: {
            "providers": ["echo"],
            "tasks": [{"id": "q", "type": "question_eval", "questionsFile": path}],
        },
        ".json",
        "{}",
    ),
    "target": Key(
        lambda path: questions(
            tools=[{"name": "t", "target": f"file://{path}:f", "parameters": {"type": "object"}}]
        ),
        ".py",
        CODE,
    ),
    "target, of a column": Key(
        lambda path: dataset({"name": "p", "type": "python", "target": f"file://{path}:f"}),
        ".py",
        CODE,
    ),
    "processors": Key(
        lambda path: dataset(processors=[{"stage": "beforeBatch", "target": f"file://{path}:f"}]),
        ".py",
        CODE,
    ),
    "file": Key(
        lambda path: dataset({"name": "s", "type": "seed", "file": path, "columns": ["q"]}),
        ".csv",
        TABLE,
    ),
    "prompt": Key(
        lambda path: dataset(
            {"name": "l", "type": "llm", "provider": "echo", "prompt": f"file://{path}"}
        ),
    ),
    "schema": Key(
        lambda path: dataset(
            {
                "name": "l",
                "type": "llm",
                "provider": "echo",
                "prompt": "x",
                "schema": f"file://{path}",
            }
        ),
        ".json",
        "{}",
    ),
    "workspace": Key(lambda path: agent(workspace=path), ""),
}
"""Every key that names a path; after a comma follows another form of it."""

NO_PATHS = frozenset(
    [
        "$defs",
        "$schema",
        "answers",
        "assertionTemplates",
        "category",
        "cluster",
        "columns",
        "config",
        "correctAnswers",
        "definitions",
        "dependsOn",
        "derivedMetrics",
        "description",
        "doneFile",
        "dropColumns",
        "dropWhen",
        "end",
        "extension",
        "extras",
        "filterMetadata",
        "filterPattern",
        "filterPrompts",
        "filterProviders",
        "filterRange",
        "filterTargets",
        "format",
        "fromTask",
        "generateSuggestions",
        "grader",
        "interactiveProviders",
        "isRedteam",
        "key",
        "label",
        "lane",
        "limits",
        "metric",
        "name",
        "namespace",
        "outputs",
        "prefix",
        "promptPrefix",
        "promptSuffix",
        "provider",
        "providerOutput",
        "python",
        "question",
        "questions",
        "limits",
        "raw",
        "reasoning",
        "redteam",
        "requires",
        "scenarios",
        "scores",
        "sharing",
        "silent",
        "start",
        "storeOutputAs",
        "suffix",
        "suggestionsCount",
        "targets",
        "tasks",
        "telemetry",
        "template",
        "text",
        "tools",
        "trace",
        "tracing",
        "type",
        "unit",
        "url",
        "values",
        "when",
        "writeLatestResults",
        "assert",
    ]
)
"""Keys with texts that name nothing in the file system, or only below a key of the table.

`doneFile` is a name in the workspace of a case, and is refused if it leads out of that. `extension` is
`extensions`, `targets` and `provider` are `providers`, `raw` is `prompts`, `grader` is the id of a provider.
"""


def accepts_text(node: Any, definitions: Mapping[str, Any], seen: tuple[str, ...] = ()) -> bool:
    """Return whether a text, or a list of texts, matches a schema."""
    match node:
        case bool():
            return node
        case {"$ref": str(name)}:
            found = definitions[name.rpartition("/")[2]]
            return name not in seen and accepts_text(found, definitions, (*seen, name))
        case {"enum": _} | {"const": _}:
            return False
        case {"type": "array"}:
            return accepts_text(node.get("items", True), definitions, seen)
        case {"type": kinds}:
            return "string" in kinds
        case {"anyOf": list(choices)} | {"oneOf": list(choices)}:
            return any(accepts_text(one, definitions, seen) for one in choices)
        case _:
            return "properties" not in node


def texts_of(node: Any, definitions: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys below a part of the schema that may be or contain texts."""
    if isinstance(node, dict):
        members = node.get("properties")
        if isinstance(members, dict):
            yield from (name for name, part in members.items() if accepts_text(part, definitions))
        for part in node.values():
            yield from texts_of(part, definitions)
    elif isinstance(node, list):
        for part in node:
            yield from texts_of(part, definitions)


@pytest.mark.attack("paths out of the suite's folder")
def test_every_key_of_the_schema_is_in_the_table_or_names_no_path() -> None:
    """A new key with texts fails here until the lists above classify it."""
    schema = suite_schema()
    known = {name.partition(",")[0] for name in KEYS} | NO_PATHS
    assert {name for name in texts_of(schema, schema["$defs"]) if "_" not in name} - known == set()


def _secret(folder: Path, key: Key, name: str = "x") -> Path:
    """Create something outside, which a suite could use if it were inside."""
    path = folder / f"{name}{key.ending}"
    if key.ending:
        path.write_text(key.content)
    else:
        path.mkdir()
        (path / "kept.txt").write_text(SECRET)
    return path


FORMS = {
    "up": "../{name}",
    "a link": "link{suffix}",
}
MORE_FORMS = {
    "absolute": "{folder}/{name}",
    "a folder that is a link": "linked/{name}",
    "down and up": "inner/../../{name}",
    "file:// and up": "file://../{name}",
    "file:// and absolute": "file://{folder}/{name}",
    "marked as anchored": "{folder}/./{name}",
    "through the file system": "/proc/self/root{folder}/{name}",
}
"""Tried only as the whole value of the key."""
ATTACKS = [
    *((name, form) for name in KEYS for form in FORMS),
    *((name, form) for name in ("outputPath", "envFile", "tests") for form in MORE_FORMS),
]


@pytest.mark.parametrize(("name", "form"), ATTACKS)
def test_no_path_of_a_suite_leads_out_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    """The message has the position, the value and the flag that allows it, and nothing that was read."""
    key = KEYS[name]
    folder = tmp_path / "suite"
    (folder / "inner").mkdir(parents=True)
    path = _secret(tmp_path, key)
    (folder / f"link{path.suffix}").symlink_to(path)
    (folder / "linked").symlink_to(tmp_path)
    monkeypatch.chdir(folder)
    parts = {"name": path.name, "suffix": path.suffix, "folder": tmp_path}
    written = {**FORMS, **MORE_FORMS}[form].format_map(parts)
    file = folder / "suite.json"
    file.write_text(json.dumps(key.suite(written)))
    with pytest.raises(SuiteError) as refused:
        prepare(load_suite(file, environ={}), environ={})
    message = str(refused.value)
    assert "outside of the suite's folder" in message
    assert "--allow-outside" in message
    assert SECRET not in message


NAMED_BEFORE_IT_EXISTS = {
    *("outputPath", "output", "outputDir", "envFile", "envPath", "env", "prompts"),
    *("filterFailing", "filterFailingOnly", "filterErrorsOnly"),
}
"""Keys whose file is written, or opened when the suite runs; a prompt may be a text that begins so."""


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("written", ["~/x{}", "x\0{}"])
def test_paths_are_not_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, written: str
) -> None:
    """The user's home is not expanded; an impossible name is refused without an internal error."""
    key = KEYS[name]
    home, folder = tmp_path / "home", tmp_path / "suite"
    home.mkdir()
    folder.mkdir()
    path = _secret(home, key)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(folder)
    before = {one: one.stat().st_mtime_ns for one in home.rglob("*")}
    file = folder / "suite.json"
    file.write_text(json.dumps(key.suite(written.format(key.ending))))
    message = ""
    try:
        prepare(load_suite(file, environ={"HOME": str(home)}), environ={"HOME": str(home)})
    except SuiteError as error:
        message = str(error)
    assert SECRET not in message
    assert message or name.partition(",")[0] in NAMED_BEFORE_IT_EXISTS
    assert {one: one.stat().st_mtime_ns for one in home.rglob("*")} == before
    assert path.exists()


def test_all_paths_that_lead_out_are_reported_at_once(tmp_path: Path) -> None:
    """Each has line and column."""
    suite = top(outputPath="../o.json", commandLineOptions={"envFile": ["../a", "../b"]})
    (tmp_path / "s.json").write_text(json.dumps(suite, indent=1))
    with pytest.raises(SuiteError) as refused:
        load_suite(tmp_path / "s.json", environ={})
    assert [problem.path for problem in refused.value.problems] == [
        "$.outputPath",
        "$.commandLineOptions.envFile[0]",
        "$.commandLineOptions.envFile[1]",
    ]
    assert all(problem.line for problem in refused.value.problems)


def _write(folder: Path, **keys: Any) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "suite.json"
    file.write_text(json.dumps(top(**keys)))
    return file


def _run(file: Path, *flags: str) -> int:
    return run_command_line([str(file), "--no-cache", "--no-write", "--no-table", "-q", *flags])


def test_allow_outside_allows_to_write_and_flags_are_free(tmp_path: Path) -> None:
    """The user decides, not the suite."""
    out = tmp_path / "out.json"
    file = _write(tmp_path / "s", outputPath=str(out))
    assert _run(file) == 2
    assert not out.exists()
    assert _run(file, "--allow-outside") == 0
    assert out.exists()
    out.unlink()
    assert _run(_write(tmp_path / "s"), "-o", str(out)) == 0
    assert out.exists()


def test_flags_name_recordings_and_code_anywhere(tmp_path: Path) -> None:
    """A provider of the command line is not a path of the suite."""
    (tmp_path / "r.jsonl").write_text(RECORDED)
    assert _run(_write(tmp_path / "s"), "-r", "replay:../r.jsonl") == 0


@pytest.mark.parametrize(
    "source", ["suite", "tests", "recordings", "variables", "environment", "value"]
)
def test_results_do_not_overwrite_files_of_the_suite(tmp_path: Path, source: str) -> None:
    """This holds for names and for links: a suite cannot destroy itself or its inputs."""
    inputs: dict[str, tuple[str, str, dict[str, Any]]] = {
        "tests": ("t.json", '[{"vars": {"q": "a"}}]', {"tests": "t.json"}),
        "recordings": ("r.jsonl", RECORDED, {"providers": ["replay:r.jsonl"]}),
        "variables": ("v.json", '"a"', {"tests": [{"vars": {"q": "file://v.json"}}]}),
        "environment": ("e.txt", "A=1\n", {"commandLineOptions": {"envFile": "e.txt"}}),
        "value": (
            "w.txt",
            "a",
            {"tests": [{"assert": [{"type": "equals", "value": "file://w.txt"}]}]},
        ),
    }
    name, text, keys = inputs.get(source, ("suite.json", "", {}))
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / name).write_text(text)
    (folder / f"link{Path(name).suffix}").symlink_to(name)
    for written in (name, f"link{Path(name).suffix}"):
        file = _write(folder, outputPath=written, **keys)
        before = (folder / name).read_text()
        assert _run(file) == 2
        assert (folder / name).read_text() == before


def test_a_file_of_variables_does_not_choose_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This covers the database, the cache, and the folder of both."""
    folder = tmp_path / "s"
    file = _write(folder, commandLineOptions={"envFile": "e.txt"})
    names = ("DB", "CACHE_PATH", "CONFIG_DIR")
    lines = [
        f"{prefix}_{name}={tmp_path}/{name}"
        for prefix in ("TRIOEVAL", "PROMPTFOO")
        for name in names
    ]
    (folder / "e.txt").write_text("\n".join(lines))
    monkeypatch.chdir(folder)
    assert run_command_line([str(file), "-q"]) == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["s"]


def test_a_file_of_variables_does_not_name_certificates_outside(tmp_path: Path) -> None:
    """The restriction of `env` applies to environment files as well."""
    folder = tmp_path / "s"
    file = _write(folder, commandLineOptions={"envFile": "e.txt"})
    (folder / "e.txt").write_text("TRIOEVAL_CA_CERT_PATH=../ca.pem\n")
    (tmp_path / "ca.pem").write_text(SECRET)
    assert _run(file) == 2


def test_a_link_that_changes_after_loading_is_checked_again(tmp_path: Path) -> None:
    """The check at opening counts, not the one when the suite was loaded."""
    from trioeval.errors import UsageError
    from trioeval.loading.own_files import checked_path

    folder = tmp_path / "s"
    (folder / "inner").mkdir(parents=True)
    (folder / "link").symlink_to("inner")
    suite = load_suite(_write(folder, outputPath="link/o.json"), environ={})
    found = checked_path(suite, "link/o.json", "outputPath")
    assert found == folder / "inner" / "o.json"
    (folder / "link").unlink()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(UsageError, match=r"^outputPath: .*outside of the suite's folder"):
        checked_path(suite, "link/o.json", "outputPath")
    assert os.path.realpath(found) == str(found)


def test_a_pattern_outside_stops_at_its_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first match is refused, without a walk through a whole disk."""
    looked: list[Path] = []
    is_file = os.path.isfile

    def seen(path: str) -> bool:
        looked.append(Path(path))
        return is_file(path)

    monkeypatch.setattr(os.path, "isfile", seen)
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text(SECRET)
    (folder := tmp_path / "suite").mkdir()
    with pytest.raises(SuiteError, match="is outside of the suite's folder"):
        parse_suite(top(prompts=["file://../*.txt"]), directory=folder)
    assert len([path for path in looked if path.suffix == ".txt" and path.stem.isdigit()]) == 1
