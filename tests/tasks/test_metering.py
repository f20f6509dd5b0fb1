"""What calls reserve, what a budget of money allows, and which lane a provider is on."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trioeval
from trioeval import Reply, Request, Row, Status, SuiteError, Usage
from trioeval.errors import ProviderError
from trioeval.providers import Metering
from trioeval.providers.estimates import find_counter, longest_reply
from trioeval.providers.prices import Price, list_prices
from trioeval.tasks.metering import Meter
from trioeval.testing import run_virtual

PRICE = Price(input=1, output=4)


@given(st.text())
def test_a_text_is_reserved_with_its_bytes_at_first(text: str) -> None:
    """No vocabulary of byte pairs needs more; lone surrogates count as what is sent for them."""
    meter = Meter([Metering(longest_reply=10, price=PRICE)], ["lane"], bounds_only=False)
    estimate = meter.estimate(0, text)
    assert estimate.prompt_bound == len(text.encode("utf-8", "replace"))
    assert estimate.tokens == estimate.prompt_bound + 10
    assert estimate.money == pytest.approx((estimate.prompt_bound + 40) / 1e6)


def test_a_lane_learns_what_its_calls_use() -> None:
    """Both providers of a lane gain; another lane does not, nor does a run with a budget."""
    known = [Metering(longest_reply=1000)] * 3
    meter = Meter(known, ["a", "a", "b"], bounds_only=False)
    strict = Meter(known, ["a", "a", "b"], bounds_only=True)
    for each in (meter, strict):
        for _ in range(200):
            estimate = each.estimate(0, "x" * 400)
            each.learn(0, estimate, Usage(prompt=100, completion=200))
    assert meter.estimate(1, "x" * 400).tokens == pytest.approx(110 + 220, abs=3)
    assert meter.estimate(2, "x" * 400).tokens == 1400
    assert strict.estimate(0, "x" * 400).tokens == 1400


def test_openai_texts_are_counted_exactly_with_the_extra() -> None:
    """Each model with its own vocabulary; others have no exact counter."""
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
    ("config", "tokens"),
    [
        ({}, 1024),
        ({"max_tokens": 7}, 7),
        ({"maxOutputTokens": 8}, 8),
        ({"generationConfig": {"maxOutputTokens": 9}}, 9),
        ({"max_tokens": "many", "max_completion_tokens": True}, 1024),
    ],
)
def test_the_longest_reply_is_what_the_config_says(config: dict[str, Any], tokens: int) -> None:
    """Under whatever name; what is no bound is none."""
    assert longest_reply(config) == tokens


def test_an_embedding_reserves_no_reply() -> None:
    """It is made of no tokens, and costs none."""
    config = {"apiKey": "sk-1234"}
    entries = [{"id": f"openai:{kind}:m", "config": config} for kind in ("embedding", "chat")]
    specs = trioeval.prepare(trioeval.parse_suite({"providers": entries})).specs
    assert [spec.metering.longest_reply for spec in specs] == [0, 1024]


def rows_of(suite: dict[str, Any], **providers: Any) -> list[Row]:
    """Run a suite on the virtual clock."""
    parsed = trioeval.parse_suite(suite)
    return run_virtual(lambda: trioeval.collect(parsed, providers=providers or None))


SIMULATED: dict[str, Any] = {
    "id": "sim:m",
    "config": {"answer": "x" * 400, "price": {"input": 0, "output": 100}},
}


def test_a_budget_of_money_holds() -> None:
    """A reply costs a cent; what is spent never passes the budget, and the rest says why it was not run."""
    rows = rows_of(
        {
            "providers": [SIMULATED],
            "prompts": ["Hi"],
            "evaluateOptions": {"repeat": 50, "maxConcurrency": 7, "budget": {"usd": 0.205}},
        }
    )
    spent = sum(row.reply.cost or 0 for row in rows if row.reply)
    longest = 1024 * 100 / 1e6  # what must be left for a call to start
    assert 0.205 - longest - 0.01 < spent <= 0.205
    late = [row for row in rows if row.status is Status.ERROR]
    assert len(late) == 50 - round(spent / 0.01)
    assert all("budget" in (row.error or "") for row in late)


def test_a_budget_of_money_needs_prices() -> None:
    """It could not hold for a model whose price nobody knows."""
    suite = {
        "providers": [{"id": "openai:nobody-knows", "config": {"apiKey": "sk-1234"}}, "echo"],
        "evaluateOptions": {"budget": {"usd": 1}},
    }
    with pytest.raises(SuiteError) as caught:
        trioeval.prepare(trioeval.parse_suite(suite))
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == (
        "$.providers[0]",
        "there is a budget in usd, and no price of openai:nobody-knows is known",
    )
    suite["evaluateOptions"] = {"budget": {"requests": 1}}
    trioeval.prepare(trioeval.parse_suite(suite))


def test_lanes_with_one_key_are_one_lane() -> None:
    """Two accounts that share a limit are told to; an entry of `lanes` may have a key as well."""
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
    assert [spec.width for spec in prepared.lane_specs] == [2, 4]


@pytest.mark.parametrize(("statuses", "passed"), [([], 0), ([500, 503], 1)])
def test_a_status_may_mean_too_many_calls(statuses: list[int], passed: int) -> None:
    """Where 503 is overload it is waited for, however few retries there are."""
    left = iter([503, 503, 503])

    async def busy(_request: Request) -> Reply:
        if status := next(left, None):
            raise ProviderError("server", "busy", status=status)
        return Reply(output="done")

    lane = {"retries": 0, "overloadStatuses": statuses}
    rows = rows_of({"providers": [{"id": "busy", "lane": lane}], "prompts": ["Hi"]}, busy=busy)
    assert sum(row.status is Status.PASS for row in rows) == passed


def test_the_price_table_is_whole() -> None:
    """Every price is a number, and cheaper from a cache than not."""
    table = list_prices()
    assert len(table.date) == len("2026-01-01")
    for models in table.prices.values():
        for price in models.values():
            assert price.input >= 0
            assert price.output >= price.input or price.output == 0  # embeddings write nothing
            assert price.cached_input is None or price.cached_input <= price.input


def test_cost_is_unknown_without_tokens() -> None:
    """Never 0 for what nobody counted; tokens from and into a cache have prices of their own."""
    price = Price(input=1, output=10, cached_input=0.1, cache_write=2)
    assert price.cost(Usage(prompt=5)) is None
    short = Price(input=1, output=10, up_to=1000)
    assert short.cost(Usage(prompt=1000, completion=0)) == pytest.approx(0.001)
    assert short.cost(Usage(prompt=1001, completion=0)) is None
    usage = Usage(prompt=1000, completion=100, cached=400, cache_creation=100)
    assert price.cost(usage) == pytest.approx((500 * 1 + 400 * 0.1 + 100 * 2 + 100 * 10) / 1e6)


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.floats(0, 100),
    st.floats(0, 100),
)
def test_the_most_is_never_less_than_the_cost(
    prompt: int, completion: int, cached: int, input_price: float, output_price: float
) -> None:
    """What is reserved of a budget covers what is settled."""
    price = Price(input=input_price, output=output_price, cached_input=input_price / 2)
    cost = price.cost(Usage(prompt=prompt, completion=completion, cached=min(cached, prompt)))
    assert cost is not None
    assert price.most(prompt, completion) >= cost * (1 - 1e-9)
