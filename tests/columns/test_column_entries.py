"""Tasks that build datasets, in a suite file: their settings and their mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest
from columns_suites import (
    LLM,
    PROVIDERS,
    TOPIC,
    A,
    B,
    column_of,
    fill,
    hinted,
    parsed,
    problems_of,
    settings_of,
)

from trioeval.columns.model import (
    CategorySampler,
    ColumnsSettings,
    DatetimeSampler,
    EmbeddingColumn,
    ErrorWindow,
    ExpressionColumn,
    GaussianSampler,
    JudgeColumn,
    LlmColumn,
    ModelCallSettings,
    Processor,
    PythonColumn,
    SamplerColumn,
    Score,
    SeedColumns,
    Skip,
    SubcategorySampler,
    UniformSampler,
    UuidSampler,
    ValidationColumn,
    folder_of,
)
from trioeval.errors import SuiteError
from trioeval.grading import Assertion
from trioeval.loading.load import load_suite, parse_suite
from trioeval.suite.model import Test

_OWN = 'an object such as {"id": "openai:chat:gpt-4.1-mini"} defines a separate provider'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seeds, a prompt, a schema and functions."""
    return fill(tmp_path)


def test_an_entry_is_parsed_into_dataset_settings(folder: Path) -> None:
    """Both spellings are accepted; missing settings have their defaults."""
    settings = settings_of(
        folder,
        A,
        B,
        groupSize=25,
        seed=7,
        output_dir="data",
        format="jsonl",
        resume="ifPossible",
        salvageRounds=3,
        maxOpenCells=5,
        max_open_bytes=6,
        shutdown={"errorRate": 1, "enabled": False},
        processors=[
            {
                "stage": "before_batch",
                "target": "file://gen.py:make",
                "onError": "dropGroup",
                "timeout": 5,
            },
            {"stage": "afterGeneration", "dropColumns": ["*b"], "keepAside": False},
        ],
    )
    a = SamplerColumn(name="a", outputs=("a",), sampler=UniformSampler(low=0, high=9))
    b = ExpressionColumn(name="b", outputs=("b",), requires=("a",), template="{{ a }}")
    assert settings == ColumnsSettings(
        columns=(a, b),
        rows=3,
        group_size=25,
        seed=7,
        output_dir=Path.cwd() / "data",
        format="jsonl",
        existing="if_possible",
        salvage_rounds=3,
        max_open_cells=5,
        max_open_bytes=6,
        shutdown=ErrorWindow(error_rate=1, enabled=False),
        processors=(
            Processor(
                stage="before_batch",
                target=f"file://{folder}/gen.py:make",
                on_error="drop_group",
                timeout_s=5,
            ),
            Processor(stage="after_generation", drop_columns=("*b",), keep_aside=False),
        ),
    )
    assert settings_of(folder, A) == ColumnsSettings(columns=(a,), rows=3)


def test_the_default_folder_of_a_dataset_is_that_of_its_task(folder: Path) -> None:
    """A setting overrides it."""
    assert folder_of(settings_of(folder, A), "data") == Path.cwd() / "datasets" / "data"
    assert folder_of(settings_of(folder, A, outputDir="x/y"), "data") == Path.cwd() / "x/y"


def test_columns_of_all_types_are_parsed(folder: Path) -> None:
    """Each column has the settings of its entry, and the columns that it needs."""
    seed: dict[str, Any] = {"type": "seed", "file": "people.csv", "columns": ["name", "age"]}
    assert column_of(folder, {**seed, "order": "shuffled", "seed": 3}) == SeedColumns(
        name="name",
        outputs=("name", "age"),
        file=folder / "people.csv",
        columns={"name": "name", "age": "age"},
        order="shuffled",
        seed=3,
    )
    assert column_of(
        folder, {**seed, "columns": {"who": "full name"}, "dropWhen": "who == 'x'", "keep": True}
    ) == SeedColumns(
        name="who",
        outputs=("who",),
        file=folder / "people.csv",
        columns={"who": "full name"},
        drop_when="who == 'x'",
    )
    b = {"name": "b", "type": "expression"}
    assert column_of(folder, A, {**b, "python": "int(a) + len('b')"}) == ExpressionColumn(
        name="b", outputs=("b",), requires=("a",), python="int(a) + len('b')", as_type="json"
    )
    assert column_of(folder, A, {**b, "template": "{{ a }}", "as": "int"}) == ExpressionColumn(
        name="b", outputs=("b",), requires=("a",), template="{{ a }}", as_type="int"
    )
    assert column_of(
        folder, A, {"name": "v", "type": "embedding", "provider": "writer", "text": "{{ a }}"}
    ) == EmbeddingColumn(name="v", outputs=("v",), requires=("a",), provider=0, text="{{ a }}")
    score: dict[str, Any] = {
        "name": "clarity",
        "description": "how clear",
        "options": {"1": "bad", "5": "good"},
    }
    judge = {"name": "j", "type": "judge", "provider": "echo:judge", "prompt": "{{ a }}"}
    assert column_of(folder, A, {**judge, "scores": [score]}) == JudgeColumn(
        name="j",
        outputs=("j",),
        requires=("a",),
        asking=ModelCallSettings(provider=0, prompt="{{ a }}"),
        scores=(Score(**score),),
    )


def test_a_model_column_has_its_call_settings(folder: Path) -> None:
    """It has its own keys and those of the call; needed columns are in the order of the entry, each once."""
    column = column_of(
        folder,
        A,
        TOPIC,
        {
            **LLM,
            "prompt": "{{ topic }} {{ range(a) | length }} {{ env.X }}",
            "config": {"temperature": 1},
            "restarts": 0,
            "corrections": 2,
            "schema": {"type": "string"},
            "reasoning": "thought",
            "trace": "trail",
            "requires": ["topic.x", "text"],
            "skip": {
                "when": "a > 3 and topic",
                "value": "-",
                "propagate": False,
                "onError": "skip",
            },
            "dropWhen": "text == trail",
            "keep": False,
        },
    )
    assert column == LlmColumn(
        name="text",
        outputs=("text",),
        requires=("a", "topic"),
        asking=ModelCallSettings(
            provider=0,
            prompt="{{ topic }} {{ range(a) | length }} {{ env.X }}",
            config={"temperature": 1},
            restarts=0,
            corrections=2,
        ),
        schema={"type": "string"},
        reasoning="thought",
        trace="trail",
        skip=Skip(when="a > 3 and topic", value="-", propagate=False, on_error="skip"),
        drop_when="text == trail",
        keep=False,
    )


def test_prompts_and_schemas_may_be_files(folder: Path) -> None:
    """Prompts may also be messages."""
    column = column_of(
        folder, TOPIC, {**LLM, "prompt": "file://ask.txt", "schema": "file://answer.json"}
    )
    assert isinstance(column, LlmColumn)
    assert column.asking.prompt == "About {{ topic }}"
    assert (column.schema, column.requires) == ({"type": "integer"}, ("topic",))
    messages = [{"role": "user", "content": "{{ topic }}"}]
    column = column_of(folder, TOPIC, {**LLM, "prompt": messages})
    assert isinstance(column, LlmColumn)
    assert json.loads(column.asking.prompt) == messages
    assert column.requires == ("topic",)


def test_a_function_may_make_several_columns(folder: Path) -> None:
    """The first has the name of the entry; types are given for all columns or for some."""
    made = {"name": "x", "type": "python", "target": "file://gen.py:make"}
    column = column_of(
        folder,
        A,
        {
            **made,
            "scope": "full",
            "requires": ["a"],
            "outputs": ["y", "x"],
            "extras": ["z"],
            "ordered": True,
            "as": {"x": "int"},
            "timeout": 5,
        },
    )
    assert column == PythonColumn(
        name="x",
        outputs=("x", "y"),
        requires=("a",),
        target=f"file://{folder}/gen.py:make",
        scope="full",
        ordered=True,
        timeout_s=5,
        extras=("z",),
        as_types={"x": "int"},
    )
    column = column_of(folder, {**made, "outputs": ["x", "y"], "extras": ["z"], "as": "text"})
    assert isinstance(column, PythonColumn)
    assert column.as_types == {"x": "text", "y": "text", "z": "text"}


def test_a_validation_names_columns_in_its_assertions(folder: Path) -> None:
    """This includes the members of a set, and dotted targets."""
    texts = [
        {"type": "contains", "value": "{{ a }}"},
        {"type": "contains-any", "value": ["{{ b }}"]},
    ]
    column = column_of(
        folder,
        A,
        B,
        TOPIC,
        {
            "name": "ok",
            "type": "validation",
            "target": "topic.x.y",
            "assert": [{"type": "assert-set", "assert": texts}, {"type": "is-json"}],
            "drop": True,
        },
    )
    first, second = (Assertion(**text) for text in texts)  # type: ignore[arg-type]
    assert column == ValidationColumn(
        name="ok",
        outputs=("ok",),
        requires=("topic", "a", "b"),
        target="topic.x.y",
        assertions=(
            Assertion(type="assert-set", assertions=(first, second)),
            Assertion(type="is-json"),
        ),
        drop=True,
    )


@pytest.mark.parametrize(
    ("settings", "sampler"),
    [
        (
            {"sampler": "category", "values": [1, None], "weights": [0, 2.5]},
            CategorySampler(values=(1, None), weights=(0, 2.5)),
        ),
        ({"sampler": "uniform", "low": 1, "high": 1}, UniformSampler(low=1, high=1)),
        (
            {"sampler": "gaussian", "mean": 5, "deviation": 2, "low": 0, "decimals": 1},
            GaussianSampler(mean=5, deviation=2, low=0, decimals=1),
        ),
        (
            {
                "sampler": "datetime",
                "start": "2026-01-01",
                "end": "2026-01-01T00:00",
                "unit": "day",
            },
            DatetimeSampler(start="2026-01-01", end="2026-01-01T00:00", unit="day"),
        ),
        ({"sampler": "uuid", "prefix": "p"}, UuidSampler(prefix="p")),
    ],
)
def test_samplers_of_all_kinds_are_parsed(
    folder: Path, settings: dict[str, Any], sampler: Any
) -> None:
    """Their keys are beside those of the column."""
    column = column_of(folder, {"name": "x", "type": "sampler", "seed": 5, **settings})
    assert column == SamplerColumn(name="x", outputs=("x",), sampler=sampler, seed=5)


def test_a_subcategory_needs_its_category(folder: Path) -> None:
    """Every value of the category must have values."""
    values = {"apples": ["red"], "trains": ["fast", "slow"]}
    entry = {"name": "x", "type": "sampler", "sampler": "subcategory", "category": "topic"}
    sampler = SubcategorySampler(category="topic", values={k: tuple(v) for k, v in values.items()})
    column = column_of(folder, TOPIC, {**entry, "values": values})
    assert column == SamplerColumn(name="x", outputs=("x",), requires=("topic",), sampler=sampler)


def test_a_dataset_is_a_suite_without_prompts_and_tests(folder: Path) -> None:
    """It takes providers and limits from the top."""
    top = {
        "defaultTest": {"threshold": 0.5},
        "evaluateOptions": {"maxConcurrency": 2},
        "lanes": {"wide": {"maxConcurrency": 9}},
        "metadata": {"team": "red"},
        "env": {"A": "b"},
        "derivedMetrics": [{"name": "n", "value": "1"}],
        "commandLineOptions": {"extension": ["file://gen.py:make"], "repeat": 2},
    }
    suite = (
        parsed(folder, A, description="all", evaluateOptions={"repeat": 3}, top=top).tasks[0].suite
    )
    assert (suite.prompts, suite.tests, suite.providers) == ((), (), ())
    assert suite.default_test == Test(metadata={"team": "red"})
    assert (suite.evaluate_options.max_concurrency, suite.evaluate_options.repeat) == (2, 3)
    assert (suite.description, suite.env, set(suite.lanes)) == ("all", {"A": "b"}, {"wide"})
    assert suite.derived_metrics == ()
    assert suite.command_line_options.extension == ()
    assert suite.command_line_options.repeat == 2


def test_the_providers_of_a_dataset_are_those_of_its_columns(folder: Path) -> None:
    """They are named by label, by id, or defined in place: in the order of their first use, each once."""
    inline = {"id": "echo:own", "config": {}, "prompts": ["x"]}

    def asks(name: str, provider: Any) -> dict[str, Any]:
        return {**LLM, "name": name, "provider": provider}

    vector = {"name": "v", "type": "embedding", "provider": "writer", "text": "{{ a }}"}
    suite = (
        parsed(
            folder,
            A,
            asks("one", "echo:judge"),
            asks("two", inline),
            vector,
            asks("three", dict(inline)),
            asks("four", {"echo:judge": None}),
            asks("five", "mine"),
            providers=["echo:judge", "writer", {"id": "echo", "label": "mine"}],
        )
        .tasks[0]
        .suite
    )
    names = [entry.label or entry.id for entry in suite.providers]
    assert names == ["echo:judge", "echo:own", "writer", "mine"]
    assert [entry.prompts for entry in suite.providers] == [None] * 4
    assert isinstance(suite.settings, ColumnsSettings)
    places = [
        column.asking.provider if isinstance(column, LlmColumn) else column.provider
        for column in suite.settings.columns
        if isinstance(column, LlmColumn | EmbeddingColumn)
    ]
    assert places == [0, 1, 2, 1, 0, 3]


def test_a_dataset_without_models_needs_no_providers(folder: Path) -> None:
    """They may be missing in the task and at the top; other tasks need them."""
    tasks: list[dict[str, Any]] = [{"id": "d", "type": "columns", "rows": 1, "columns": [A]}]
    assert parse_suite({"tasks": tasks}, directory=folder).tasks[0].suite.providers == ()
    with pytest.raises(SuiteError, match="the suite has no providers"):
        parse_suite({"tasks": [*tasks, {"type": "prompt_eval"}]}, directory=folder)


def test_paths_of_a_merged_file_stay_relative_to_it(folder: Path) -> None:
    """This holds for seeds, prompts, schemas and functions."""
    below = folder / "below"
    below.mkdir()
    for name in ("people.csv", "ask.txt", "answer.json", "gen.py"):
        (folder / name).rename(below / name)
    columns = [
        {"type": "seed", "file": "people.csv", "columns": {"topic": "name"}},
        {**LLM, "prompt": "file://ask.txt", "schema": "file://answer.json"},
        {"name": "x", "type": "python", "target": "file://gen.py:make"},
    ]
    processors = [{"stage": "afterBatch", "target": "file://gen.py:make"}]
    task = {"type": "columns", "columns": columns, "processors": processors}
    (below / "more.json").write_text(json.dumps({"tasks": [task]}))
    (folder / "suite.json").write_text(json.dumps({"providers": PROVIDERS}))
    settings = load_suite(folder / "suite.json", below / "more.json").tasks[0].suite.settings
    assert isinstance(settings, ColumnsSettings)
    seed, text, made = settings.columns
    assert isinstance(seed, SeedColumns)
    assert isinstance(text, LlmColumn)
    assert isinstance(made, PythonColumn)
    assert seed.file == below / "people.csv"
    assert text.asking.prompt == "About {{ topic }}"
    assert made.target == settings.processors[0].target == f"file://{below}/gen.py:make"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"columns": None}, '"columns" is missing'),
        ({"columns": []}, "columns: no columns are given"),
        ({"columns": {}}, "columns: must be a list of columns, got an object"),
        ({"columns": ["a"]}, 'columns[0]: must be an object, got the text "a"'),
        ({"rows": None}, '"rows" is missing'),
        ({"rows": 0}, "rows: must be at least 1, got 0"),
        ({"groupSize": 0}, "groupSize: must be at least 1, got 0"),
        ({"seed": 1.5}, "seed: must be a whole number, got 1.5"),
        ({"outputDir": " "}, "outputDir: must not be empty"),
        ({"format": "csv"}, 'format: must be auto, parquet or jsonl, got the text "csv"'),
        (
            {"resume": "sometimes"},
            'resume: must be never, ifPossible or always, got the text "sometimes"',
        ),
        ({"maxOpenCells": -1}, "maxOpenCells: must be at least 1, got -1"),
        ({"shutdown": {"calls": 0}}, "shutdown.calls: must be at least 1, got 0"),
        (
            {"shutdown": {"errorRate": 1.5}},
            "shutdown.errorRate: must be a number above 0 and at most 1, got 1.5",
        ),
        ({"shutdown": {"rate": 1}}, 'shutdown.rate: "rate" is not a key here'),
        ({"rws": 5}, 'rws: "rws" is not a key here'),
        ({"tests": []}, "tests: tests is a key of tasks of type prompt_eval"),
        ({"workers": 1}, "workers: workers is a key of tasks of type question_eval"),
        ({"lanes": {}}, 'lanes: "lanes" is not a key here'),
        (
            {"groupSize": 1, "group_size": 2},
            "group_size: groupSize and group_size are the same key: write one of them",
        ),
        ({"processors": {}}, "processors: must be a list of processors, got an object"),
        (
            {"processors": [{"stage": "during", "target": "file://gen.py:make"}]},
            'processors[0].stage: must be beforeBatch, afterBatch or afterGeneration, got the text "during"',
        ),
        (
            {"processors": [{"stage": "afterBatch"}]},
            "processors[0]: neither target nor dropColumns is given",
        ),
        (
            {"processors": [{"stage": "afterBatch", "target": "clean"}]},
            'processors[0].target: processors are functions in Python files, got "clean"',
        ),
        (
            {"processors": [{"stage": "afterBatch", "dropColumns": ["b*"]}]},
            'processors[0].dropColumns[0]: "b*" matches no column',
        ),
        (
            {"processors": [{"stage": "beforeBatch", "dropColumns": ["a"]}]},
            "processors[0].stage: no column can be dropped before the other columns are made",
        ),
        (
            {
                "processors": [
                    {
                        "stage": "afterGeneration",
                        "target": "file://gen.py:make",
                        "onError": "dropGroup",
                    }
                ]
            },
            "processors[0].onError: a group cannot be dropped after generation",
        ),
        (
            {"processors": [{"stage": "afterBatch", "dropColumns": ["*"]}]},
            "columns: no column is kept",
        ),
        ({"id": "a/b"}, 'id: "a/b" is not a valid name of a folder'),
    ],
)
def test_invalid_entries_are_reported(folder: Path, entry: dict[str, Any], message: str) -> None:
    """Each mistake is reported at its place."""
    where = "$.tasks[0]: " if message.startswith('"') else ""
    assert problems_of(folder, A, **entry) == [f"{where}{message}"]


def test_co_44_at_least_one_final_retry_round_is_required(folder: Path) -> None:
    """Without one, transient failures would lose cells."""
    assert problems_of(folder, A, salvageRounds=0) == ["salvageRounds: must be at least 1, got 0"]


def test_datasets_may_not_share_a_folder(folder: Path) -> None:
    """This holds for named folders and defaults."""
    one = {"type": "columns", "rows": 1, "columns": [A]}
    tasks = [
        {**one, "id": "a"},
        {**one, "id": "b", "outputDir": "datasets/a"},
        {**one, "id": "c", "outputDir": str(Path.cwd() / "datasets/b/../a")},
    ]
    with pytest.raises(SuiteError) as caught:
        parse_suite({"tasks": tasks}, directory=folder)
    problems = [(one.path, one.message.partition(" folder ")[0]) for one in caught.value.problems]
    assert problems == [(f"$.tasks[{place}].outputDir", "$.tasks[0] uses the") for place in (1, 2)]


def test_invalid_providers_are_reported_at_their_places(folder: Path) -> None:
    """They may be at the top, in the task, or in the column; a column that names one of these is valid."""
    problems = hinted(
        folder,
        A,
        {**LLM, "provider": "wrong"},
        {**LLM, "name": "x", "provider": {"id": "echo", "lable": "y"}},
        {**LLM, "name": "y", "provider": "writr"},
        {**LLM, "name": "z", "provider": 5},
        top={"providers": [{"id": "echo", "label": "wrong", "dely": 5}]},
    )
    assert problems == [
        '$.providers[0].dely: "dely" is not a key here | did you mean "delay"?',
        'columns[2].provider.lable: "lable" is not a key here | did you mean "label"?',
        f'columns[3].provider: unknown provider "writr" | known are wrong; {_OWN}',
        "columns[4].provider: must be a provider: its label or id, or an object, got 5",
    ]


def test_a_name_of_several_providers_is_ambiguous(folder: Path) -> None:
    """The providers need labels."""
    two = ["echo", {"id": "echo", "config": {}}]
    assert hinted(folder, A, {**LLM, "provider": "echo"}, top={"providers": two}) == [
        'columns[1].provider: "echo" names 2 providers | give them labels, and name one of these'
    ]


def test_a_side_effect_with_the_name_of_a_column_is_reported(folder: Path) -> None:
    """The warning says that it is not kept."""
    suite = parsed(folder, A, {**LLM, "trace": "a"})
    (warning,) = suite.warnings
    assert (warning.path, warning.message) == (
        "$.tasks[0].columns[1]",
        '"a" is also a column: this side effect is not kept',
    )
