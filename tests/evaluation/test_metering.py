"""The reservations of calls, budgets of money, and the lanes of providers."""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

import trioeval
from trioeval import Reply, Request, Row, Status, SuiteError, Usage
from trioeval.errors import CallError, Fault, ProviderError
from trioeval.evaluation.metering import CallMeter
from trioeval.providers import Metering, resolve
from trioeval.providers.base import Media
from trioeval.providers.fake.media import picture
from trioeval.providers.metering import find_counter, image_tokens
from trioeval.providers.prices import Price, list_prices
from trioeval.templates import Templates
from trioeval.testing import run_virtual

PRICE = Price(input=1, output=4)


@given(st.text())
def test_a_text_is_first_reserved_by_its_bytes(text: str) -> None:
    """No vocabulary of byte pairs needs more; lone surrogates count like the replacement that is sent."""
    meter = CallMeter([Metering(longest_reply=10, price=PRICE)], ["lane"], bounds_only=False)
    estimate = meter.estimate(0, text)
    assert estimate.prompt_bound == len(text.encode("utf-8", "replace"))
    assert estimate.tokens == estimate.prompt_bound + 10
    assert estimate.money == pytest.approx((estimate.prompt_bound + 40) / 1e6)


def test_a_lane_learns_the_usage_of_its_calls() -> None:
    """Both providers of a lane gain; another lane does not, nor does a run with a budget."""
    known = [Metering(longest_reply=1000)] * 3
    meter = CallMeter(known, ["a", "a", "b"], bounds_only=False)
    strict = CallMeter(known, ["a", "a", "b"], bounds_only=True)
    for each in (meter, strict):
        for _ in range(200):
            estimate = each.estimate(0, "x" * 400)
            each.learn(0, estimate, Usage(prompt=100, completion=200))
    assert meter.estimate(1, "x" * 400).tokens == pytest.approx(110 + 220, abs=3)
    assert meter.estimate(2, "x" * 400).tokens == 1400
    assert strict.estimate(0, "x" * 400).tokens == 1400


@pytest.mark.parametrize("strict", [False, True])
def test_media_of_a_prompt_are_reserved(*, strict: bool) -> None:
    """A judge's request names them by short texts; the service counts pixels and seconds."""
    known = Metering(longest_reply=10, image=1445)
    meter = CallMeter([known], ["lane"], bounds_only=strict)
    kinds = ("image/png", "image/gif", "audio/mpeg", "video/mp4")
    media = [Media(kind, "0" * 64, 100_000) for kind in kinds]
    estimate = meter.estimate(0, "x" * 100, media=media)
    assert estimate.prompt_bound == 100 + 2 * 1445 + 400 + 250


def test_a_data_uri_counts_as_its_image_unless_a_budget_must_hold() -> None:
    """Its base64 would be a thousand times as many tokens."""
    prompt = f"look: data:image/png;base64,{'A' * 400_000} what is it?"
    rest = len("look:  what is it?")
    for model, tokens in (("gpt-4o", 1445), ("gpt-4o-mini", 48_169), ("gemini-3-pro", 1120)):
        known = Metering(longest_reply=10, image=image_tokens(model))
        meter = CallMeter([known], ["lane"], bounds_only=False)
        assert meter.estimate(0, prompt).prompt_bound == rest + tokens
        strict = CallMeter([known], ["lane"], bounds_only=True)
        assert strict.estimate(0, prompt).prompt_bound == len(prompt)


def test_an_image_of_a_config_counts_as_an_image() -> None:
    """It is sent with every prompt."""
    image = b64encode(picture("a cat") + bytes(90_000)).decode()
    spec = resolve(
        "google:video:veo-3.1-generate-preview",
        {"image": image, "apiKey": "k"},
        environ={},
        directory=Path(),
        templates=Templates(),
        custom={},
    )
    assert 1600 < spec.metering.overhead < 2000


def test_openai_texts_are_counted_exactly_with_the_extra() -> None:
    """Each model has its own vocabulary; others have no exact counter."""
    modern, old = find_counter("gpt-4.1-mini"), find_counter("ft:gpt-3.5-turbo:acme")
    assert modern is not None
    assert old is not None
    words = "hello world, " * 1000
    assert 3000 < modern(words) < 3100
    assert modern("漢字" * 100) < old("漢字" * 100)
    two = '[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]'
    assert modern(two) >= 2 * 4
    assert find_counter("claude-x") is None


@pytest.mark.parametrize(
    ("holds", "counted"),
    [
        ({}, 5),
        ({"bounds_only": True}, 1),
        ({"bounded_lanes": frozenset({"a"})}, 1),
        ({"paced_lanes": frozenset({"a"})}, 1),
        ({"paced_lanes": frozenset({"b"})}, 5),
        ({"ceiling": 100}, 1),
    ],
)
def test_a_prompt_is_counted_exactly_where_the_number_matters(
    holds: dict[str, Any], counted: int
) -> None:
    """Reading a vocabulary takes longer than many calls; elsewhere a lane learns the difference."""
    meter = CallMeter([Metering(count=lambda _text: 1)], ["a"], **{"bounds_only": False, **holds})
    assert meter.estimate(0, "hello").prompt_bound == counted


def metering_of(entry_id: str, environ: dict[str, str] | None = None, **config: Any) -> Metering:
    """Return the metering of an entry."""
    spec = resolve(
        entry_id,
        {"apiKey": "sk-1234", **config},
        environ=environ or {},
        directory=Path(),
        templates=Templates(),
        custom={},
    )
    return spec.metering


@pytest.mark.parametrize(
    ("entry_id", "config", "environ", "tokens"),
    [
        ("openai:gpt-4.1", {}, {}, 1024),
        ("openai:gpt-4.1", {"max_tokens": 7}, {}, 7),
        ("openai:gpt-4.1", {"max_tokens": 7, "n": 5}, {}, 35),
        ("openai:gpt-4.1", {"max_tokens": 10, "max_completion_tokens": 5000}, {}, 5000),
        ("openai:gpt-4.1", {"passthrough": {"max_tokens": 8000}}, {}, 8000),
        ("openai:gpt-4.1", {}, {"OPENAI_MAX_TOKENS": "8000"}, 8000),
        ("openai:chat:o3", {"max_completion_tokens": 9}, {}, 9),
        ("openai:responses:gpt-4.1", {"max_output_tokens": 8}, {}, 8),
        ("openai:responses:gpt-4.1", {"background": True, "max_output_tokens": 8}, {}, 8),
        ("openai-sdk:gpt-4.1", {"max_tokens": 7}, {}, 7),
        ("anthropic:claude-haiku-4-5", {"max_tokens": 12}, {}, 12),
        ("google:gemini-2.5-flash", {"maxOutputTokens": 11}, {}, 11),
        ("google:gemini-2.5-flash", {"generationConfig": {"maxOutputTokens": 11}}, {}, 11),
        ("openai:embedding:text-embedding-3-small", {}, {}, 0),
        ("openai:moderation:omni-moderation-latest", {}, {}, 0),
        ("google:embedding:gemini-embedding-001", {}, {}, 0),
    ],
)
def test_the_maximum_reply_is_the_requested_one(
    entry_id: str, config: dict[str, Any], environ: dict[str, str], tokens: int
) -> None:
    """It may come from the config, passed-through keys, or the environment."""
    known = metering_of(entry_id, environ, **config)
    assert (known.longest_reply, known.is_bounded) == (tokens, True)


@pytest.mark.parametrize("entry_id", ["openai:chat:o3", "google:gemini-2.5-flash"])
def test_an_unbounded_reply_is_estimated(entry_id: str) -> None:
    """The estimate is marked as a guess."""
    known = metering_of(entry_id)
    assert (known.longest_reply, known.is_bounded) == (1024, False)


def test_parts_of_every_prompt_are_reserved() -> None:
    """Tools cost tokens as well."""
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * 40_000}}]
    assert metering_of("openai:gpt-4.1", tools=tools).overhead > 40_000
    assert metering_of("openai:gpt-4.1").overhead < 200


@pytest.mark.parametrize(
    ("entry_id", "paid"),
    [
        ("openai:gpt-4.1", True),
        ("openai-sdk:gpt-4.1", True),
        ("openai:responses:gpt-4.1", True),
        ("litellm:any", True),
        ("ollama:any", False),
        ("echo", False),
    ],
)
def test_paid_providers_are_known(entry_id: str, *, paid: bool) -> None:
    """This holds for any client; a server on this machine costs nothing, a proxy does."""
    if entry_id == "echo":
        assert (
            resolve(
                entry_id, {}, environ={}, directory=Path(), templates=Templates(), custom={}
            ).metering.is_paid
            is False
        )
        return
    assert metering_of(entry_id).is_paid is paid


def rows_of(
    suite: dict[str, Any], warn: Callable[[str], None] | None = None, **providers: Any
) -> list[Row]:
    """Run a suite on the virtual clock."""
    parsed, rows = trioeval.parse_suite(suite), list[Row]()

    async def emit(row: Row) -> None:  # noqa: ASYNC124 - keeps it
        rows.append(row)

    async def main() -> None:
        await trioeval.run_suite(parsed, emit=emit, providers=providers or None, warn=warn)

    run_virtual(main)
    return rows


SIMULATED: dict[str, Any] = {
    "id": "sim:m",
    "config": {"answer": "x" * 400, "price": {"input": 0, "output": 100}},
}


def test_a_budget_of_money_holds() -> None:
    """A reply costs a cent; spending never exceeds the budget, and the other rows have this reason."""
    rows = rows_of(
        {
            "providers": [SIMULATED],
            "prompts": ["Hi"],
            "evaluateOptions": {"repeat": 50, "maxConcurrency": 7, "budget": {"usd": 0.205}},
        }
    )
    spent = sum(row.reply.cost or 0 for row in rows if row.reply)
    longest = 1024 * 100 / 1e6  # must be left for a call to start
    assert 0.205 - longest - 0.01 < spent <= 0.205
    late = [row for row in rows if row.status is Status.NOT_RUN]
    assert len(late) == 50 - round(spent / 0.01)
    assert all("budget" in (row.error or "") for row in late)


def test_a_budget_of_money_needs_prices() -> None:
    """It could not be enforced for a model with an unknown price."""
    suite = {
        "providers": [{"id": "openai:unknown-model", "config": {"apiKey": "sk-1234"}}, "echo"],
        "evaluateOptions": {"budget": {"usd": 1}},
    }
    with pytest.raises(SuiteError) as caught:
        trioeval.prepare(trioeval.parse_suite(suite))
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == (
        "$.providers[0]",
        "a budget in usd is set, but the price of openai:unknown-model is not known",
    )
    suite["evaluateOptions"] = {"budget": {"requests": 1}}
    trioeval.prepare(trioeval.parse_suite(suite))


@pytest.mark.parametrize(("tier", "is_known"), [("flex", True), ("scale", False)])
def test_a_budget_of_money_needs_the_price_of_the_tier(tier: str, is_known: bool) -> None:  # noqa: FBT001
    """A listed model may have tiers whose price is unknown; `maxCost` bounds them."""
    config = {"apiKey": "sk-1234", "service_tier": tier, "max_completion_tokens": 100}
    suite = {
        "providers": [{"id": "openai:gpt-5", "config": config}],
        "evaluateOptions": {"budget": {"usd": 1}},
    }
    if is_known:
        trioeval.prepare(trioeval.parse_suite(suite))
        return
    with pytest.raises(
        SuiteError, match='the price of openai:gpt-5 in its service tier "scale" is'
    ):
        trioeval.prepare(trioeval.parse_suite(suite))
    suite["providers"] = [{"id": "openai:gpt-5", "config": {**config, "maxCost": 0.5}}]
    trioeval.prepare(trioeval.parse_suite(suite))


def own_suite(**config: Any) -> dict[str, Any]:
    """Fifty concurrent calls of a provider of the caller, with a budget of five dollars."""
    return {
        "providers": [{"id": "mine", "config": config}],
        "prompts": ["Hi"],
        "evaluateOptions": {"repeat": 60, "maxConcurrency": 50, "budget": {"usd": 5}},
    }


def test_a_budget_of_money_needs_a_bound_of_providers_that_report_costs() -> None:
    """It could not hold for calls whose cost is known only after all of them are made."""
    suite = own_suite()
    suite["providers"] += [
        {"id": "https://my.test/ask", "config": {"body": {"ask": "{{prompt}}"}}},
        "echo",
    ]

    async def mine(_request: Request) -> Reply:
        raise AssertionError

    with pytest.raises(SuiteError) as caught:
        trioeval.prepare(trioeval.parse_suite(suite), providers={"mine": mine})
    assert [(problem.path, problem.message) for problem in caught.value.problems] == [
        (
            f"$.providers[{position}]",
            f"a budget in usd is set, but the cost of a call of {name} has no limit",
        )
        for position, name in enumerate(["mine", "https://my.test/ask"])
    ]
    assert '"maxCost": 0.05' in (caught.value.problems[0].hint or "")
    suite["evaluateOptions"]["budget"] = {"requests": 1}
    trioeval.prepare(trioeval.parse_suite(suite), providers={"mine": mine})


@pytest.mark.parametrize(("cost", "calls"), [(1.0, 5), (0.5, 9)])
def test_a_budget_of_money_holds_for_own_providers(cost: float, calls: int) -> None:
    """Each call in flight reserves a dollar; the unused part is released for others."""

    async def mine(_request: Request) -> Reply:
        await trio.sleep(1)
        return Reply(output="x", cost=cost)

    rows = rows_of(own_suite(maxCost=1.0), mine=mine)
    spent = [row.reply.cost or 0 for row in rows if row.reply is not None]
    assert (len(spent), sum(spent)) == (calls, calls * cost)


def test_a_call_that_reports_no_cost_counts_as_the_maximum() -> None:
    """No call is assumed to be cheaper than it may be."""

    async def mine(_request: Request) -> str:
        await trio.sleep(1)
        return "x"

    rows = rows_of(own_suite(maxCost=2.0), mine=mine)
    assert sum(row.reply is not None for row in rows) == 2


def test_a_call_above_its_bound_is_counted_and_reported_once() -> None:
    """The budget is exceeded by the excess of the calls in flight, and nothing starts after that."""

    async def mine(_request: Request) -> Reply:
        await trio.sleep(1)
        return Reply(output="x", cost=3.0)

    warnings: list[str] = []
    rows = rows_of(own_suite(maxCost=1.0), warn=warnings.append, mine=mine)
    assert sum(row.reply is not None for row in rows) == 5
    (warning,) = warnings
    assert warning == (
        "a call of mine cost 3 US dollars, but only 1 were reserved: the budget may be exceeded by "
        "the difference; set maxCost in its config, or max_cost of own_provider, to the maximum cost of "
        "one call"
    )


@settings(max_examples=15, deadline=None)
@given(
    width=st.integers(1, 12),
    cents=st.integers(2, 150),
    seconds=st.lists(st.integers(1, 9), min_size=1, max_size=8),
)
@example(width=10, cents=108, seconds=[2, 3, 4, 5, 6, 7, 1])
def test_a_budget_is_exceeded_only_by_calls_before_the_first_above_its_bound(
    width: int, cents: int, seconds: list[int]
) -> None:
    """Later calls fit into the budget at their real cost, beside all others in flight."""
    calls = early = 0
    is_known = False

    async def mine(_request: Request) -> Reply:
        nonlocal calls, early, is_known
        calls, is_early = calls + 1, not is_known
        early += is_early
        assert (calls - early) * cents + early <= 300  # a cent is reserved for each early one
        await trio.sleep(seconds[calls % len(seconds)])
        early -= is_early
        is_known = True
        return Reply(output="x", cost=cents / 100)

    suite = own_suite(maxCost=0.01)
    suite["evaluateOptions"] |= {"maxConcurrency": width, "repeat": 100, "budget": {"usd": 3}}
    rows = rows_of(suite, warn=lambda _: None, mine=mine)
    assert {row.error for row in rows if row.outcome == "failed"} == set()


def test_an_excess_is_reserved_for_later_calls_of_the_same_provider() -> None:
    """It is added to the bounds of each prompt, in tokens and in money; a smaller one changes nothing."""
    known = Metering(longest_reply=10, is_bounded=True, price=Price(input=1e6, output=1e6))
    meter = CallMeter([known, known], ["a", "b"], bounds_only=True)
    first = meter.estimate(0, "12345")
    assert (first.tokens, first.money) == (15, 15.0)
    for tokens, money in ((15, 15.0), (25, 18.0), (20, None), (None, None)):
        meter.learn_excess(0, first, tokens, money)
    later = meter.estimate(0, "1234567")
    assert (later.tokens, later.money) == (27, 20.0)
    meter.learn_excess(0, later, 27, 20.0)
    assert meter.estimate(0, "12345") == attrs.evolve(first, tokens=25, money=18.0)
    assert meter.estimate(1, "12345") == first


def test_calls_on_all_lanes_have_a_common_limit() -> None:
    """This holds for any widths; calls of judges count too."""
    in_flight = most = 0

    async def mine(_request: Request) -> str:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await trio.sleep(1)
        in_flight -= 1
        return '{"pass": true, "score": 1, "reason": "ok"}'

    rubric = {"type": "llm-rubric", "value": "x", "provider": "judge"}
    suite: dict[str, Any] = {
        "providers": ["one", "two"],
        "prompts": ["Hi"],
        "tests": [{"assert": [rubric]}] * 6,
        "evaluateOptions": {"maxConcurrency": 4},
    }
    rows_of(suite, one=mine, two=mine, judge=mine)
    assert most > 3
    suite["evaluateOptions"]["maxTotalConcurrency"], most = 3, 0
    rows = rows_of(suite, one=mine, two=mine, judge=mine)
    assert (most, {row.status for row in rows}) == (3, {Status.PASS})


@pytest.mark.parametrize(
    ("entries", "gap"),
    [
        ([{"delay": 100}, {"delay": 300}, {}], 0.3),
        ([{"delay": 300}, {"lane": {"delay": 100}}], 0.3),
        ([{"lane": {"rpm": 60}}, {"delay": 400}], 0.4),
        ([{"lane": {"rpm": 60, "delay": 1}}, {"lane": {"rpm": 60}}], 0.001),
    ],
)
def test_the_largest_delay_of_a_lane_applies(entries: list[dict[str, Any]], gap: float) -> None:
    """Entries of one model and key share a lane, and each may have another gap."""
    providers = [{"id": "echo", "label": str(n), **entry} for n, entry in enumerate(entries)]
    prepared = trioeval.prepare(trioeval.parse_suite({"providers": providers}))
    assert [spec.min_gap for spec in prepared.lane_specs] == [gap]


@pytest.mark.parametrize("wrong", [-1, "1", True])
def test_a_bound_of_costs_is_a_number(wrong: object) -> None:
    """This is checked at any position: here for a provider without keys."""
    suite = {"providers": [{"id": "echo", "config": {"maxCost": wrong}}]}
    with pytest.raises(SuiteError, match=r"maxCost: must be a number of US dollars of at least 0"):
        trioeval.prepare(trioeval.parse_suite(suite))


@pytest.mark.parametrize("budget", [{"usd": 1}, {"tokens": 1000}])
def test_a_budget_needs_bounds(budget: dict[str, int]) -> None:
    """It could not hold for a model that may answer at any length."""
    suite = {
        "providers": [{"id": "openai:chat:o3", "config": {"apiKey": "sk-1234"}}],
        "evaluateOptions": {"budget": budget},
    }
    with pytest.raises(SuiteError) as caught:
        trioeval.prepare(trioeval.parse_suite(suite))
    (problem,) = caught.value.problems
    assert (
        problem.message == "a budget is set, but the replies of openai:chat:o3 have no token limit"
    )


def test_usage_without_a_total_is_the_sum_of_its_parts() -> None:
    """A call that reports both parts is not settled with its whole reservation."""

    async def mine(_request: Request) -> Reply:
        return Reply(output="x", usage=Usage(prompt=5, completion=5))

    rows = rows_of(
        {
            "providers": [{"id": "mine", "config": {"maxTokens": 1024}}],
            "prompts": ["Hi"],
            "evaluateOptions": {"repeat": 10, "maxConcurrency": 1, "budget": {"tokens": 1200}},
        },
        mine=mine,
    )
    assert [row.status for row in rows] == [Status.NOT_GRADED] * 10


def test_the_usage_of_a_failure_is_counted() -> None:
    """The reported cost of a failure is used."""

    async def mine(_request: Request) -> Reply:
        raise CallError(Fault.REFUSED, "no", tokens=1000)

    rows = rows_of(
        {
            "providers": [{"id": "mine", "config": {"maxTokens": 1024}}],
            "prompts": ["Hi"],
            "evaluateOptions": {"repeat": 10, "maxConcurrency": 1, "budget": {"tokens": 2500}},
        },
        mine=mine,
    )
    assert sum(row.calls for row in rows) == 2


def test_lanes_with_one_key_are_one_lane() -> None:
    """Two accounts share a limit if configured so; an entry of `lanes` may have a key as well."""
    suite = trioeval.parse_suite(
        {
            "providers": [
                {"id": "sim:a", "lane": {"key": "the box", "maxConcurrency": 2}},
                {"id": "sim:b", "lane": {"key": "the box", "maxConcurrency": 2}},
                {"id": "sim:c", "lane": "shared"},
                "sim:d",
            ],
            "lanes": {"shared": {"key": "the box", "maxConcurrency": 2}},
        }
    )
    prepared = trioeval.prepare(suite)
    assert prepared.lane_names == ("the box", "the box", "the box", "sim:d")
    assert [spec.max_concurrency for spec in prepared.lane_specs] == [2, 4]


@pytest.mark.parametrize(("statuses", "successes"), [([], 0), ([500, 503], 1)])
def test_a_status_may_mean_too_many_calls(statuses: list[int], successes: int) -> None:
    """A lane waits if 503 means overload, however few retries there are."""
    left = iter([503, 503, 503])

    async def busy(_request: Request) -> Reply:
        if status := next(left, None):
            raise ProviderError("server", "busy", status=status)
        return Reply(output="done")

    lane = {"retries": 0, "overloadStatuses": statuses}
    rows = rows_of({"providers": [{"id": "busy", "lane": lane}], "prompts": ["Hi"]}, busy=busy)
    assert sum(row.status.is_success for row in rows) == successes


def test_the_price_table_is_complete() -> None:
    """Every price is a number, and cached tokens are cheaper."""
    table = list_prices()
    assert len(table.date) == len("2026-01-01")
    for models in table.prices.values():
        for price in models.values():
            assert price.input >= 0
            assert price.output >= price.input or price.output == 0  # embeddings write nothing
            assert price.cached_input is None or price.cached_input <= price.input


def test_cost_is_unknown_without_tokens() -> None:
    """Never 0 for uncounted tokens; tokens from and into a cache have their own prices."""
    price = Price(input=1, output=10, cached_input=0.1, cache_write=2)
    assert price.cost(Usage(prompt=5)) is None
    tiers = Price(input=1, output=10, up_to=1000, beyond=Price(input=2, output=30))
    assert tiers.cost(Usage(prompt=1000, completion=1)) == pytest.approx(0.00101)
    assert tiers.cost(Usage(prompt=1001, completion=1)) == pytest.approx(0.002032)
    assert tiers.most(1001, 1) == pytest.approx(0.002032)
    usage = Usage(prompt=1000, completion=100, cached=400, cache_creation=100)
    assert price.cost(usage) == pytest.approx((500 * 1 + 400 * 0.1 + 100 * 2 + 100 * 10) / 1e6)


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.floats(0, 100),
    st.floats(0, 100),
)
def test_the_maximum_is_never_less_than_the_cost(
    prompt: int, completion: int, cached: int, input_price: float, output_price: float
) -> None:
    """A reservation of a budget covers the settled amount."""
    price = Price(input=input_price, output=output_price, cached_input=input_price / 2)
    cost = price.cost(Usage(prompt=prompt, completion=completion, cached=min(cached, prompt)))
    assert cost is not None
    assert price.most(prompt, completion) >= cost * (1 - 1e-9)
