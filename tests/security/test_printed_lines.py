"""No command prints a character that controls a terminal, whatever its source."""

import json
import sys
from pathlib import Path

import pytest
from hostile import CONTROLS, SHAPES, TEXTS, assert_inert_terminal, hostile_suite

from trioeval.cli import report_fault
from trioeval.cli.app import run_command_line
from trioeval.cli.terminal import pour, say, show
from trioeval.text_safety import escaped

pytestmark = pytest.mark.attack("terminals")

_PLAIN = {
    name: text.replace("\x00", "").encode("utf-8", "ignore").decode()
    for name, text in CONTROLS.items()
}
WORDS = {
    "all": "".join(_PLAIN.values()),
    "bytes": "name\udcff\udc9b31m",
    "flood": "x" + SHAPES["flood"],
}
COMMANDS = [
    "{}",
    "run {}",
    "run x --{}",
    "run x --max-concurrency {}",
    "run x --set {}",
    "run x -o {}",
    "run x -c {} -c {}",
    "run x --filter-pattern {}",
    "preview {}",
    "simulate {}",
    "simulate x --latency {}",
    "init x {}",
    "schema {}",
    "resume {}",
    "runs {}",
    "runs --{}",
    "runs delete {}",
    "show {}",
    "show {} --row {}",
    "export {} -o {}",
    "import {}",
    "compare {} {}",
    "view --port {}",
    "view {} {}",
    "bus read {} --since {}",
    "bus post {} --topic {}",
    "bus {}",
    "cache stats --cache {}",
    "cache {}",
    "limits show --{}",
    "limits set {}",
    "limits remove {}",
    "agent submit {}",
    "agent {}",
    "fake-provider --port {}",
    "fake-provider --hints {}",
    "fake-provider --replay {}",
]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert_inert_terminal(captured.out)
    assert_inert_terminal(captured.err)
    return captured.out + captured.err


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_echoes_its_arguments_raw(
    command: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """This covers names of missing files, keys of runs, and unknown options."""
    arguments = [part.replace("{}", WORDS[word]) for part in command.split(" ")]
    assert run_command_line(arguments) != 0
    assert printed(capsys)


@pytest.mark.parametrize(
    "keys",
    [
        {"{}": 1},
        {"providers": ["{}"]},
        {"providers": [{"id": "echo", "config": {"{}": 1}}]},
        {"providers": [{"id": "echo", "{}": 1}]},
        {"prompts": ["file://{}"]},
        {"tests": ["{}"]},
        {"tests": [{"vars": {"x": "file://{}"}}]},
        {"tests": [{"assert": [{"type": "{}", "value": "x"}]}]},
        {"tests": [{"assert": [{"type": "regex", "value": "({}"}]}]},
        {"tests": [{"options": {"{}": "x"}}]},
        {"lanes": {"{}": {"rpm": "{}"}}},
        {"evaluateOptions": {"{}": 1}},
        {"prompts": ["{% if {} %}"]},
        {"outputPath": "{}.txt"},
        {"extensions": ["file://{}:x"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("word", ["all", "flood"])
def test_no_error_of_a_suite_is_printed_raw(
    keys: dict[str, object], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """This covers keys, values and references of a suite, and the name of its file."""
    text = json.dumps({"providers": ["echo"], "prompts": ["a"], **keys})
    path = Path("suite \x1b[31m\u202e.json")
    path.write_text(text.replace("{}", json.dumps(WORDS[word])[1:-1]), encoding="utf-8")
    run_command_line([str(path), "--no-progress", "--no-store"])
    assert printed(capsys)


def test_no_result_is_printed_raw(capsys: pytest.CaptureFixture[str]) -> None:
    """This covers a stored run of hostile texts, and every command that shows it."""
    texts = {name: text for name, text in TEXTS.items() if len(text) < 300}
    suite = json.dumps(hostile_suite(texts, "echo"))
    Path("a.json").write_text(suite, encoding="ascii")
    database = ["--db", "runs.db"]
    assert run_command_line(["run", "a.json", *database, "--no-progress"]) == 100
    printed(capsys)
    assert (
        run_command_line(["run", "a.json", *database, "--no-progress", "-o", "a.out.json"]) == 100
    )
    printed(capsys)
    run_command_line(["runs", *database, "--json"])
    runs = [run["id"] for run in json.loads(printed(capsys))]
    document = json.loads(Path("a.out.json").read_text(encoding="utf-8"))
    Path("b.json").write_text(json.dumps({**document, "evalId": WORDS["all"]}), encoding="utf-8")
    for command in (
        ["runs"],
        ["show", runs[0]],
        ["show", runs[0], "--row", "3"],
        ["show", runs[0], "--json"],
        ["compare", *runs],
        ["compare", *runs, "--json"],
        ["import", "b.json"],
        ["runs"],
    ):
        run_command_line([*command, *database])
        assert printed(capsys)


@pytest.mark.parametrize("text", CONTROLS.values(), ids=CONTROLS.keys())
def test_printed_output_consists_of_text_only(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All commands use the same functions; tracebacks use one of them."""
    say(text)
    show(f"a\n{text}")
    pour([text, text])
    report_fault(RuntimeError, RuntimeError(text))
    printed(capsys)


@pytest.mark.parametrize("text", CONTROLS.values(), ids=CONTROLS.keys())
def test_printed_json_is_equivalent(text: str) -> None:
    """Programs parse the same text from it."""
    whole = text.replace("\x00", "")
    assert json.loads(escaped(json.dumps([whole], ensure_ascii=False))) == [whole]


def test_uncaught_errors_are_printed_by_the_same_function() -> None:
    """The hook of the interpreter does this; see `__main__`."""
    source = Path(sys.modules["trioeval"].__file__ or "").with_name("__main__.py").read_text()
    assert "sys.excepthook = report_fault" in source
