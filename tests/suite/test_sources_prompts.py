"""The prompts of one entry of `prompts`."""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import MistakenError
from trioeval.suite.model import Prompt, PromptFunction
from trioeval.suite.sources.prompts import _parts, read_prompts


def read(entry: Any, folder: Path, **environ: str) -> tuple[Prompt, ...]:
    return read_prompts(entry, FileContext(directory=folder, environ=environ))


def raws(entry: Any, folder: Path, **environ: str) -> list[str]:
    return [prompt.raw for prompt in read(entry, folder, **environ)]


def labels(entry: Any, folder: Path) -> list[str]:
    return [prompt.label for prompt in read(entry, folder)]


def refused(entry: Any, folder: Path) -> list[tuple[str, str | None]]:
    with pytest.raises(MistakenError) as caught:
        read(entry, folder)
    return [(part.message, part.hint) for part in caught.value.parts]


@pytest.mark.parametrize(
    "text",
    [
        "Hi",
        "Answer yes/no: {{q}}",
        "{{a}}/{{b}}",
        "Is it *really* so?",
        "Read file.txt\nthen stop",
        "See docs/{{page}}.md",
        "a/b",
        "- role: user\n  content: '{{q}}'",
        "C:\\temp",
        "read more about prompts.py please",
        "/" * 5000,
        "/*",
    ],
)
def test_a_text_that_is_not_a_file_name_is_used_unchanged(text: str, tmp_path: Path) -> None:
    """Slashes, stars and dots do not make a path of it."""
    assert raws(text, tmp_path) == [text]
    assert labels(text, tmp_path) == [text]


@pytest.mark.slow
@given(st.text(min_size=1).filter(lambda text: "://" not in text and not text.startswith("exec:")))
def test_any_other_text_is_accepted_or_refused(text: str) -> None:
    """In a folder without files nothing is read, and nothing fails."""
    try:
        (prompt,) = read(text, Path("/nowhere"))
    except MistakenError:
        return
    assert prompt.raw == text


def test_an_object_has_label_id_and_config(tmp_path: Path) -> None:
    """The digest is that of the label, else of the id."""
    (prompt,) = read({"raw": "Hi", "label": "L", "id": "i", "config": {"a": 1}}, tmp_path)
    assert prompt == Prompt(
        raw="Hi",
        label="L",
        id=hashlib.sha256(b"L").hexdigest(),
        given_id="i",
        config={"a": 1},
    )


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (5, ("must be text or an object, got 5", None)),
        ({"raw": 5}, ("must be text, got 5", None)),
        ({"label": "a"}, ('"raw" is missing', "write the text of the prompt, or its file")),
        ({"raw": " "}, ("a prompt must not be empty", None)),
        ({"raw": "a", "lable": "b"}, ('"lable" is not a key here', 'did you mean "label"?')),
        (
            "langfuse://x:3",
            ("prompts from langfuse are not supported", "save the prompt in a file and name that"),
        ),
        ("exec:", ('"exec:" names no program', "write exec:<command line>")),
        (
            "exec:a 'b",
            ('"a \'b" cannot be split into words: no closing quotation', "close the quote"),
        ),
    ],
)
def test_an_unusable_entry_is_reported(
    entry: Any, problem: tuple[str, str | None], tmp_path: Path
) -> None:
    """The message names a correction."""
    assert refused(entry, tmp_path) == [problem]


def test_a_text_file_is_split_at_lines_of_the_separator(tmp_path: Path) -> None:
    """Parts are trimmed; empty ones are not prompts."""
    (tmp_path / "p.txt").write_text("---\none\n\n --- \r\ntwo\r\nlines\n---\n  \n---\n")
    assert raws("file://p.txt", tmp_path) == ["one", "two\nlines"]
    assert labels("p.txt", tmp_path) == ["p.txt: one", "p.txt: two\nlines"]
    assert labels({"raw": "p.txt", "label": "L"}, tmp_path) == [
        "L: p.txt: one",
        "L: p.txt: two\nlines",
    ]


@pytest.mark.parametrize("prefix", ["TRIOEVAL_", "PROMPTFOO_"])
def test_the_separator_is_configurable(prefix: str, tmp_path: Path) -> None:
    """The environment sets it."""
    (tmp_path / "p.txt").write_text("a\n---\nb\n===\nc")
    context = FileContext(directory=tmp_path, environ={f"{prefix}PROMPT_SEPARATOR": "==="})
    assert [prompt.raw for prompt in read_prompts("p.txt", context)] == ["a\n---\nb", "c"]


@pytest.mark.parametrize("suffix", ["md", "j2"])
def test_a_markdown_file_is_one_unchanged_prompt(suffix: str, tmp_path: Path) -> None:
    """Its lines of dashes and its space stay; the label shows its beginning."""
    text = "# Title\n---\n" + "x" * 60 + "\n"
    (tmp_path / f"p.{suffix}").write_text(text)
    (prompt,) = read(f"file://p.{suffix}", tmp_path)
    assert prompt.raw == text
    assert prompt.label == f"p.{suffix}: {text[:50]}..."


def test_a_document_is_one_prompt_of_compact_json(tmp_path: Path) -> None:
    """Numbers are printed as in JavaScript, and files that it names are inserted."""
    (tmp_path / "p.json").write_text(
        '[{"role": "user", "content": "{{x}} é"}, 1.0, "file://s.yaml"]'
    )
    (tmp_path / "s.yaml").write_text("- a: no\n")
    expected = '[{"role":"user","content":"{{x}} é"},1,[{"a":"no"}]]'
    assert raws("p.json", tmp_path) == [expected]
    assert labels("p.json", tmp_path) == [f"p.json: {expected}"]
    (tmp_path / "p.yaml").write_text("- role: user\n  content: |\n    {{x}}\n")
    assert raws("p.yaml", tmp_path) == ['[{"role":"user","content":"{{x}}\\n"}]']


@pytest.mark.parametrize(
    ("name", "text"),
    [("p.json", '{"a": {{x | dump}}}\n'), ("p.yaml", "a: {{x}}: {{y}}\n"), ("p.yml", "a: [\n")],
)
def test_a_document_with_templates_is_used_unchanged(name: str, text: str, tmp_path: Path) -> None:
    """Templates may be where JSON allows no value."""
    (tmp_path / name).write_text(text)
    assert raws(name, tmp_path) == [text]


def test_a_file_named_in_a_document_must_exist(tmp_path: Path) -> None:
    """A message must not be the name of a file."""
    (tmp_path / "note.txt").write_text("a")
    (tmp_path / "p.json").write_text('[{"role": "user", "content": "file://nots.txt"}]')
    rule = f"paths in a file of prompts are relative to the suite's folder, {tmp_path}"
    hint = f'did you mean "note.txt"?; {rule}'
    assert refused("p.json", tmp_path) == [('file not found: "file://nots.txt"', hint)]


def test_all_missing_files_of_a_document_are_reported_where_they_are_named(
    tmp_path: Path,
) -> None:
    """Messages contain file, line and column, and the base of paths in it."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "sys.txt").write_text("beside it")
    file = tmp_path / "d" / "p.yaml"
    file.write_text("- role: system\n  content: file://sys.txt\n- content: [file://../x.txt]\n")
    with pytest.raises(MistakenError) as caught:
        read("file://d/p.yaml", tmp_path)
    rule = f"paths in a file of prompts are relative to the suite's folder, {tmp_path}"
    assert [(part.file, part.place, part.at, part.hint) for part in caught.value.parts] == [
        (file, (2, 12), (0, "content"), rule),
        (file, (3, 13), (1, "content", 0), f"allow it with --allow-outside; {rule}"),
    ]


def test_lines_of_jsonl_are_prompts(tmp_path: Path) -> None:
    """They are unchanged; the label of a single one is the name of the file."""
    (tmp_path / "p.jsonl").write_text('{"a": 1}\r\n\n{"a": 2}\n')
    assert raws("p.jsonl", tmp_path) == ['{"a": 1}', '{"a": 2}']
    assert labels({"raw": "p.jsonl", "label": "L"}, tmp_path) == ['L: {"a": 1}', 'L: {"a": 2}']
    (tmp_path / "one.jsonl").write_text("[1]\n")
    assert labels("one.jsonl", tmp_path) == ["one.jsonl"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prompt\nName {{a}}\n\nSay {{b}}\n", ["Name {{a}}", "Say {{b}}"]),
        ("Name {{a}}\nSay {{b}}\n", ["Name {{a}}", "Say {{b}}"]),
        ("\ufeffPrompt\nName\n", ["Name"]),
        ("prompt,label\nName,T\n\n,none\nSay,S\n", ["Name", "Say"]),
        ('label, prompt\nT, "Name, please"\n', ["Name, please"]),
        ('prompt,label\n"a, ""b"" , c" ,\t"T" \nSay,S', ['a, "b" , c', "Say"]),
        ("prompt\nName, please, all\nSay\n", ["Name, please, all", "Say"]),
        ('prompt\n"Name, all\nSay', ['"Name, all', "Say"]),
    ],
)
def test_a_table_has_a_column_of_prompts(text: str, expected: list[str], tmp_path: Path) -> None:
    """A file that is not a table has a prompt on each line."""
    (tmp_path / "p.csv").write_text(text)
    assert raws("file://p.csv", tmp_path) == expected


def test_rows_of_a_table_have_unique_labels(tmp_path: Path) -> None:
    """Given labels have precedence; no generated one equals them."""
    (tmp_path / "p.csv").write_text("prompt,label\na,\nb,L: a\na,\n")
    assert labels("p.csv", tmp_path) == ["Prompt 1 - a", "L: a", "Prompt 3 - a"]
    assert labels({"raw": "p.csv", "label": "L"}, tmp_path) == [
        "L: a (row 1)",
        "L: a",
        "L: a (row 3)",
    ]
    (tmp_path / "one.csv").write_text("prompt\na\n")
    assert labels({"raw": "one.csv", "label": "L"}, tmp_path) == ["L"]


def test_the_delimiter_is_configurable(tmp_path: Path) -> None:
    """The environment sets it."""
    (tmp_path / "p.csv").write_text("prompt;label\na, b;L\n")
    (prompt,) = read("p.csv", tmp_path, PROMPTFOO_CSV_DELIMITER=";")
    assert (prompt.raw, prompt.label) == ("a, b", "L")


def test_a_pattern_selects_all_matching_files_in_order(tmp_path: Path) -> None:
    """Each has a unique label and id."""
    (tmp_path / "d").mkdir()
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / "d" / name).write_text(name[0])
    assert labels("file://d/*.txt", tmp_path) == ["d/a.txt: a", "d/b.txt: b"]
    assert raws("d/*", tmp_path) == ["a", "b", "c"]
    named = read({"raw": "d/*.md", "label": "L", "id": "i"}, tmp_path)
    assert [(prompt.label, prompt.given_id) for prompt in named] == [("L: d/c.md", "i:d/c.md")]
    assert labels({"raw": "d/*.txt", "label": "L"}, tmp_path) == ["L: d/a.txt: a", "L: d/b.txt: b"]
    assert raws({"id": "file://d/a.txt"}, tmp_path) == ["a"]


def test_prompts_of_one_file_have_ids_with_a_common_prefix(tmp_path: Path) -> None:
    """A reference to that id matches all of them."""
    (tmp_path / "p.txt").write_text("a\n---\nb")
    prompts = read({"id": "i", "raw": "p.txt", "config": {"t": 1}}, tmp_path)
    assert [prompt.given_id for prompt in prompts] == ["i:1", "i:2"]
    assert all(prompt.config == {"t": 1} for prompt in prompts)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("file://prompt.txt", ('file not found: "prompt.txt"', 'did you mean "prompts.txt"?')),
        ("prompt.txt", ('file not found: "prompt.txt"', 'did you mean "prompts.txt"?')),
        ("file://no/*.txt", ("no file matches", "check the pattern")),
        ("no/*.txt", ("no file matches", "check the pattern")),
        ("file://../secret.txt", ('"../secret.txt" is outside', "allow it with --allow-outside")),
        ("file://data.bin", ('"data.bin" is not a file of prompts', "use one of .csv")),
        ("file://empty.txt", ('no prompts in "empty.txt"', None)),
        ("file://other.csv", ('no prompts in "other.csv"', "needs a column")),
        ("file://bad.py:f", ('"bad.py" is not Python: ', None)),
        (
            "file://nul.py:f",
            ('"nul.py" is not Python: source code string cannot contain null bytes', None),
        ),
        ("file://empty.json", ('no prompts in "empty.json"', None)),
        ("file://.hidden", ('".hidden" is not a file of prompts', "use one of .csv")),
        ("file://good.py:gt", ('function "gt" not found in "good.py"', 'did you mean "get"?')),
        ("file://latin.txt", ("byte 1 (0xe4) is not UTF-8", "save the file as UTF-8")),
    ],
)
def test_an_unusable_file_is_reported(
    entry: str, problem: tuple[str, str | None], tmp_path: Path
) -> None:
    """The name of a file is not meant as a prompt."""
    for name, content in {
        "prompts.txt": b"a",
        "data.bin": b"a",
        "empty.txt": b" \n---\n",
        "other.csv": b"question,label\na,b\n",
        "bad.py": b"def f(:\n",
        "nul.py": b"f = 1\0\n",
        "empty.json": b" \n",
        ".hidden": b"a",
        "good.py": b"def get(context):\n    return 'a'\n",
        "latin.txt": b"B\xe4r",
    }.items():
        (tmp_path / name).write_bytes(content)
    ((message, hint),) = refused(entry, tmp_path)
    assert message.startswith(problem[0])
    assert (hint is None) is (problem[1] is None)
    assert problem[1] is None or problem[1] in (hint or "")


def test_a_python_file_creates_the_prompt_when_a_row_runs(tmp_path: Path) -> None:
    """A function or the whole file creates it; the prompt shows the source."""
    source = "def ask(context):\n    return 'a'\n"
    (tmp_path / "p.py").write_text(source)
    (one,) = read("file://p.py:ask", tmp_path)
    assert (one.label, one.raw) == ("p.py:ask", source)
    assert one.function == PromptFunction(
        kind="python", target=str(tmp_path / "p.py"), function="ask"
    )
    (whole,) = read("p.py", tmp_path)
    assert whole.label == f"p.py: {source}"
    assert whole.function == PromptFunction(kind="python", target=str(tmp_path / "p.py"))


def test_a_program_creates_the_prompt_when_a_row_runs(tmp_path: Path) -> None:
    """It may be a command line, a script by its suffix, or any executable file."""
    (tmp_path / "gen me.sh").write_text("#!/bin/sh\necho a\n")
    (tmp_path / "gen").write_text("#!/bin/sh\necho a\n")
    (tmp_path / "gen").chmod(0o755)
    quoted = f"'{tmp_path / 'gen me.sh'}'"
    for entry, command in {
        "exec:python3 gen.py --fast": "python3 gen.py --fast",
        "exec:gen 'a b'": f"{tmp_path / 'gen'} 'a b'",
        "file://gen me.sh": quoted,
        "file://gen": str(tmp_path / "gen"),
    }.items():
        (prompt,) = read(entry, tmp_path)
        assert prompt.function == PromptFunction(kind="exec", target=command)


@pytest.mark.slow
@given(st.lists(st.text(alphabet="ab-= \n{}", min_size=1), min_size=1))
def test_parts_of_a_text_file_are_those_between_separators(pieces: list[str]) -> None:
    """This holds for any white space around separators."""
    whole = [piece for piece in pieces if "---" not in {line.strip() for line in piece.split("\n")}]
    expected = [piece.strip() for piece in whole if piece.strip()]
    assert list(_parts("\n---\n".join(whole), "---")) == expected


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab{é"),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("ab"), inner),
    )
)
def test_a_document_keeps_its_meaning(data: Any) -> None:
    """Compact JSON is equivalent."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "p.json").write_text(json.dumps(data))
        (prompt,) = read("p.json", Path(folder))
    assert json.loads(prompt.raw) == data
