"""Settings from environment variables."""

import re
from pathlib import Path

import pytest

from trioeval.cli.environment import ELSEWHERE, EnvironmentSettings, read_environment
from trioeval.errors import UsageError
from trioeval.report.strip import Strip


def test_an_empty_environment_gives_the_defaults() -> None:
    """An empty variable counts as not set."""
    assert read_environment({}) == EnvironmentSettings()
    assert read_environment({"PROMPTFOO_PASS_RATE_THRESHOLD": ""}) == EnvironmentSettings()


@pytest.mark.parametrize("prefix", ["TRIOEVAL_", "PROMPTFOO_"])
def test_every_variable_is_read_under_both_names(prefix: str) -> None:
    """Both names have the same meaning."""
    variables = {
        "MAX_CONCURRENCY": "7",
        "DELAY_MS": "20",
        "EVAL_TIMEOUT_MS": "300",
        "MAX_EVAL_TIME_MS": "4000",
        "CACHE_ENABLED": "no",
        "CACHE_PATH": "/c",
        "CACHE_TTL": "60",
        "CACHE_TYPE": "memory",
        "CONFIG_DIR": "/f",
        "DB": "/d/runs.db",
        "DISABLE_WAL_MODE": "true",
        "PASS_RATE_THRESHOLD": "62.5",
        "FAILED_TEST_EXIT_CODE": "0",
        "STRIP_PROMPT_TEXT": "1",
        "STRIP_RESPONSE_OUTPUT": "true",
        "STRIP_TEST_VARS": "YES",
        "STRIP_GRADING_RESULT": "true",
        "STRIP_METADATA": "true",
        "DISABLE_CSV_FORMULA_ESCAPING": "true",
    }
    assert read_environment(
        {prefix + name: text for name, text in variables.items()}
    ) == EnvironmentSettings(
        max_concurrency=7,
        delay_ms=20,
        timeout_ms=300,
        max_eval_time_ms=4000,
        cache=False,
        cache_path=Path("/c"),
        cache_ttl_s=60,
        cache_type="memory",
        config_dir=Path("/f"),
        db=Path("/d/runs.db"),
        wal=False,
        pass_rate_threshold=62.5,
        failed_exit_code=0,
        strip=Strip(
            prompt_text=True,
            response_output=True,
            test_vars=True,
            grading_result=True,
            metadata=True,
        ),
        escape_formulas=False,
    )


def test_the_name_of_trioeval_takes_precedence() -> None:
    """It is used instead of promptfoo's name."""
    found = read_environment({"PROMPTFOO_DELAY_MS": "50", "TRIOEVAL_DELAY_MS": "20"})
    assert found.delay_ms == 20


@pytest.mark.parametrize("name", ["ASSERTIONS_MAX_CONCURRENCY", "MAX_CONCURRENCY"])
@pytest.mark.parametrize("value", ["abc", "0", "-1", "2.5"])
def test_a_width_is_a_whole_number(name: str, value: str) -> None:
    """An invalid value is refused and not replaced by the default."""
    with pytest.raises(UsageError) as caught:
        read_environment({f"PROMPTFOO_{name}": value})
    why = "must be a whole number from 1 to 1000000"
    assert str(caught.value) == f"PROMPTFOO_{name} {why}, got {value!r}"


def test_a_timeout_is_not_negative() -> None:
    """0 means no limit."""
    with pytest.raises(UsageError, match=r"^PROMPTFOO_EVAL_TIMEOUT_MS must be a number at least 0"):
        read_environment({"PROMPTFOO_EVAL_TIMEOUT_MS": "-1"})


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        *((name, "maybe", "must be true or false, got 'maybe'") for name in ELSEWHERE),
        ("PYTHON_WORKERS", "0", "must be a whole number from 1 to 64, got '0'"),
        ("CSV_DELIMITER", "ab", "must be one character, got 'ab'"),
    ],
)
def test_invalid_values_of_other_modules_are_refused_here(name: str, value: str, why: str) -> None:
    """They are refused before a file is read; valid values pass."""
    with pytest.raises(UsageError, match=re.escape(f"PROMPTFOO_{name} {why}")):
        read_environment({f"PROMPTFOO_{name}": value})
    right = {"PYTHON_WORKERS": "2", "CSV_DELIMITER": "\t"}.get(name, "true")
    assert read_environment({f"TRIOEVAL_{name}": right}) == EnvironmentSettings()


def test_all_invalid_values_are_named() -> None:
    """The message names the variable that was set and the valid values."""
    with pytest.raises(UsageError) as caught:
        read_environment(
            {
                "PROMPTFOO_DELAY_MS": "-1",
                "TRIOEVAL_CACHE_TYPE": "tape",
                "TRIOEVAL_PASS_RATE_THRESHOLD": "all",
                "PROMPTFOO_FAILED_TEST_EXIT_CODE": "256",
                "TRIOEVAL_STRIP_METADATA": "maybe",
                "PROMPTFOO_MAX_EVAL_TIME_MS": "inf",
            }
        )
    assert str(caught.value).splitlines() == [
        "PROMPTFOO_DELAY_MS must be a number at least 0, got '-1'",
        "PROMPTFOO_MAX_EVAL_TIME_MS must be a number at least 0, got 'inf'",
        "TRIOEVAL_CACHE_TYPE must be disk or memory, got 'tape'",
        "TRIOEVAL_PASS_RATE_THRESHOLD must be a number from 0 to 100, got 'all'",
        "PROMPTFOO_FAILED_TEST_EXIT_CODE must be a whole number from 0 to 255, got '256'",
        "TRIOEVAL_STRIP_METADATA must be true or false, got 'maybe'",
    ]


def test_unsupported_and_unsafe_variables_cause_warnings() -> None:
    """Warnings name the variable that was set; a switch that is off causes none."""
    found = read_environment({"PROMPTFOO_REQUIRE_JSON_PROMPTS": "1", "TRIOEVAL_INSECURE_SSL": "1"})
    assert found.warnings == (
        "TRIOEVAL_INSECURE_SSL: certificates of servers are not verified",
        "PROMPTFOO_REQUIRE_JSON_PROMPTS is not supported and has no effect",
    )
    assert read_environment({"PROMPTFOO_INSECURE_SSL": "false"}).warnings == ()
