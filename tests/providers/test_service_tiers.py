"""A call costs what the service tier of its reply costs."""

import json
from datetime import date
from importlib.resources import files
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vendor_anthropic import MESSAGES, message
from vendor_bedrock import CONVERSE
from vendor_cases import Vendor, reply
from vendor_google import GENERATE
from vendor_openai import CHAT
from vendor_responses import RESPONSES

from trioeval.providers.config import is_price
from trioeval.providers.http.adapter import Adapter, AdapterSettings
from trioeval.providers.metering import most_money
from trioeval.providers.prices import Price, list_prices, read_price, tier_name
from trioeval.usage import Usage

LISTED = list_prices()
OPENAI = LISTED.prices["openai"]
USED = Usage(prompt=1_000_000, completion=1_000_000)
EVERY = [
    pytest.param(price, id=f"{family}-{model}")
    for family, models in LISTED.prices.items()
    for model, price in models.items()
]


def completion(tier: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 1_000_000}
    choice = {"index": 0, "message": {"content": "4"}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": usage, "service_tier": tier}


def adapter_of(vendor: Vendor, price: Price | None, **config: Any) -> Adapter:
    """Return the adapter of a vendor with a price as from the list."""
    adapter = vendor.adapter(**config)
    return attrs.evolve(adapter, endpoint=attrs.evolve(adapter.endpoint, price=price))


@pytest.mark.parametrize(
    ("model", "tier", "input_price", "output_price"),
    [
        ("gpt-5", "default", 1.25, 10),
        ("gpt-5", None, 1.25, 10),
        ("gpt-5", "flex", 0.625, 5),
        ("gpt-5", "batch", 0.625, 5),
        ("gpt-5", "priority", 2.5, 20),
        ("gpt-5", "fast", 2.5, 20),
        ("gpt-4o-mini", "priority", 0.25, 1),
        ("gpt-6-astra", "priority", 20, 100),
    ],
)
def test_openai_tiers_have_their_own_prices(
    model: str, tier: str | None, input_price: float, output_price: float
) -> None:
    """Batch and flex are half of standard, priority is listed for each model."""
    price = OPENAI[model].of_tier(tier)
    assert price is not None
    assert (price.input, price.output) == (input_price, output_price)


def test_cached_tokens_of_a_tier_have_a_price_of_their_own() -> None:
    half, dear = OPENAI["gpt-5"].of_tier("flex"), OPENAI["gpt-5"].of_tier("priority")
    assert half is not None
    assert dear is not None
    assert (half.cached_input, dear.cached_input) == (0.0625, 0.25)
    flex = LISTED.prices["google"]["gemini-2.5-flash"].of_tier("flex")
    assert flex is not None
    assert (flex.input, flex.output, flex.cached_input) == (0.15, 1.25, 0.03)


def test_long_prompts_of_a_tier_cost_their_multiple_or_are_unknown() -> None:
    """Priority prices of some models are only listed up to a length."""
    long = Usage(prompt=300_000, completion=0)
    flex, priority = (OPENAI["gpt-5.5"].of_tier(tier) for tier in ("flex", "priority"))
    assert flex is not None
    assert priority is not None
    assert flex.cost(long) == pytest.approx(300_000 * 5 / 1e6)
    assert priority.cost(long) is None
    double = OPENAI["gpt-6-astra"].of_tier("priority")
    assert double is not None
    assert double.cost(long) == pytest.approx(300_000 * 40 / 1e6)


@pytest.mark.parametrize("tier", ["scale", "ultrafast", "new"])
def test_an_unknown_tier_has_no_price(tier: str) -> None:
    assert OPENAI["gpt-5"].of_tier(tier) is None
    assert OPENAI["gpt-5-nano"].of_tier("priority") is None


@pytest.mark.parametrize("price", EVERY)
def test_a_request_costs_at_most_the_dearest_price_of_its_tiers(price: Price) -> None:
    """The tier that serves a request is the requested one or the standard one."""
    for tier in (None, "auto", "default", "flex", "priority", "batch"):
        dearest = price.dearest(tier)
        if dearest is None:
            assert price.of_tier(tier) is None
            continue
        served = [price, price.of_tier(tier)]
        served += [price.tiers.get("priority")] if tier == "auto" else []
        for one in filter(None, served):
            for prompt in (10, 150_000, 250_000, 900_000):
                known = one.cost(Usage(prompt=prompt, completion=1000))
                if known is not None:
                    assert dearest.most(prompt, 1000) >= known


@pytest.mark.parametrize("vendor", [CHAT, RESPONSES], ids=["chat", "responses"])
@pytest.mark.parametrize(
    ("asked", "served", "cost"),
    [
        (None, None, 11.25),
        (None, "default", 11.25),
        (None, "priority", 22.5),
        ("flex", "flex", 5.625),
        ("flex", None, 5.625),
        ("flex", "default", 11.25),
        ("priority", "priority", 22.5),
        ("priority", "default", 11.25),
        ("auto", "default", 11.25),
        ("auto", None, 11.25),
        (None, "scale", None),
    ],
)
def test_the_tier_of_the_reply_decides_the_cost(
    vendor: Vendor, asked: str | None, served: str | None, cost: float | None
) -> None:
    """Without one in the reply, it is the requested one."""
    config = {} if asked is None else {"service_tier": asked}
    adapter = adapter_of(vendor, OPENAI["gpt-5"], **config)
    assert adapter.cost(USED, {"service_tier": served}) == cost


def test_the_cost_of_a_reply_is_that_of_its_tier() -> None:
    """Streams report the tier in a chunk; a failed reply is charged alike."""
    adapter = adapter_of(CHAT, OPENAI["gpt-5"], metrics=["ttft"])
    assert adapter.parse(reply(completion("flex"))).cost == 5.625
    chunk = {**completion("flex"), "choices": []}
    delta = {"choices": [{"index": 0, "delta": {"content": "4"}, "finish_reason": "stop"}]}
    lines = (f"data: {json.dumps(one)}\n\n" for one in (delta, chunk))
    body = "".join((*lines, "data: [DONE]\n\n")).encode()
    streamed = attrs.evolve(reply({}), headers={"content-type": "text/event-stream"}, body=body)
    assert adapter.parse(streamed).cost == 5.625


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({}, 6.0),
        ({"service_tier": "standard"}, 6.0),
        ({"service_tier": "priority"}, 6.0),
        ({"service_tier": "batch"}, 3.0),
        ({"service_tier": "standard", "speed": "standard"}, 6.0),
        ({"service_tier": "standard", "speed": "fast"}, None),
    ],
)
def test_anthropic_reports_the_tier_in_the_usage(usage: dict[str, Any], cost: float | None) -> None:
    """Priority is capacity that was committed to, at the standard price."""
    adapter = adapter_of(MESSAGES, LISTED.prices["anthropic"]["claude-haiku-4-5"])
    counts = {"input_tokens": 1_000_000, "output_tokens": 1_000_000}
    found = adapter.parse(reply(message({"type": "text", "text": "4"}, usage=counts | usage)))
    assert found.cost == cost


@pytest.mark.parametrize(
    ("config", "usage", "cost"),
    [
        ({}, {}, 2.8),
        ({}, {"serviceTier": "SERVICE_TIER_STANDARD"}, 2.8),
        ({"passthrough": {"service_tier": "flex"}}, {}, 1.4),
        ({"passthrough": {"serviceTier": "FLEX"}}, {"serviceTier": "flex"}, 1.4),
        ({"passthrough": {"service_tier": "priority"}}, {"serviceTier": "standard"}, 2.8),
        ({"passthrough": {"service_tier": "priority"}}, {"serviceTier": "priority"}, None),
    ],
)
def test_gemini_reports_the_tier_in_the_usage(
    config: dict[str, Any], usage: dict[str, Any], cost: float | None
) -> None:
    adapter = adapter_of(GENERATE, LISTED.prices["google"]["gemini-2.5-flash"], **config)
    assert adapter.cost(USED, {"usageMetadata": usage}) == cost


def test_bedrock_reports_the_tier_as_an_object() -> None:
    price = read_price({"input": 2, "output": 2, "tiers": {"flex": {"input": 1, "output": 1}}})
    adapter = adapter_of(CONVERSE, price, serviceTier={"type": "flex"})
    assert adapter.requested_tier == "flex"
    assert adapter.cost(USED, {"serviceTier": {"type": "flex"}}) == 2
    assert adapter.cost(USED, {"serviceTier": {"type": "default"}}) == 4
    assert adapter.cost(USED, {}) == 2


def test_a_configured_price_is_that_of_every_tier_without_its_own() -> None:
    """A user who sets the price knows the tier; `tiers` has the prices of others."""
    value = {"input": 2, "output": 8, "tiers": {"Flex": {"input": 1, "output": 4}}}
    assert is_price(value)
    price = read_price(value)
    assert price.of_tier("scale") == price
    flex = price.of_tier("flex")
    assert flex is not None
    assert (flex.input, flex.output) == (1, 4)


@pytest.mark.parametrize(
    "tiers",
    [
        [],
        {"flex": 0.5},
        {"": {"input": 1, "output": 1}},
        {"flex": {"input": 1}},
        {"flex": {"input": 1, "output": 1, "tiers": {}}},
    ],
)
def test_invalid_tiers_of_a_price_are_refused(tiers: Any) -> None:
    assert not is_price({"input": 2, "output": 8, "tiers": tiers})


@pytest.mark.parametrize(
    ("tier", "money"),
    [(None, 11.25), ("default", 11.25), ("flex", 11.25), ("auto", 22.5), ("priority", 22.5)],
)
def test_a_budget_reserves_the_dearest_tier_that_may_serve_a_request(
    tier: str | None, money: float
) -> None:
    """A request without a tier is reserved at the standard price."""
    config = {} if tier is None else {"service_tier": tier}
    known = AdapterSettings(adapter_of(CHAT, OPENAI["gpt-5"], **config)).metering
    assert most_money(known, 1_000_000, 1_000_000) == money


def test_a_tier_without_a_known_price_has_no_known_maximum() -> None:
    """Then a budget of money requires `maxCost`."""
    known = AdapterSettings(adapter_of(CHAT, OPENAI["gpt-5"], service_tier="scale")).metering
    assert known.price is None


@given(st.text())
def test_every_text_is_a_tier(text: str) -> None:
    """A server may report any text; only known tiers have a price."""
    price = OPENAI["gpt-5"].of_tier(text)
    assert (price is None) == (tier_name(text) not in {"", "batch", "flex", "priority"})


def test_every_tier_has_a_source_and_a_date() -> None:
    """Tiers of models belong to a tier of their service."""
    data = json.loads(files("trioeval.providers").joinpath("prices.json").read_text("utf-8"))
    for family, models in data["prices"].items():
        known = data["tiers"].get(family, {})
        assert all(tier["source"].startswith("https://") for tier in known.values())
        assert all(date.fromisoformat(tier["checked"]) for tier in known.values())
        for model in models.values():
            assert model.get("tiers", {}).keys() <= known.keys()
