"""Own providers: their bounds hold budgets, and their lanes are those of the program."""

import functools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import example, given, settings
from hypothesis import strategies as st

import trioeval
from trioeval import (
    LaneSpec,
    Provider,
    Reply,
    Request,
    Row,
    Status,
    SuiteError,
    Usage,
    UsageError,
    own_provider,
)
from trioeval.errors import ProviderError
from trioeval.testing import run_virtual

CENT = 1 / 100


async def silent(_request: Request) -> str:
    """Do nothing."""
    await trio.lowlevel.checkpoint()
    return "x"


def run(
    providers: Mapping[str, Provider],
    *,
    entries: Sequence[Any] | None = None,
    warn: Callable[[str], None] | None = None,
    repeat: int = 1,
    prompt: str = "Hi",
    **options: Any,
) -> list[Row]:
    """Run a suite of own providers on the virtual clock."""
    suite = trioeval.parse_suite(
        {
            "providers": [*providers] if entries is None else entries,
            "prompts": [prompt],
            "evaluateOptions": {"repeat": repeat, **options},
        }
    )
    rows: list[Row] = []

    async def emit(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append(row)

    async def main() -> None:
        await trioeval.run_suite(suite, emit=emit, providers=providers, warn=warn)

    run_virtual(main)
    return rows


def prepared(
    *entries: Any, providers: Mapping[str, Provider], **document: Any
) -> trioeval.PreparedSuite:
    """Prepare a suite with these entries."""
    return trioeval.prepare(
        trioeval.parse_suite({"providers": [*entries], **document}), providers=providers
    )


def problems_of(*entries: Any, **more: Any) -> list[tuple[str, str, str | None]]:
    """Return the problems of a suite with these entries."""
    with pytest.raises(SuiteError) as caught:
        prepared(*entries, **more)
    return [(one.path, one.message, one.hint) for one in caught.value.problems]


# A budget holds for every provider with a bound.


@attrs.define
class Till:
    """Counts what calls cost, and what those in flight may cost, in whole units."""

    budget: int
    spent: int = 0
    in_flight: int = 0
    calls: int = 0
    most: int = 0
    """The largest sum of both at the start of a call."""

    def start(self, bound: int) -> None:
        """Begin a call that may cost so much."""
        self.calls += 1
        self.in_flight += bound
        self.most = max(self.most, self.spent + self.in_flight)

    def end(self, bound: int, cost: int) -> None:
        """End a call that cost so much."""
        self.in_flight -= bound
        self.spent += cost


@attrs.frozen
class Call:
    """One call of a paid provider."""

    seconds: float
    share: float
    """Its part of the bound."""
    fails: bool


CALLS = st.lists(
    st.builds(
        Call,
        st.sampled_from((0.0, 0.5, 1.0, 3.0)),
        st.sampled_from((0.0, 0.25, 1.0)),
        st.sampled_from((False, False, False, True)),
    ),
    min_size=1,
    max_size=5,
)


def paid(till: Till, bound: int, calls: Sequence[Call], unit: str) -> Provider:
    """Return a provider whose calls cost at most `bound` cents or tokens, as in `calls` in turn."""

    async def answer(_request: Request) -> Reply:
        call = calls[till.calls % len(calls)]
        cost = int(bound * call.share)
        till.start(bound)
        try:
            await trio.sleep(call.seconds)
        finally:
            till.end(bound, cost)
        usage = Usage(total=cost) if unit == "tokens" else Usage()
        if call.fails:
            raise ProviderError("server", "busy", usage=usage, money=cost * CENT)
        return Reply(output="x", cost=cost * CENT, usage=usage)

    return answer


@pytest.mark.parametrize("unit", ["usd", "tokens"])
@settings(max_examples=settings().max_examples // 3)  # each example is a whole run
@given(
    sizes=st.tuples(st.integers(1, 12), st.integers(1, 60)),
    bounds=st.tuples(st.integers(1, 200), st.integers(0, 200)),
    calls=CALLS,
    budget=st.integers(0, 1000),
)
@example(sizes=(60, 50), bounds=(108, 0), calls=[Call(1.0, 1.0, fails=False)], budget=500)
def test_a_budget_holds_for_own_providers(
    unit: str, sizes: tuple[int, int], bounds: tuple[int, int], calls: list[Call], budget: int
) -> None:
    """BUDGET: what is spent and what calls in flight may cost never exceeds it, with any width."""
    till = Till(budget)
    (repeat, width), (one, two) = sizes, bounds
    if unit == "usd":
        first = own_provider(paid(till, one, calls, unit), max_cost=one * CENT)
        entry: Any = {"id": "second", "config": {"maxCost": two * CENT}}
        limits = {"usd": budget * CENT}
    else:
        one, two = one + 1, two + 2  # with the only token of the prompt
        first = own_provider(paid(till, one, calls, unit), max_tokens=one - 1)
        entry = {"id": "second", "config": {"maxTokens": two - 1}}
        limits = {"tokens": budget}
    rows = run(
        {"first": first, "second": paid(till, two, calls, unit)},
        entries=["first", entry],
        repeat=repeat,
        maxConcurrency=width,
        budget=limits,
        prompt="-",
    )
    assert till.most <= budget
    assert till.spent <= budget
    assert till.in_flight == 0
    assert len(rows) == 2 * repeat


@pytest.mark.parametrize("width", [1, 50])
def test_a_budget_is_used_as_far_as_the_bounds_allow(width: int) -> None:
    """Four calls of 1.08 dollars fit into five; the rows of others are not run."""
    till = Till(500)
    mine = own_provider(paid(till, 108, [Call(1.0, 1.0, fails=False)], "usd"), max_cost=1.08)
    rows = run({"mine": mine}, repeat=60, maxConcurrency=width, budget={"usd": 5})
    assert till.spent == 432
    assert [row.status for row in rows].count(Status.NOT_GRADED) == 4
    assert {row.status for row in rows} == {Status.NOT_GRADED, Status.NOT_RUN}


def test_a_free_provider_may_be_declared() -> None:
    """Its calls reserve nothing."""
    mine = own_provider(silent, max_cost=0)
    rows = run({"mine": mine}, repeat=9, budget={"usd": 0})
    assert {row.status for row in rows} == {Status.NOT_GRADED}


def test_a_bound_of_an_entry_replaces_that_of_the_program() -> None:
    """Both are the maximum of one call, and the suite is nearer to the run."""
    mine = own_provider(silent, max_cost=1, max_tokens=10)
    entries = ["mine", {"id": "mine", "label": "b", "config": {"maxCost": 2, "maxTokens": 20}}]
    metering = [spec.metering for spec in prepared(*entries, providers={"mine": mine}).specs]
    assert [(known.most_cost, known.longest_reply) for known in metering] == [(1, 10), (2, 20)]
    wrong = {"id": "mine", "config": {"maxTokens": 0}}
    assert problems_of(wrong, providers={"mine": mine}) == [
        (
            "$.providers[0].config.maxTokens",
            "must be a whole number of tokens of at least 1, got 0",
            None,
        )
    ]


def test_a_call_above_its_bound_of_tokens_is_reported_once() -> None:
    """It counts in full, so nothing starts after it."""

    async def long(_request: Request) -> Reply:
        await trio.sleep(1)
        return Reply(output="x", usage=Usage(prompt=10, completion=5000))

    warnings: list[str] = []
    rows = run(
        {"mine": own_provider(long, max_tokens=100)},
        repeat=60,
        maxConcurrency=4,
        budget={"tokens": 5000},
        warn=warnings.append,
    )
    assert sum(row.reply is not None for row in rows) == 4
    (warning,) = warnings
    assert warning == (
        "a call of mine used 5010 tokens, but only 102 were reserved: the budget may be exceeded by the "
        "difference; set maxTokens in its config, or max_tokens of own_provider, to the maximum number "
        "of tokens of a reply"
    )


# A budget cannot hold for a function without a bound.


NO_COST = "a budget in usd is set, but the cost of a call of mine has no limit"
NO_TOKENS = "a budget in tokens is set, but the replies of mine have no token limit"
SET_COST = (
    "set the maximum cost of a call in US dollars, 0 if it is free: "
    'own_provider(function, max_cost=0.05), or "config": {"maxCost": 0.05}'
)
SET_TOKENS = (
    "set the maximum number of tokens of a reply: "
    'own_provider(function, max_tokens=1000), or "config": {"maxTokens": 1000}'
)


@pytest.mark.parametrize(
    "mine", [silent, own_provider(silent), own_provider(silent, lane=LaneSpec("mine"))]
)
@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"usd": 5}, [(NO_COST, SET_COST)]),
        ({"tokens": 5000}, [(NO_TOKENS, SET_TOKENS)]),
        ({"usd": 5, "tokens": 5000}, [(NO_COST, SET_COST), (NO_TOKENS, SET_TOKENS)]),
    ],
)
def test_a_provider_without_a_bound_is_refused_under_a_budget(
    mine: Provider, budget: dict[str, float], expected: list[tuple[str, str]]
) -> None:
    """The message says how to set one; this holds in every place that names the provider."""
    options = {"budget": budget}
    found = problems_of("mine", providers={"mine": mine}, evaluateOptions=options)
    assert found == [("$.providers[0]", *one) for one in expected]
    tests = [{"vars": {}, "provider": "mine"}]
    found = problems_of("echo", providers={"mine": mine}, evaluateOptions=options, tests=tests)
    assert found == [("$.tests[0].provider", *one) for one in expected]
    rubric = {"type": "llm-rubric", "value": "x", "provider": "mine"}
    found = problems_of(
        "echo", providers={"mine": mine}, evaluateOptions=options, tests=[{"assert": [rubric]}]
    )
    assert [one[1:] for one in found] == expected
    tasks = [{"id": "a", "type": "prompt_eval", "prompts": ["x"], "tests": [{"vars": {"a": 1}}]}]
    found = problems_of("mine", providers={"mine": mine}, evaluateOptions=options, tasks=tasks)
    assert [one[1:] for one in found] == expected


def test_a_shared_limit_of_money_needs_bounds_as_well() -> None:
    """Calls without one would reserve nothing of it; a service needs its price."""
    lane = {"key": "box", "limits": [{"key": "team", "unit": "cost_micro"}]}
    service = {"id": "openai:unlisted", "config": {"apiKey": "sk-1", "max_tokens": 5}, "lane": lane}
    entries = [{"id": "mine", "lane": lane}, service]
    limits = {"define": [{"key": "team", "kind": "budget", "capacity": 5_000_000}]}
    found = problems_of(*entries, providers={"mine": silent}, limits=limits)
    cost, price = found
    counts = 'lane box counts costs against "team"'
    assert cost == (
        "$.providers[0]",
        f"{counts}, but the cost of a call of mine has no limit",
        SET_COST,
    )
    assert price[:2] == (
        "$.providers[1]",
        f"{counts}, but the price of openai:unlisted is not known",
    )
    prepared(entries[0], providers={"mine": own_provider(silent, max_cost=1)}, limits=limits)


@pytest.mark.parametrize("budget", [None, {"requests": 5}])
def test_a_plain_function_needs_no_bound_without_such_a_budget(budget: Any) -> None:
    """It has its usual lane, and its replies are guessed."""
    found = prepared("mine", providers={"mine": silent}, evaluateOptions={"budget": budget})
    assert found.lane_specs == (LaneSpec("mine"),)
    (spec,) = found.specs
    assert not spec.metering.is_bounded


# Lanes of a program.


SPEC = LaneSpec("gpt", 8, rpm=600.0, token_burst=5, min_gap=0.25, slow_start=True, patience=20.0)


def test_an_own_lane_is_that_of_entries_without_a_lane() -> None:
    """Its name is the key; a lane of the suite replaces it as a whole."""
    mine = own_provider(silent, lane=SPEC)
    assert prepared("mine", providers={"mine": mine}).lane_specs == (SPEC,)
    entries = [
        {"id": "mine", "label": "a"},
        {"id": "mine", "label": "b", "lane": {"rpm": 5}},
        {"id": "mine", "label": "c", "lane": "slow"},
    ]
    found = prepared(*entries, providers={"mine": mine}, lanes={"slow": {"rpm": 6}})
    assert found.lane_names == ("gpt", "mine", "slow")
    assert found.lane_specs == (SPEC, LaneSpec("mine", rpm=5), LaneSpec("slow", rpm=6))


def test_a_lane_of_a_name_is_shared() -> None:
    """Two providers, also judges, use one lane; its width holds for both together."""
    in_flight = most = 0

    async def count(_request: Request) -> str:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await trio.sleep(1)
        in_flight -= 1
        return "x"

    lane = LaneSpec("shared", 3)
    both = {name: own_provider(count, lane=lane) for name in "ab"}
    rows = run(both, repeat=9)
    assert (len(rows), most) == (18, 3)
    rubric = {"type": "llm-rubric", "value": "x", "provider": "b"}
    found = prepared("a", providers=both, tests=[{"assert": [rubric]}])
    assert found.lane_names == ("shared", "shared")
    assert found.lane_specs == (lane,)


def test_contradictory_lanes_of_a_name_are_refused() -> None:
    """The second one is reported: with another own lane, or with one of the suite."""
    message = "lane gpt has other settings from an earlier provider with the same key"
    hint = "settings belong to the lane: pass one LaneSpec to all own providers of a name"
    for other in (attrs.evolve(SPEC, rpm=5.0), attrs.evolve(SPEC, min_gap=0.0)):
        both = {"a": own_provider(silent, lane=SPEC), "b": own_provider(silent, lane=other)}
        assert problems_of("a", "b", providers=both) == [("$.providers[1]", message, hint)]
    found = problems_of(
        {"id": "echo", "lane": {"key": "gpt", "rpm": 6}},
        "a",
        providers={"a": own_provider(silent, lane=SPEC)},
    )
    assert found == [("$.providers[1]", message, hint)]


def test_a_cap_and_a_delay_apply_to_an_own_lane() -> None:
    """The lane keeps within the cap, and has the largest gap."""
    mine = own_provider(silent, lane=SPEC)
    suite = trioeval.parse_suite({"providers": [{"id": "mine", "delay": 500}]})
    found = trioeval.prepare(suite, providers={"mine": mine}, max_concurrency=2)
    assert found.lane_specs == (attrs.evolve(SPEC, max_concurrency=2, min_gap=0.5),)


def test_a_dataset_may_have_own_providers_with_lanes() -> None:
    """`build_columns` takes them as `prepare` does."""
    column = {"name": "a", "type": "llm", "provider": "mine", "prompt": "Hi"}
    in_flight = most = 0

    async def mine(_request: Request) -> str:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await trio.testing.wait_all_tasks_blocked()
        in_flight -= 1
        return "x"

    async def main() -> trioeval.Dataset:
        lane = LaneSpec("mine", 2, adaptive="off")
        return await trioeval.build_columns(
            {"rows": 6, "columns": [column]}, providers={"mine": own_provider(mine, lane=lane)}
        )

    dataset = trio.run(main)
    assert (len(dataset.rows), most) == (6, 2)


# Arguments.


class Model:
    """An object that is an async function."""

    async def __call__(self, request: Request) -> str:
        """Answer."""
        return await self.ask(request)

    async def ask(self, request: Request, *, suffix: str = "!") -> str:
        """Answer as well."""
        await trio.lowlevel.checkpoint()
        return request.prompt + suffix


class Blocking:
    """An object that is a function, but not async."""

    def __call__(self, request: Request) -> str:
        """Answer at once."""
        return request.prompt


def blocking(request: Request) -> str:
    """Answer at once."""
    return request.prompt


async def streaming(request: Request) -> AsyncGenerator[str]:
    """Yield the parts of an answer."""
    await trio.lowlevel.checkpoint()
    yield request.prompt


@pytest.mark.parametrize(
    "function",
    [
        silent,
        Model(),
        Model().ask,
        functools.partial(Model().ask, suffix="?"),
        functools.partial(Model()),
    ],
)
def test_an_async_function_of_any_form_is_a_provider(function: Provider) -> None:
    """It is called as it is, and the result is callable too."""
    mine = own_provider(function)
    (row,) = run({"mine": mine})
    assert row.output in {"x", "Hi!", "Hi?"}
    assert run_virtual(lambda: mine(Request(prompt="Hi"))) == row.output


NOT_ASYNC = "is not async; write it with `async def`"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (blocking, f"blocking {NOT_ASYNC}"),
        (functools.partial(blocking), f"blocking {NOT_ASYNC}"),
        (Blocking(), f"Blocking {NOT_ASYNC}"),
        (lambda request: request.prompt, f"<lambda> {NOT_ASYNC}"),
        (Model, "Model is a class: pass an object of it, or a method"),
        (streaming, "streaming yields; return one Reply, or text"),
        ("gpt", 'the function must be an async function, got str: "gpt"'),
        (None, "the function must be an async function, got nothing"),
        (
            own_provider(silent),
            "the function is one of own_provider already: pass all settings in one call",
        ),
    ],
)
def test_only_an_async_function_is_a_provider(function: Any, message: str) -> None:
    """This is refused before a run, not by each of its calls."""
    with pytest.raises(UsageError) as caught:
        own_provider(function)
    assert str(caught.value) == f"own_provider: {message}"


def test_a_coroutine_is_not_a_provider() -> None:
    """It is the result of a call; Python's own warning about it would only distract."""
    with pytest.raises(UsageError) as caught:
        own_provider(silent(Request(prompt="Hi")))  # type: ignore[arg-type]
    assert str(caught.value) == (
        "own_provider: pass the function itself, silent, and not the result of its call, silent(...)"
    )


COST = "max_cost must be a finite number of US dollars a call of at least 0 (0: it is free), got "
TOKENS = "max_tokens must be a whole number of tokens of at least 1, got "


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_cost": -0.01}, f"{COST}-0.01"),
        ({"max_cost": float("inf")}, f"{COST}inf"),
        ({"max_cost": float("nan")}, f"{COST}nan"),
        ({"max_cost": "1"}, f"{COST}'1'"),
        ({"max_cost": True}, f"{COST}True"),
        ({"max_tokens": 0}, f"{TOKENS}0"),
        ({"max_tokens": 1.5}, f"{TOKENS}1.5"),
        ({"max_tokens": True}, f"{TOKENS}True"),
        (
            {"lane": {"rpm": 5}},
            'lane must be a LaneSpec, such as LaneSpec("silent", 8), got dict: {"rpm": 5}',
        ),
        (
            {"lane": "slow"},
            'lane must be a LaneSpec, such as LaneSpec("silent", 8), got str: "slow"',
        ),
    ],
)
def test_an_argument_out_of_its_range_is_refused(arguments: dict[str, Any], message: str) -> None:
    """The message has the value and what would be right."""
    with pytest.raises(UsageError) as caught:
        own_provider(silent, **arguments)
    assert str(caught.value) == f"own_provider: {message}"
