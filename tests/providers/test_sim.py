"""The guarantees of the simulated model, on the virtual clock."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from trioeval.errors import Problem, ProviderError, SuiteError
from trioeval.providers import ProviderSpec, Reply, Request, open_providers, resolve
from trioeval.templates import Templates
from trioeval.testing import run_virtual


def spec(entry_id: str = "sim:m", **config: Any) -> ProviderSpec:
    return resolve(
        entry_id, config, environ={}, directory=Path(), templates=Templates(strict=True), custom={}
    )


def answers(prompts: list[str], *, at_once: bool = False, **config: Any) -> list[Reply | str]:
    """Return the result of each prompt, errors as their kind; sequentially or concurrently."""
    found: dict[int, Reply | str] = {}

    async def main() -> None:
        async with open_providers([spec(**config)], Templates(strict=True)) as [model]:

            async def ask(position: int) -> None:
                request = Request(
                    prompt=prompts[position], vars={"right": "42"}, repeat_index=position
                )
                try:
                    found[position] = await model(request)
                except ProviderError as error:
                    found[position] = error.kind

            if at_once:
                async with trio.open_nursery() as nursery:
                    for position in reversed(range(len(prompts))):
                        nursery.start_soon(ask, position)
            else:
                for position in range(len(prompts)):
                    await ask(position)

    run_virtual(main)
    return [found[position] for position in range(len(prompts))]


MIXED: dict[str, Any] = {
    "errorRate": 0.2,
    "throttleRate": 0.1,
    "refusalRate": 0.1,
    "quality": 0.6,
    "answer": "{{right}}",
    "spread": 0.5,
}


def test_results_do_not_depend_on_the_order_of_calls() -> None:
    """A wider lane gives the same results sooner."""
    prompts = [f"prompt {number % 40}" for number in range(200)]
    one_by_one = answers(prompts, **MIXED)
    assert answers(prompts, at_once=True, **MIXED) == one_by_one
    assert answers(prompts, seed=1, **MIXED) != one_by_one


def test_tests_that_render_alike_are_independent() -> None:
    """The order of calls and the number of retries do not matter."""

    def fates(order: Sequence[int]) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}

        async def main() -> None:
            settings = spec(errorRate=0.4, refusalRate=0.3, quality=0.5)
            async with open_providers([settings], Templates(strict=True)) as [model]:
                for number in order:
                    request = Request(prompt="same", test_idx=number, prompt_idx=number % 2)
                    try:
                        answer: Any = (await model(request)).output
                    except ProviderError as error:
                        answer = error.kind
                    found.setdefault(number, []).append(answer)

        run_virtual(main)
        return found

    order = [number for _ in range(3) for number in range(12)]
    one_by_one = fates(order)
    assert fates(sorted(order, reverse=True)) == one_by_one
    assert len({tuple(answers) for answers in one_by_one.values()}) > 1


@pytest.mark.slow
def test_shares_match_the_config() -> None:
    """Of many calls about the configured share fails, is refused or is wrong."""
    found = answers([str(number) for number in range(4000)], at_once=True, **MIXED)
    errors = [answer for answer in found if isinstance(answer, str)]
    assert 700 < errors.count("server") < 900
    assert 330 < errors.count("rate_limited") < 470
    replies = [answer for answer in found if isinstance(answer, Reply)]
    refused = [reply for reply in replies if reply.is_refusal]
    assert 0.08 < len(refused) / len(replies) < 0.12
    right = [reply for reply in replies if reply.output == "42"]
    assert 0.55 < len(right) / (len(replies) - len(refused)) < 0.65


def test_a_wrong_answer_is_permanent_and_a_transient_failure_is_not() -> None:
    """A retry helps against transient failures, never against wrong answers."""

    async def main() -> None:
        settings = spec(errorRate=0.5, quality=0.5, answer="right", wrongAnswer="wrong")
        async with open_providers([settings], Templates(strict=True)) as [model]:
            for number in range(50):
                seen = set()
                mishaps = 0
                for _ in range(12):
                    try:
                        seen.add((await model(Request(prompt=str(number)))).output)
                    except ProviderError:
                        mishaps += 1
                assert len(seen) == 1
                assert mishaps < 12

    run_virtual(main)


def test_the_duration_is_latency_plus_token_time() -> None:
    """Without spread a call takes its latency plus the time of its tokens."""

    async def main() -> tuple[float, Reply]:
        settings = spec(latencyMs=500, tokensPerSecond=2, price={"input": 1, "output": 4})
        async with open_providers([settings], Templates(strict=True)) as [model]:
            started_at = trio.current_time()
            reply = await model(Request(prompt="x" * 16))
            return trio.current_time() - started_at, reply

    took, reply = run_virtual(main)
    assert took == 0.5 + 4 / 2
    assert reply.usage.total == 8
    assert reply.cost == pytest.approx((4 * 1 + 4 * 4) / 1e6)


def test_all_mistakes_of_an_entry_are_reported() -> None:
    """Problems of shares, templates and names are reported together."""
    with pytest.raises(SuiteError) as caught:
        spec("sim", quality=2, answer="{% if %}", throttleRate=0.6, errorRate=0.6)
    assert caught.value.problems == (
        Problem(".config.quality", "must be a number from 0 to 1, got 2"),
        Problem(".id", '"sim" has no model name', "any name is valid, for example sim:clever"),
        Problem(
            ".config.answer",
            "not a template: line 1: unexpected token: %}",
        ),
        Problem(
            ".config.errorRate", "errorRate and throttleRate together must be at most 1, got 1.2"
        ),
    )


def test_a_template_that_cannot_be_rendered_is_a_bad_request() -> None:
    """A missing variable is reported, and the call is not retried."""
    assert answers(["a"], answer="{{nothing}}") == ["bad_request"]


def test_a_sequence_returns_its_inputs_and_repeats_the_last() -> None:
    """All calls share one position; a strict sequence ends."""

    async def outputs(calls: int, **config: Any) -> list[Any]:
        async with open_providers([spec("sequence", **config)], Templates(strict=True)) as [
            provider
        ]:
            return [(await provider(Request(prompt="?"))).output for _ in range(calls)]

    assert run_virtual(lambda: outputs(4, inputs=["a", {"b": 1}])) == [
        "a",
        {"b": 1},
        {"b": 1},
        {"b": 1},
    ]
    with pytest.raises(ProviderError, match="replay_miss: the sequence has only 1 reply"):
        run_virtual(lambda: outputs(2, inputs=["a"], strict=True))
    with pytest.raises(SuiteError) as caught:
        spec("sequence")
    assert caught.value.problems == (
        Problem(".config.inputs", "missing", 'for example "inputs": ["yes", "no"]'),
    )
