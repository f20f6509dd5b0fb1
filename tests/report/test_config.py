"""The suite in a document is complete and contains no secrets."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
from finished import headed, results_of

import trioeval
from trioeval.report.formats.document import document
from trioeval.report.formats.json import json_chunks
from trioeval.report.head import config_tests
from trioeval.report.results import Results
from trioeval.report.strip import Strip

SUITE: dict[str, Any] = {
    "description": "d",
    "tags": {"team": "a"},
    "providers": [
        {
            "id": "mine",
            "label": "m",
            "config": {"apiKey": "sk-1", "temperature": 0},
            "env": {"DSN": "s3cret"},
            "lane": {"rpm": 60},
        }
    ],
    "prompts": [{"raw": "say {{word}}", "label": "saying", "config": {"apiKey": "sk-2"}}],
    "defaultTest": {"options": {"prefix": "please "}, "vars": {"tone": "kind"}},
    "tests": [{"vars": {"word": "hi"}, "assert": [{"type": "contains", "value": "hi"}]}],
    "scenarios": [
        {"description": "s", "config": [{"vars": {"a": "1"}}], "tests": [{"vars": {"word": "ho"}}]}
    ],
    "env": {"MY_DSN": "postgres://u:s3cret@host", "PROMPTFOO_CSV_STRICT": "true"},
    "derivedMetrics": [{"name": "d", "value": "m * 2"}],
    "metadata": {"owner": "me"},
    "outputPath": "out.json",
    "evaluateOptions": {"repeat": 2, "serialize": "auto"},
    "commandLineOptions": {"var": {"tone": "rude"}},
}


def written(results: Results) -> dict[str, Any]:
    found: dict[str, Any] = json.loads("".join(json_chunks(document(results))))["config"]
    return found


def results_from(suite: trioeval.Suite, strip: Strip | None = None) -> Results:
    results = results_of({"providers": ["echo"]})
    info = results.info if strip is None else attrs.evolve(results.info, strip=strip)
    return attrs.evolve(results, head=headed(suite), info=info, tests=lambda: config_tests(suite))


def test_a_config_contains_the_suite() -> None:
    """The whole suite is included, with the defaults that promptfoo has; credentials are removed."""
    assert written(results_from(trioeval.parse_suite(SUITE))) == {
        "description": "d",
        "tags": {"team": "a"},
        "providers": [
            {
                "id": "mine",
                "label": "m",
                "config": {"apiKey": "[redacted]", "temperature": 0},
                "env": {"DSN": "[redacted]"},
                "lane": {"rpm": 60},
            }
        ],
        "prompts": [{"raw": "say {{word}}", "label": "saying", "config": {"apiKey": "[redacted]"}}],
        "tests": SUITE["tests"],
        "scenarios": SUITE["scenarios"],
        "derivedMetrics": [{"name": "d", "value": "m * 2"}],
        "defaultTest": {**SUITE["defaultTest"], "metadata": {"owner": "me"}},
        "env": {"MY_DSN": "[redacted]", "PROMPTFOO_CSV_STRICT": "true"},
        "outputPath": ["out.json"],
        "metadata": {"owner": "me"},
        "commandLineOptions": {"var": {"tone": "rude"}},
        "evaluateOptions": {
            "maxConcurrency": 4,
            "repeat": 2,
            "delay": 0,
            "timeoutMs": None,
            "maxEvalTimeMs": None,
            "serialize": "auto",
        },
    }


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("prompt_text", ["say {{word}}", "saying", "please"]),
        ("test_vars", ['"word"', '"kind"', '"rude"', '"a": "1"']),
        ("metadata", ["owner"]),
        ("response_output", ["given"]),
    ],
)
def test_a_config_omits_stripped_parts(name: str, texts: list[str]) -> None:
    """Keys are removed from tests, defaults, scenarios and options."""
    one = {"vars": {"word": "hi"}, "providerOutput": "given"}
    suite = trioeval.parse_suite({**SUITE, "tests": [one]})
    whole = json.dumps(written(results_from(suite)))
    left = json.dumps(written(results_from(suite, Strip(**{name: True}))))
    for text in texts:
        assert text in whole
        assert text not in left


@pytest.mark.slow
def test_a_large_test_file_is_included_by_name(tmp_path: Path) -> None:
    """Keys are removed from tests that are not in the suite itself."""
    lines = (json.dumps({"vars": {"n": str(n)}}) for n in range(20_001))
    (tmp_path / "many.jsonl").write_text("\n".join(lines))
    one = {"vars": {"n": "first"}}
    (tmp_path / "s.json").write_text(
        json.dumps({"providers": ["echo"], "tests": [one, "file://many.jsonl"]})
    )
    found = written(results_from(trioeval.load_suite(tmp_path / "s.json")))
    assert found["tests"] == [one, f"file://{tmp_path / 'many.jsonl'}"]
    strip = Strip(test_vars=True)
    left = written(results_from(trioeval.load_suite(tmp_path / "s.json"), strip))
    assert left["tests"] == [{}, f"file://{tmp_path / 'many.jsonl'}"]
