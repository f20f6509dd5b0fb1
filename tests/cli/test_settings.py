"""Precedence of flags, the suite's commandLineOptions, its evaluateOptions, and the environment."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from trioeval.cli.environment import EnvironmentSettings
from trioeval.cli.flags import LimitFlags, OutputFlags, RowFlags, RunFlags, SuiteFlags
from trioeval.cli.settings import (
    EarlierFile,
    earlier_files,
    filters_of,
    resolve_settings,
    runs_one_by_one,
    unused_option_warnings,
    with_flags,
)
from trioeval.errors import SuiteError, UsageError
from trioeval.grading.patterns import compile_javascript
from trioeval.loading.load import parse_suite
from trioeval.suite.filters import Filters
from trioeval.suite.model import BudgetSettings, Suite

NOTHING = EnvironmentSettings()


def suite_of(**more: Any) -> Suite:
    return parse_suite({"providers": ["echo"], "prompts": ["x"], **more}, directory=Path("/s"))


def filtered(suite: Suite, **rows: Any) -> Filters:
    return filters_of(suite, resolve_settings(suite, RunFlags(rows=RowFlags(**rows))).rows)


def changed(suite: Suite, *, environment: EnvironmentSettings = NOTHING, **flags: Any) -> Suite:
    return with_flags(suite, resolve_settings(suite, RunFlags(**flags)), environment)


@pytest.mark.parametrize(
    ("flag", "given", "options", "environment", "delay"),
    [
        (1.0, {"delay": 2}, {"delay": 3}, 4.0, 1),
        (None, {"delay": 2}, {"delay": 3}, 4.0, 2),
        (None, {}, {"delay": 3}, 4.0, 3),
        (None, {}, {}, 4.0, 4),
        (None, {}, {}, None, 0),
        (0.0, {"delay": 2}, {"delay": 3}, 4.0, 0),
    ],
)
def test_the_most_specific_setting_applies(
    flag: float | None,
    given: dict[str, Any],
    options: dict[str, Any],
    environment: float | None,
    delay: float,
) -> None:
    """A flag comes first, then commandLineOptions, then evaluateOptions, then the environment."""
    suite = suite_of(commandLineOptions=given, evaluateOptions=options)
    settings = EnvironmentSettings(delay_ms=environment)
    found = changed(suite, environment=settings, limits=LimitFlags(delay=flag))
    assert found.evaluate_options.delay == delay


@pytest.mark.parametrize(
    ("flag", "options", "environment", "in_order"),
    [
        (5.0, {}, None, True),
        (None, {}, 5.0, True),
        (0.0, {}, 5.0, False),
        (None, {"delay": 3}, None, False),
        (None, {"delay": 3}, 5.0, False),
        (None, {"serialize": "auto"}, 5.0, False),
    ],
)
def test_a_delay_of_the_environment_serializes_rows_like_a_flag(
    flag: float | None, options: dict[str, Any], environment: float | None, *, in_order: bool
) -> None:
    """A delay of the suite itself applies only to lanes."""
    suite, flags = suite_of(evaluateOptions=options), RunFlags(limits=LimitFlags(delay=flag))
    found = runs_one_by_one(
        suite, resolve_settings(suite, flags), EnvironmentSettings(delay_ms=environment)
    )
    assert found is in_order


def test_max_concurrency_of_the_environment_is_a_fallback() -> None:
    """The suite's own options take precedence, and so does the flag, which limits every lane."""
    environment = EnvironmentSettings(max_concurrency=9)
    plain = changed(suite_of(), environment=environment).evaluate_options
    own = changed(suite_of(evaluateOptions={"maxConcurrency": 4}), environment=environment)
    assert (plain.max_concurrency, own.evaluate_options.max_concurrency) == (9, 4)
    both = suite_of(evaluateOptions={"maxTotalConcurrency": 5})
    flags = LimitFlags(max_total_concurrency=2)
    assert changed(both).evaluate_options.max_total_concurrency == 5
    assert changed(both, limits=flags).evaluate_options.max_total_concurrency == 2


def test_limits_go_into_the_options_of_the_suite() -> None:
    """Seconds become milliseconds, 0 means no limit, and a budget keeps the amounts without a flag."""
    suite = suite_of(
        evaluateOptions={"timeoutMs": 5, "repeat": 2, "budget": {"usd": 1, "tokens": 10}},
        commandLineOptions={"repeat": 3},
    )
    flags = LimitFlags(timeout=0, max_time=1.5, max_tokens=7, max_requests=0)
    options = changed(suite, limits=flags).evaluate_options
    assert (options.timeout_ms, options.max_eval_time_ms, options.repeat) == (None, 1500, 3)
    assert options.budget == BudgetSettings(requests=0, tokens=7, usd=1)
    environment = EnvironmentSettings(timeout_ms=9, max_eval_time_ms=8)
    plain = changed(suite_of(), environment=environment).evaluate_options
    assert (plain.timeout_ms, plain.max_eval_time_ms, plain.budget) == (9, 8, None)
    assert changed(suite, environment=environment).evaluate_options.timeout_ms == 5


def test_flags_about_every_test_change_the_default_test() -> None:
    """Variables, prefix, suffix and grader of flags take precedence; everything else is unchanged."""
    default = {"vars": {"a": "1", "b": "2"}, "options": {"prefix": "p", "transform": "output"}}
    suite = suite_of(defaultTest=default, commandLineOptions={"promptSuffix": "s", "grader": "g"})
    flags = SuiteFlags(var=("b=3=4", "c="), prompt_prefix="P", description="d", tag=("t=1",))
    found = changed(suite, what=flags)
    assert found.default_test is not None
    assert found.default_test.vars == {"a": "1", "b": "3=4", "c": ""}
    options = found.default_test.options
    assert (options.prefix, options.suffix, options.provider) == ("P", "s", "g")
    assert options.transform == "output"
    assert (found.description, found.tags) == ("d", {"t": "1"})
    assert changed(suite_of()).default_test is None


def test_questions_are_sent_unchanged(tmp_path: Path) -> None:
    """Flags about tests apply to the tests of other tasks; limits apply to all tasks."""
    question = {"question": "?", "answers": ["a"], "correctAnswers": ["a"]}
    (tmp_path / "q.json").write_text(json.dumps({"version": 1, "questions": [question]}))
    tasks = [{"type": "question_eval", "questionsFile": "q.json"}, {"type": "prompt_eval"}]
    suite = parse_suite(
        {
            "providers": ["echo"],
            "tasks": tasks,
            "commandLineOptions": {"extension": ["file://hooks.py:hook"], "var": {"question": "!"}},
        },
        directory=tmp_path,
    )
    flags = SuiteFlags(var=("a=1",), prompt_prefix="P")
    questions, other = (
        task.suite for task in changed(suite, what=flags, limits=LimitFlags(repeat=2)).tasks
    )
    assert (questions.default_test, questions.extensions) == (None, ())
    assert other.default_test is not None
    assert other.default_test.vars == {"question": "!", "a": "1"}
    assert other.extensions
    assert questions.evaluate_options.repeat == other.evaluate_options.repeat == 2


def test_outputs_of_a_suite_are_relative_to_its_folder_and_those_of_flags_are_not() -> None:
    """Files of a flag are written instead of all others."""
    suite = suite_of(outputPath=["o.json", "/s/abs/o.csv"])
    assert resolve_settings(suite, RunFlags()).output.output == (
        Path("/s/o.json"),
        Path("/s/abs/o.csv"),
    )
    flags = RunFlags(output=OutputFlags(output=(Path("mine.json"),)))
    assert resolve_settings(suite, flags).output.output == (Path("mine.json"),)


def test_display_options_come_from_flags_or_the_suite() -> None:
    """Table, cells, progress and the exit code of a failed run."""
    suite = suite_of(
        commandLineOptions={"table": False, "tableCellMaxLength": 99, "maxConcurrency": 2},
        evaluateOptions={"showProgressBar": False},
    )
    assert resolve_settings(suite, RunFlags()) == RunFlags(
        output=OutputFlags(table=False, table_cell_max_length=99, progress=False),
        limits=LimitFlags(max_concurrency=2),
    )
    output = OutputFlags(table=True, table_cell_max_length=8, progress=True, fail_exit_code=4)
    flags = RunFlags(output=output, limits=LimitFlags(max_concurrency=5))
    assert resolve_settings(suite, flags) == flags


@pytest.mark.parametrize(
    ("flag", "more", "one_by_one"),
    [
        (5.0, {}, True),
        (None, {"commandLineOptions": {"delay": 5}}, True),
        (None, {"evaluateOptions": {"delay": 5}}, False),
        (0.0, {"commandLineOptions": {"delay": 5}}, False),
        (5.0, {"evaluateOptions": {"serialize": "auto"}}, False),
    ],
)
def test_a_delay_of_the_command_line_makes_the_run_serial(
    flag: float | None, more: dict[str, Any], *, one_by_one: bool
) -> None:
    """This is as in promptfoo, unless the suite requires order only where it matters."""
    flags = RunFlags(limits=LimitFlags(delay=flag))
    suite = suite_of(**more)
    assert runs_one_by_one(suite, resolve_settings(suite, flags), NOTHING) is one_by_one


def test_filters_of_flags_take_precedence_over_those_of_the_suite() -> None:
    """Those of commandLineOptions take precedence over evaluateOptions."""
    suite = suite_of(
        commandLineOptions={
            "filterFirstN": 4,
            "filterMetadata": "k=v",
            "filterRange": "1:2",
            "filterPattern": "p",
        },
        evaluateOptions={"filterRange": "5:6"},
    )
    assert filtered(suite) == Filters(
        metadata=(("k", "v"),), first_n=4, range=slice(1, 2), pattern=compile_javascript("p")
    )
    found = filtered(suite, filter_range="3:", filter_metadata=("a=b", "c=d"), filter_sample_seed=1)
    assert (found.range, found.metadata) == (slice(3, None), (("a", "b"), ("c", "d")))
    only = suite_of(evaluateOptions={"filterRange": "5:6"})
    assert filtered(only) == Filters(range=slice(5, 6))


def test_an_invalid_filter_is_refused_by_its_name() -> None:
    """It is refused before anything runs."""
    for flags, name in (
        (RowFlags(filter_metadata=("k",)), "--filter-metadata"),
        (RowFlags(filter_range="x"), "--filter-range"),
        (RowFlags(filter_pattern="["), "--filter-pattern"),
    ):
        with pytest.raises(UsageError, match=f"^{name} "):
            filters_of(suite_of(), flags)
    for flags, name in (
        (RowFlags(filter_prompts="["), "--filter-prompts"),
        (RowFlags(filter_providers="["), "--filter-providers"),
    ):
        with pytest.raises(UsageError, match=f"^{name} "):
            changed(suite_of(), rows=flags)


def test_earlier_results_are_named_by_flags_or_the_suite() -> None:
    """Each option selects rows of its file."""
    suite = suite_of(commandLineOptions={"filterFailing": "old.json", "filterErrorsOnly": "e.json"})
    flags = RowFlags(filter_failing_only=Path("f.json"), filter_errors_only=Path("x.json"))
    assert earlier_files(resolve_settings(suite, RunFlags(rows=flags)).rows) == (
        EarlierFile(Path("/s/old.json"), failures=True, errors=True),
        EarlierFile(Path("f.json"), failures=True, errors=False),
        EarlierFile(Path("x.json"), failures=False, errors=True),
    )
    assert earlier_files(resolve_settings(suite_of(), RunFlags()).rows) == ()


def test_columns_are_filtered_before_they_are_numbered() -> None:
    """Flags filter them, or the suite under either name."""
    suite = suite_of(
        providers=[{"id": "echo", "label": "one"}, {"id": "echo", "label": "two"}],
        commandLineOptions={"filterTargets": "two"},
    )
    assert [entry.label for entry in changed(suite).providers] == ["two"]
    rows = RowFlags(filter_providers="one", filter_prompts="nothing")
    found = changed(suite, rows=rows)
    assert [entry.label for entry in found.providers] == ["one"]
    assert found.prompts == ()


def test_options_of_promptfoo_are_accepted() -> None:
    """Supported options apply, flags take precedence, and unsupported ones cause a warning if set."""
    suite = suite_of(
        tags={"a": "1", "b": "1"},
        commandLineOptions={
            "envPath": [".env", ".env.local"],
            "extension": "file://hooks.py:before",
            "filterSampleSeed": 7,
            "generateSuggestions": False,
            "noShare": True,
            "share": True,
            "tags": {"b": 2},
            "verbose": True,
            "watch": False,
        },
    )
    assert suite.command_line_options.env_path == (".env", ".env.local")
    assert filtered(suite).sample_seed == 7
    assert filtered(suite, filter_sample_seed=0).sample_seed == 0
    found = changed(suite)
    assert found.tags == {"a": "1", "b": "2"}
    assert found.extensions == ("file://hooks.py:before",)
    # The suite has the flag's hook already.
    given = attrs.evolve(suite, extensions=("file://own.py:before",))
    found = changed(given, what=SuiteFlags(extension=("own.py:before",), tag=("b=3",)))
    assert found.tags == {"a": "1", "b": "3"}
    assert found.extensions == ("file://own.py:before",)
    assert unused_option_warnings(suite, RunFlags()) == (
        "commandLineOptions.share: results are not shared; send the file that -o writes",
    )


def quiz_of(folder: Path, **options: Any) -> Suite:
    """A suite with a question task, `quiz`, and a task of prompts."""
    question = {"question": "Sky?", "answers": ["Red", "Blue"], "correctAnswers": ["Blue"]}
    (folder / "q.json").write_text(json.dumps({"version": 1, "questions": [question]}))
    quiz = {"id": "quiz", "type": "question_eval", "questionsFile": "q.json"}
    other = {"id": "other", "type": "prompt_eval", "prompts": ["x"]}
    document = {"providers": ["echo"], "tasks": [quiz, other], "commandLineOptions": options}
    return parse_suite(document, directory=folder)


def test_event_lines_of_questions_replace_the_progress(tmp_path: Path) -> None:
    """The progress is shown without such lines, or if it is requested."""

    def shown(suite: Suite, **output: Any) -> bool:
        return (
            resolve_settings(suite, RunFlags(output=OutputFlags(**output))).output.progress is True
        )

    plain, quiz = suite_of(), quiz_of(tmp_path)
    assert (shown(plain), shown(quiz)) == (True, True)
    assert (shown(plain, verbose=True), shown(quiz, verbose=True)) == (True, False)
    assert shown(quiz, verbose=True, progress=True)
    given = {"verbose": True}
    assert shown(suite_of(commandLineOptions=given))
    assert not shown(quiz_of(tmp_path, verbose=True))
    assert shown(quiz_of(tmp_path, verbose=True, progressBar=True))
    assert not shown(quiz_of(tmp_path, verbose=True, progressBar=True), progress=False)


def test_options_without_effect_on_questions_cause_warnings(tmp_path: Path) -> None:
    """Warnings give the reason, for flags and for options of the suite; other suites get none."""
    flags = RunFlags(what=SuiteFlags(var=("a=b",), prompt_prefix="p", extension=("h.py:f",)))
    as_they_stand = "they are sent as their file has them"
    reason = "no effect on the questions of quiz"
    assert unused_option_warnings(quiz_of(tmp_path, grader="echo", var={"c": "d"}), flags) == (
        f"--var: {reason}: {as_they_stand}",
        f"--prompt-prefix: {reason}: {as_they_stand}",
        f"commandLineOptions.grader: {reason}: no model grades their answers",
        f"--extension: {reason}: hooks apply to tests",
    )
    assert unused_option_warnings(quiz_of(tmp_path, promptSuffix="s"), RunFlags()) == (
        f"commandLineOptions.promptSuffix: {reason}: {as_they_stand}",
    )
    assert unused_option_warnings(quiz_of(tmp_path), RunFlags()) == ()
    assert unused_option_warnings(suite_of(), flags) == ()


def test_near_keys_are_listed_once() -> None:
    """This holds for any number of wrong keys."""
    options = {"qqq": 1, "zzz": 2, "repaet": 3}
    with pytest.raises(SuiteError) as caught:
        parse_suite({"providers": ["echo"], "commandLineOptions": options}, strict=True)
    assert str(caught.value).count("nearest are") == 1
    assert 'did you mean "repeat"?' in str(caught.value)
