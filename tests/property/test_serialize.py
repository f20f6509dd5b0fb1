"""Registers and conversations have the same contents however many steps run concurrently.

Suites are drawn whose prompts, variables and assertions use registers and conversations, with calls of
various durations that may fail or return nothing. A fully serial run is the reference for all other modes.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from trioeval import Provider, ProviderError, Reply, Request, Row, collect, parse_suite, run_suite
from trioeval.providers.config import ProviderResources
from trioeval.providers.local.custom import CustomProvider
from trioeval.providers.local.echo import EchoSettings
from trioeval.run import PreparedSuite
from trioeval.run.prepare import prepare
from trioeval.testing import run_virtual

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # a whole suite for each example


@attrs.frozen
class PromptOnly(EchoSettings):
    """A provider that reads only the prompt, like an echo; others may read any register."""

    ask: Provider

    @asynccontextmanager
    async def open(self, _shared: ProviderResources) -> AsyncGenerator[CustomProvider]:  # type: ignore[override]
        yield CustomProvider("mine", self.ask)


@attrs.frozen
class Case:
    """A suite, and the behaviour of its calls."""

    document: Mapping[str, Any]
    delays: tuple[int, ...]
    """Seconds of calls, by test and column."""
    failing: frozenset[int] = frozenset()
    """Tests whose calls fail."""
    silent: frozenset[int] = frozenset()
    """Tests whose calls return an empty reply."""
    looks: bool = False
    """True if the provider reads the variables."""

    async def ask(self, request: Request) -> Reply:
        place = 3 * request.test_idx + request.prompt_idx
        await trio.sleep(self.delays[place % len(self.delays)])
        if request.test_idx in self.failing:
            raise ProviderError("bad_request", "no")
        if request.test_idx in self.silent:
            return Reply(output=None)
        # Only the end: texts that quote each other would exceed the bound of immediate judging, and threads
        # do not take part in virtual time.
        seen = [f"{request.vars.get(name)}"[-60:] for name in "rs"] if self.looks else ""
        return Reply(output=f"<{place} {request.prompt[-60:]} {seen}>", metadata={"place": place})

    def prepared(self, mode: str, **more: Any) -> PreparedSuite:
        options = {**self.document.get("evaluateOptions", {}), "serialize": mode, **more}
        suite = parse_suite({**self.document, "evaluateOptions": options})
        found = prepare(suite, providers={"mine": self.ask}, environ={"KEY": "secret"})
        if self.looks:
            return found
        specs = tuple(attrs.evolve(spec, settings=PromptOnly(self.ask)) for spec in found.specs)
        return attrs.evolve(found, specs=specs)


HISTORY = "{% for turn in _conversation %}({{turn.input}}){% endfor %}"
PROMPTS = [
    "{{q}}",
    "only {{q}}",
    "{{q}}{{r}}",
    "{{q}}{% if s %}{{s}}{% endif %}",
    '{"text": "{{ q }}{{ r | default(1) }}"}',
    HISTORY + "{{q}}",
    "{{ r }}" + HISTORY,
]
TEXTS = [
    "1",
    "see {{r}}",
    "{% raw %}{{ s }}{% endraw %}",
    "{{ open and {{s}}",
    ["a", "b{{r}}"],
    "{{ composed }}",
    "{{ pieced }}",
]
COMPOSED = {"composed": "{{ {{name}} }}", "name": "r"}
PIECED = {"pieced": "{{piece}}{ s }}", "piece": "{"}
ASSERTIONS = [
    {"type": "contains", "value": "{{r}}"},
    {"type": "contains", "value": "zzz"},
    {"type": "starts-with", "value": "{{ s.nothing.at_all() }}"},
    {"type": "not-contains", "value": "zzz", "metric": "m{{s}}"},
]
NAMES = st.sampled_from("rs")
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "storeOutputAs": NAMES,
        "runSerially": st.booleans(),
        "disableConversationVar": st.booleans(),
        "prefix": st.just("{{ s }}:"),
    },
)
TESTS = st.fixed_dictionaries(
    {
        "vars": st.builds(
            lambda q, more: {"q": q, **more},
            st.sampled_from(TEXTS),
            st.sampled_from([{}, {}, COMPOSED, PIECED]),
        ),
        "options": OPTIONS,
    },
    optional={
        "metadata": st.fixed_dictionaries({"conversationId": st.sampled_from(["a", "b", 1])}),
        "assert": st.lists(st.sampled_from(ASSERTIONS), max_size=2),
        "providers": st.sampled_from([["left"], ["mine"]]),
        "providerOutput": st.sampled_from(
            ["", "given", "given {{q}}", "{{ 1 | nothing }}", "{% if %}", "{{ env.KEY }}"]
        ),
    },
)
SCENARIOS = st.fixed_dictionaries(
    {
        "config": st.lists(st.just({"vars": {"z": "1"}}), min_size=1, max_size=2),
        "tests": st.lists(TESTS, min_size=1, max_size=2),
    }
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "providers": st.sampled_from(
            [
                [{"id": "mine", "label": "left"}],
                [{"id": "mine", "label": n} for n in ("left", "right")],
            ]
        ),
        "prompts": st.lists(st.sampled_from(PROMPTS), min_size=1, max_size=2, unique=True),
        "tests": st.lists(TESTS, min_size=1, max_size=5),
        "evaluateOptions": st.fixed_dictionaries(
            {
                "maxConcurrency": st.integers(1, 6),
                "repeat": st.integers(1, 2),
                "registerScope": st.sampled_from(["suite", "column"]),
            }
        ),
    },
    optional={
        "defaultTest": st.fixed_dictionaries({"options": OPTIONS}),
        "scenarios": st.lists(SCENARIOS, max_size=1),
    },
)
PLACES = st.frozensets(st.integers(0, 8), max_size=2)
CASES = st.builds(
    Case,
    DOCUMENTS,
    delays=st.lists(st.integers(0, 9), min_size=1, max_size=7).map(tuple),
    failing=PLACES,
    silent=PLACES,
    looks=st.booleans(),
)
MODES = st.sampled_from(["auto", "auto", "conversation", "register"])


def content(row: Row) -> dict[str, Any]:
    """Return a row without its times."""
    verdict = row.verdict
    return {
        "place": (row.index, row.step.test_idx, row.step.prompt_idx, row.step.repeat_index),
        "vars": dict(row.vars),
        "prompt": row.prompt,
        "reply": None if row.reply is None else (row.reply.output, dict(row.reply.metadata)),
        "output": row.output,
        "status": row.status,
        "outcome": row.outcome,
        "error": row.error,
        "score": row.score,
        "named": dict(row.named_scores),
        "reasons": None if verdict is None else [part.reason for part in verdict.parts],
        "calls": row.calls,
    }


def run(prepared: PreparedSuite) -> tuple[list[dict[str, Any]], float]:
    """Return the rows, and the seconds that they took."""

    async def main() -> tuple[list[Row], float]:
        rows = await collect(prepared)
        return rows, trio.current_time()

    rows, seconds = run_virtual(main)
    return [content(row) for row in rows], seconds


def stores(name: str, text: str, **more: Any) -> dict[str, Any]:
    return {"vars": {"q": text}, "options": {"storeOutputAs": name, **more}}


def of(prompts: list[str], *tests: Mapping[str, Any], columns: str = "left", **more: Any) -> Any:
    return {
        "providers": [{"id": "mine", "label": label} for label in columns.split()],
        "prompts": prompts,
        "tests": list(tests),
        **more,
    }


# To explain a failure, hypothesis traces every line, which is too slow for whole runs of suites.
UNTRACED = settings(phases=[phase for phase in Phase if phase is not Phase.explain])

ANSWER_IS_TEMPLATE = of(
    ["{{q}}"],
    stores("r", "1"),
    {**stores("s", "2"), "providerOutput": "{{r}}"},
    stores("r", "3"),
    {"vars": {"q": "{{s}}"}},
)
ASSERTED = of(["{{q}}"], stores("r", "1"), {"vars": {"q": "2"}, "assert": [ASSERTIONS[0]]})
RAW = of(["{{q}}"], stores("s", "1"), {"vars": {"q": TEXTS[2]}})
TWO_WRITERS = of(["{{q}}"], stores("r", "1"), stores("r", "2"), {"vars": {"q": "see {{r}}"}})
NAME_OF_PIECES = of(
    ["{{q}}"],
    stores("r", "1"),
    {"vars": {"q": "{{ composed }}", **COMPOSED}},
    {"vars": {"q": "{{ pieced }}", "pieced": "{{piece}}{ r }}", "piece": "{"}},
)
BROKEN = of(
    ["{{q}}"],
    {**stores("r", "1"), "providerOutput": "{{ 1 | nothing }}"},
    {"vars": {"q": "2"}},
    {"vars": {"q": "{{r}}"}},
)
LATER_WRITER = of(["{{q}}"], stores("r", "1"), {"vars": {"q": "see {{r}}"}}, stores("r", "3"))


@settings(UNTRACED, max_examples=150)
@given(CASES, MODES, st.random_module())
@example(Case(ANSWER_IS_TEMPLATE, (9,)), "auto", None)
@example(Case(ASSERTED, (9,)), "auto", None)
@example(Case(RAW, (9,)), "auto", None)
@example(Case(NAME_OF_PIECES, (9,)), "auto", None)
@example(Case(BROKEN, (9,)), "auto", None)
@example(Case(TWO_WRITERS, (9, 1, 1, 1, 1), frozenset({1})), "auto", None)
@example(Case(LATER_WRITER, (9, 1, 1, 1, 1)), "auto", None)
@example(
    Case(of(["{{q}}{{r}}"], {"vars": {"q": "1"}}, stores("r", "2", runSerially=True)), (3,)),
    "auto",
    None,
)
def test_every_mode_gives_the_rows_of_a_serial_run(case: Case, mode: str, _random: object) -> None:
    """Every mode gives the rows of a serial run, and is never slower."""
    serial, slow = run(case.prepared("all"))
    rows, fast = run(case.prepared(mode))
    assert rows == serial
    assert fast <= slow


@settings(max_examples=settings().max_examples // 2)
@given(
    CASES, st.integers(0, 40), st.sampled_from(["deadline", "stop", "cancel"]), st.random_module()
)
def test_an_interrupted_run_emits_every_row_once_with_correct_results(
    case: Case, at: int, how: str, _random: object
) -> None:
    """TOTAL: finished rows equal those of a serial run."""
    limit = {"maxEvalTimeMs": 1000 * at + 1} if how == "deadline" else {}
    whole, _ = run(case.prepared("all"))
    prepared = case.prepared("auto", **limit)
    rows: list[Row] = []

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    async def main() -> None:
        stop = trio.Event()
        async with trio.open_nursery() as nursery:

            async def cut() -> None:
                await trio.sleep(at + 0.001)
                stop.set()
                if how == "cancel":
                    nursery.cancel_scope.cancel("the caller has enough")

            if how != "deadline":
                nursery.start_soon(cut)
            await run_suite(prepared, emit=keep, stop=stop)
            nursery.cancel_scope.cancel("the run is over")

    run_virtual(main)
    assert [row.index for row in rows] == list(range(len(whole)))
    assert {row.outcome for row in rows} <= {"done", "failed", "interrupted", "not_run"}
    for row in rows:
        if row.outcome in ("done", "failed"):
            assert content(row) == whole[row.index]
    if how == "stop":
        assert all(row.outcome != "interrupted" for row in rows)


def starts(case: Case, mode: str = "auto") -> dict[tuple[int, int], float]:
    """Return the start of the call of each test and column."""
    found: dict[tuple[int, int], float] = {}

    async def ask(request: Request) -> Reply:
        found[request.test_idx, request.prompt_idx] = trio.current_time()
        return await case.ask(request)

    prepared = case.prepared(mode, maxConcurrency=20)
    specs = tuple(attrs.evolve(spec, settings=PromptOnly(ask)) for spec in prepared.specs)
    run_virtual(lambda: collect(attrs.evolve(prepared, specs=specs)))
    return found


def test_sc_16_conversations_of_two_columns_run_concurrently() -> None:
    """The steps of each are in order."""
    turns = [{"vars": {"q": text}} for text in "123"]
    case = Case(of([HISTORY + "{{q}}"], *turns, columns="left right"), (1,))
    assert starts(case) == {(test, column): test for test in range(3) for column in range(2)}
    assert max(starts(case, "all").values()) == 5


def test_conversations_with_separate_names_run_concurrently() -> None:
    """Steps without a conversation run concurrently too."""
    turns = [{"vars": {"q": name}, "metadata": {"conversationId": name}} for name in "abab"]
    found = starts(Case(of([HISTORY + "{{q}}", "{{q}}"], *turns), (1,)))
    assert [found[test, 0] for test in range(4)] == [0, 0, 1, 1]
    assert [found[test, 1] for test in range(4)] == [0, 0, 0, 0]
    scenario = {"config": [{"vars": {"z": "1"}}] * 2, "tests": [{"vars": {"q": "1"}}] * 2}
    found = starts(Case(of([HISTORY], scenarios=[scenario]), (1,)))
    assert [found[test, 0] for test in range(4)] == [0, 1, 0, 1]


def test_only_readers_of_registers_wait_for_earlier_writers() -> None:
    """They wait for all earlier writers, since an output may name any register."""
    document = of(
        ["{{q}}"],
        stores("r", "1"),
        stores("s", "2"),
        {"vars": {"q": "see {{r}}"}},
        {"vars": {"q": "r and s are words here"}},
        stores("r", "a later writer does not wait"),
        {"vars": {"q": "{{r}}{{s}}"}},
    )
    found = starts(Case(document, (4, 0, 0, 2, 0, 0, 1, 0, 0, 1, 0, 0, 6)))
    assert [found[test, 0] for test in range(6)] == [0, 0, 4, 0, 0, 6]


def test_registers_of_columns_delay_only_their_own_column() -> None:
    """With `registerScope: column`, a slow column does not delay the other."""
    options = {"evaluateOptions": {"registerScope": "column"}}
    document = of(
        ["{{q}}{{r}}"], stores("r", "1"), {"vars": {"q": "2"}}, columns="left right", **options
    )
    assert starts(Case(document, (9, 1, 1))) == {(0, 0): 0, (0, 1): 0, (1, 0): 9, (1, 1): 1}


def test_readers_run_after_a_writer_that_failed() -> None:
    """Readers after a failed writer see the previous value."""
    document = of(["{{q}}<{{r}}>"], stores("r", "1"), stores("r", "2"), {"vars": {"q": "3"}})
    rows, _ = run(Case(document, (1,), failing=frozenset({1})).prepared("auto"))
    assert [row["status"].value for row in rows] == ["not_graded", "error", "not_graded"]
    assert rows[2]["prompt"] == "3<<0 1<> >>"


def test_a_composed_name_refers_to_a_register() -> None:
    """This holds in every mode."""
    for mode in ("all", "auto"):
        rows, _ = run(Case(NAME_OF_PIECES, (1,)).prepared(mode))
        assert [row["prompt"] for row in rows] == ["1", "<0 1 >", "<0 1 >"]


def test_a_register_that_is_not_a_template_is_data() -> None:
    """This holds in every mode, for all rows that name it."""
    for mode in ("all", "auto"):
        rows, _ = run(Case(BROKEN, (1,)).prepared(mode))
        assert [row["status"].value for row in rows] == ["not_graded", "not_graded", "not_graded"]
