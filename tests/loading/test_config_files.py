"""Files in the config of a provider are read with the suite."""

import json
from pathlib import Path
from typing import Any

import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite
from trioeval.suite.model import Suite

TOOLS = [{"type": "function", "function": {"name": "look"}}]
FILES = {
    "tools.yaml": "- type: function\n  function: {name: look}\n",
    "parts/f.json": '{"name": "f"}',
    "system.txt": "Be brief.\n",
    "code.py": "def tools(): ...\n",
    "body.bin": "x",
}


def loaded(folder: Path, **keys: Any) -> Suite:
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    (folder / "suite.json").write_text(json.dumps({"providers": ["echo"], **keys}))
    return load_suite(folder / "suite.json")


def problems_of(folder: Path, **keys: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        loaded(folder, **keys)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_files_in_a_config_are_data_or_text(tmp_path: Path) -> None:
    """JSON and YAML are data, other files text; all of them are files of the suite."""
    config = {
        "tools": "file://tools.yaml",
        "deep": {"functions": ["file://parts/f.json", {"system": "file://system.txt"}]},
        "n": 1,
    }
    suite = loaded(tmp_path, providers=[{"id": "openai:gpt-4.1", "config": config}])
    assert suite.providers[0].config == {
        "tools": TOOLS,
        "deep": {"functions": [{"name": "f"}, {"system": "Be brief.\n"}]},
        "n": 1,
    }
    assert {file.name for file in suite.files} == {
        "suite.json",
        "tools.yaml",
        "f.json",
        "system.txt",
    }


def test_files_are_read_in_every_form_of_a_config(tmp_path: Path) -> None:
    """In a provider by id, in one of a test, in the config of a prompt, in the options of a test."""
    named = {"tools": "file://tools.yaml"}
    suite = loaded(
        tmp_path,
        providers=[{"openai:gpt-4.1": {"config": named}}],
        prompts=[{"raw": "a", "config": named}],
        tests=[{"provider": {"id": "openai:x", "config": named}, "options": named}],
    )
    (test,) = suite.tests
    assert test.provider is not None
    found = [
        suite.providers[0].config,
        suite.prompts[0].config,
        test.provider.config,
        test.options.overrides,
    ]
    assert found == [{"tools": TOOLS}] * 4


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("http", {"transformResponse": "file://code.py:tools"}),
        ("http", {"multipart": [{"source": {"path": "file://body.bin"}}]}),
        ("exec:cat", {"a": "file://tools.yaml"}),
    ],
)
def test_files_that_a_provider_reads_itself_stay_names(
    tmp_path: Path, name: str, config: dict[str, Any]
) -> None:
    """Code for each reply runs later, parts of a body are sent unchanged, a command gets its text."""
    suite = loaded(tmp_path, providers=[{"id": name, "config": config}])
    assert suite.providers[0].config == config


def test_a_function_in_a_config_is_replaced_by_its_result(tmp_path: Path) -> None:
    """This holds in providers, prompts and options of tests; the default name is `get_config`."""
    code = "def tools():\n    return [{'n': 1}]\ndef get_config():\n    return 'all'\n"
    (tmp_path / "own.py").write_text(code)
    named = {"tools": "file://own.py:tools", "deep": [{"a": "file://own.py"}]}
    suite = loaded(
        tmp_path,
        providers=[{"id": "python:own.py", "config": named}],
        prompts=[{"raw": "a", "config": named}],
        tests=[{"options": named}],
    )
    (test,) = suite.tests
    found = [suite.providers[0].config, suite.prompts[0].config, test.options.overrides]
    assert found == [{"tools": [{"n": 1}], "deep": [{"a": "all"}]}] * 3


def test_a_function_in_a_config_that_cannot_be_called_is_refused(tmp_path: Path) -> None:
    """The provider must not get the name of the file as a text."""
    (tmp_path / "own.py").write_text("def fails():\n    raise ValueError('no')\n")
    config = {"a": "file://own.py:fails", "b": ["file://x.js:f"]}  # the second file is missing
    fails, script = problems_of(tmp_path, providers=[{"id": "python:own.py", "config": config}])
    assert 'config.a: fails of "own.py" failed: ValueError: no' in fails
    assert 'config.b[0]: file not found: "x.js"' in script


def test_mistakes_of_files_are_reported_at_their_place(tmp_path: Path) -> None:
    """Missing files are reported in the suite, invalid ones in themselves; files outside are refused."""
    (tmp_path / "broken.yaml").write_text("a: [1\n")
    config = {"a": {"b": "file://tool.yaml"}, "c": "file://broken.yaml", "d": "file:///etc/hosts"}
    missing, outside, broken = problems_of(
        tmp_path, providers=["echo", {"id": "x", "config": config}]
    )
    assert missing == (
        'suite.json:1:58: $.providers[1].config.a.b: file not found: "file://tool.yaml"\n'
        '  did you mean "tools.yaml"?'
    )
    assert "$.providers[1].config.d" in outside
    assert "is outside of the suite's folder" in outside
    assert broken.startswith("broken.yaml:2:1: ")
    (below,) = problems_of(tmp_path, providers=[{"x": {"config": {"a": "file://no.yaml"}}}])
    assert "$.providers[0].x.config.a: file not found" in below
