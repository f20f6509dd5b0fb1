"""`trioeval init --csv` writes a suite that loads, or reports what is wrong with the table."""

from pathlib import Path

import pytest
import yaml

from trioeval.cli import run_command_line
from trioeval.cli.terminal import Exit
from trioeval.loading.load import load_suite

MODEL = ("--model", "openai:gpt-4.1-mini")
NO_ANSWER = (
    "warning: no answer column found, so the suite has no assertion and no row is graded; "
    "name the column with --answer-column"
)
TABLE = "id,question,answer\n1,2 + 2,4\n2,3 + 3,6\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without keys and delimiters in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "TRIOEVAL_CSV_DELIMITER", "PROMPTFOO_CSV_DELIMITER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_suite_for_a_table_has_prompt_provider_lane_and_assertion(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The suite names the table; the command that runs it is on stdout."""
    (folder / "q.csv").write_text(TABLE)
    assert run_command_line(["init", "--csv", "q.csv", *MODEL]) == Exit.OK
    out, err = capsys.readouterr()
    assert out == "trioeval suite.yaml\n"
    *chosen, missing = err.splitlines()
    assert chosen == [
        "wrote suite.yaml: 2 rows of q.csv",
        "the prompt shows question",
        "outputs are compared with answer",
    ]
    assert missing.startswith("warning: ")
    assert "OPENAI_API_KEY" in missing
    document = yaml.safe_load((folder / "suite.yaml").read_text())
    (provider,) = document["providers"]
    assert provider["id"] == "openai:gpt-4.1-mini"
    assert provider["lane"] == {"maxConcurrency": 4, "rpm": 120}
    assert document["prompts"] == [
        "{{question}}\n\nReply with the answer only, without explanation or punctuation."
    ]
    assert document["tests"] == "file://q.csv"
    assert document["defaultTest"]["assert"] == [{"type": "equals", "value": "{{answer}}"}]
    assert len(load_suite("suite.yaml").tests) == 2


def test_a_server_is_called_at_its_base_url(folder: Path) -> None:
    """A model of an OpenAI-compatible server needs no prefix and no key."""
    (folder / "q.csv").write_text(TABLE)
    url = "http://localhost:8000/v1"
    command = ["init", "--csv", "q.csv", "--model", "org/model", "--base-url", url]
    assert run_command_line(command) == Exit.OK
    (provider,) = yaml.safe_load((folder / "suite.yaml").read_text())["providers"]
    assert provider["id"] == "openai:chat:org/model"
    assert provider["config"]["apiBaseUrl"] == url
    assert provider["lane"] == {"maxConcurrency": 4}


@pytest.mark.parametrize(
    ("header", "shown", "checked"),
    [
        ("question,answer", ["question"], "answer"),
        ("Question,Answer", ["Question"], "Answer"),
        ("answer,text,target", ["text"], "answer"),
        ("context,category,query,expected", ["query", "context"], "expected"),
        ("prompt,A,B,C,D,label", ["prompt", "A", "B", "C", "D"], "label"),
        ("country,city,expected_output,id", ["country", "city"], "expected_output"),
        ("question,note,__expected", ["question"], None),
        ("question,note", ["question"], None),
    ],
)
def test_columns_are_found_by_their_names(
    folder: Path, header: str, shown: list[str], checked: str | None
) -> None:
    """The question comes first, then its parts; columns that only describe it are left out."""
    (folder / "q.csv").write_text(f"{header}\n{','.join('x' for _ in header.split(','))}\n")
    assert run_command_line(["init", "--csv", "q.csv", *MODEL]) == Exit.OK
    document = yaml.safe_load((folder / "suite.yaml").read_text())
    (prompt,) = document["prompts"]
    assert [name for name in header.split(",") if f"{{{{{name}}}}}" in prompt] == sorted(
        shown, key=header.split(",").index
    )
    assert prompt.startswith(f"{{{{{shown[0]}}}}}")
    if checked is None:
        assert "defaultTest" not in document
    else:
        assert document["defaultTest"]["assert"][0]["value"] == f"{{{{{checked}}}}}"


def test_columns_may_be_named(folder: Path) -> None:
    """Flags name columns that are not found by their names."""
    (folder / "q.csv").write_text("first,second,third\na,b,c\n")
    columns = ["--answer-column", "first", "--question-column", "third"]
    assert run_command_line(["init", "--csv", "q.csv", *MODEL, *columns]) == Exit.OK
    document = yaml.safe_load((folder / "suite.yaml").read_text())
    assert document["prompts"][0].startswith("{{third}}\n")
    assert document["defaultTest"]["assert"][0]["value"] == "{{first}}"


def test_long_answers_need_only_be_contained(folder: Path) -> None:
    """A reply that consists of the answer alone is only required if all answers are short."""
    (folder / "q.csv").write_text("question,answer\nWho?,a man of four words\nWhy?,so\n")
    assert run_command_line(["init", "--csv", "q.csv", *MODEL]) == Exit.OK
    document = yaml.safe_load((folder / "suite.yaml").read_text())
    assert document["prompts"] == ["{{question}}"]
    assert document["defaultTest"]["assert"] == [{"type": "icontains", "value": "{{answer}}"}]


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("question\nWho?\n", NO_ANSWER),
        ("question,answer\nWho?,\nWhy?,so\n", "warning: 1 row of q.csv has no answer"),
        ("question,answer\nWho?,\nWhy?,\n", "warning: 2 rows of q.csv have no answer"),
        ("question,__expected\nWho?,so\n", "outputs are checked by __expected"),
    ],
)
def test_missing_parts_are_reported(
    folder: Path, table: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The suite is written nevertheless."""
    (folder / "q.csv").write_text(table)
    assert run_command_line(["init", "--csv", "q.csv", *MODEL]) == Exit.OK
    assert line in capsys.readouterr().err.splitlines()
    assert load_suite("suite.yaml").tests


def test_a_table_elsewhere_is_named_with_the_flag_that_it_needs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A suite that reads outside of its folder runs with --allow-outside."""
    (folder / "data sets").mkdir()
    (folder / "data sets" / "q.csv").write_text(TABLE)
    command = ["init", "--csv", "data sets/q.csv", *MODEL]
    assert run_command_line(command) == Exit.OK
    assert capsys.readouterr().out == "trioeval 'data sets/suite.yaml'\n"
    assert run_command_line([*command, "-o", "suites/mine.yaml"]) == Exit.OK
    assert capsys.readouterr().out == "trioeval suites/mine.yaml --allow-outside\n"
    assert len(load_suite("suites/mine.yaml", allow_outside=True).tests) == 2
    assert run_command_line([*command[:1], "new", *command[1:]]) == Exit.OK
    assert (folder / "new" / "suite.yaml").exists()


@pytest.mark.parametrize(
    ("table", "flags", "line"),
    [
        (None, MODEL, "--csv q.csv: file not found; CSV files there: other.csv"),
        ("", MODEL, "--csv q.csv: empty; the first line must name the columns"),
        ("\n\n", MODEL, "--csv q.csv: empty; the first line must name the columns"),
        (
            "2 + 2,4\n3 + 3,6\n",
            MODEL,
            "--csv q.csv: no header; the first line must name the columns",
        ),
        ("What is it?,so\n", MODEL, "--csv q.csv: no header; the first line must name the columns"),
        ("question,answer\n", MODEL, "--csv q.csv: no rows below the header"),
        ("question,question\na,b\n", MODEL, "--csv q.csv: several columns are named 'question'"),
        (
            "question;answer\na;b\n",
            MODEL,
            (
                "--csv q.csv: one column only, 'question;answer'; if ';' separates its cells, "
                "set TRIOEVAL_CSV_DELIMITER=';'"
            ),
        ),
        (
            "id,answer\n7,b\n",
            MODEL,
            "q.csv: no question column among id, answer; name one with --question-column",
        ),
        (
            "question,Right answer\na,b\n",
            (*MODEL, "--answer-column", "Right answer"),
            (
                "q.csv: the column 'Right answer' cannot be used in a template; "
                "rename it in the first line, to 'Right_answer' for example"
            ),
        ),
        (
            TABLE,
            (*MODEL, "--answer-column", "solution"),
            "--answer-column solution: q.csv has no such column; it has id, question, answer",
        ),
        (TABLE, (), "--csv needs a model, such as --model openai:gpt-4.1-mini"),
        (
            TABLE,
            ("--model", "http://localhost:8000/v1"),
            (
                "--model http://localhost:8000/v1: is a URL; name the model as well: "
                "--model NAME --base-url http://localhost:8000/v1"
            ),
        ),
        (
            TABLE,
            ("--model", "m", "--base-url", "localhost:8000"),
            "--base-url localhost:8000: must begin with http:// or https://",
        ),
        (TABLE, (*MODEL, "-o", "s.json"), "-o s.json: the name must end in .yaml or .yml"),
        (
            TABLE,
            (*MODEL, "-o", "here.yaml"),
            "here.yaml: already exists; name another file with -o",
        ),
        (
            TABLE,
            ("--model", "opnai:gpt"),
            "no suite was written:\nsuite.yaml:5:9: $.providers[0].id: ",
        ),
        (
            "question,answer\nWho?\n",
            MODEL,
            "no suite was written:\nq.csv:2:1: ",
        ),
    ],
)
def test_a_table_or_flag_that_cannot_be_used_is_refused(
    folder: Path,
    table: str | None,
    flags: tuple[str, ...],
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message names the file and what to do; nothing is written."""
    (folder / "other.csv").write_text(TABLE)
    (folder / "here.yaml").write_text("mine")
    if table is not None:
        (folder / "q.csv").write_text(table)
    before = {path: path.read_text() for path in folder.iterdir()}
    assert run_command_line(["init", "--csv", "q.csv", *flags]) == Exit.USAGE
    assert capsys.readouterr().err.startswith(line)
    assert {path: path.read_text() for path in folder.iterdir()} == before


def test_flags_of_tables_need_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A starter suite has its own model."""
    assert run_command_line(["init", *MODEL, "-o", "s.yaml"]) == Exit.USAGE
    assert capsys.readouterr().err == "--model, -o: only with --csv FILE\n"


def test_a_table_must_be_a_csv_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Suites read tests from files by the end of their names."""
    (folder / "q.txt").write_text(TABLE)
    assert run_command_line(["init", "--csv", "q.txt", *MODEL]) == Exit.USAGE
    assert capsys.readouterr().err == "--csv q.txt: the name must end in .csv\n"


@pytest.mark.parametrize(
    "model", ["echo", "anthropic:messages:claude-sonnet-4-5", "ollama:chat:llama3"]
)
def test_any_provider_may_be_the_model(folder: Path, model: str) -> None:
    """The suite loads whatever the provider is."""
    (folder / "q.csv").write_text(TABLE)
    assert run_command_line(["init", "--csv", "q.csv", "--model", model]) == Exit.OK
    assert run_command_line(["suite.yaml", "--plan"]) in (Exit.OK, Exit.USAGE)
