import math
from collections.abc import Mapping
from typing import Any

import pytest
import trio

from trioeval.errors import CallError, Fault, ProviderError, UsageError
from trioeval.providers import Reply, Request, Usage
from trioeval.providers.local.custom import CustomProvider
from trioeval.providers.local.echo import EchoProvider
from trioeval.rates import Allowance, RateHint

ASK = Request(prompt="Hi")


def call(function: Any) -> Reply:
    return trio.run(CustomProvider("mine", function), ASK)


def failure(function: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        call(function)
    return caught.value


def test_an_echo_returns_the_prompt_at_no_cost() -> None:
    """An echo costs no money and no tokens."""
    free = Usage(prompt=0, completion=0, total=0)
    assert trio.run(EchoProvider(), ASK) == Reply(output="Hi", usage=free, cost=0.0)


def test_an_echo_can_be_cancelled() -> None:
    """Even the fastest provider is a checkpoint."""

    async def main() -> bool:
        with trio.CancelScope() as scope:
            scope.cancel()
            await EchoProvider()(ASK)
        return scope.cancelled_caught

    assert trio.run(main)


async def text(request: Request) -> str:
    return request.prompt.upper()


async def whole(request: Request) -> Reply:
    return Reply(output=request.prompt, cost=0.5)


async def broken(_request: Request) -> str:
    raise ValueError("no luck")


async def broken_in_a_nursery(_request: Request) -> str:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broken, ASK)
        nursery.start_soon(busy, ASK)
    return "never"


async def busy(_request: Request) -> str:
    raise ProviderError("overloaded", "later")


async def number(_request: Request) -> int:
    return 3


async def nothing(_request: Request) -> None:
    pass


async def odd_text(_request: Request) -> Reply:
    return Reply(output=5, text=5)  # type: ignore[arg-type]


async def odd_thought(_request: Request) -> Reply:
    return Reply(text="4", reasoning=["a"])  # type: ignore[arg-type]


async def odd_call(_request: Request) -> Reply:
    return Reply(output="4", tool_calls=[{"name": "f"}])  # type: ignore[arg-type]


def not_async(_request: Request) -> str:
    return "Hi"


def broken_early(_request: Request) -> str:
    raise KeyError("x")


def test_text_and_replies_are_replies() -> None:
    """A function may return text or a complete reply."""
    assert call(text) == Reply(output="HI")
    assert call(whole) == Reply(output="Hi", cost=0.5)


def test_a_provider_error_of_a_function_is_passed_on() -> None:
    """A function may raise its own kind of failure."""
    assert str(failure(busy)) == "overloaded: later"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.RATE_LIMITED, "rate_limited"),
        (Fault.TRANSIENT, "server"),
        (Fault.REFUSED, "bad_request"),
        (Fault.QUOTA_EXHAUSTED, "quota_exhausted"),
        (Fault.FATAL, "permission"),
    ],
)
def test_a_failed_call_of_a_function_keeps_its_fault_for_the_lane(fault: Fault, kind: str) -> None:
    """Fault, wait and retries are the function's; only the kind is added."""

    async def fails(_request: Request) -> str:
        raise CallError(
            fault, "not now", retry_after=2.0, retries=1, hint=RateHint(requests=Allowance(0, 3.0))
        )

    error = failure(fails)
    assert (error.fault, error.retry_after, error.retries) == (fault, 2.0, 1)
    assert error.hint == RateHint(requests=Allowance(0, 3.0))
    assert str(error) == f"{kind}: provider mine: not now"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (broken, "mine: ValueError: no luck"),
        (broken_early, "mine: KeyError: 'x'"),
        (number, "mine must return a Reply or text, it returned int: 3"),
        (nothing, "mine must return a Reply or text, it returned nothing"),
        (odd_text, "mine returned a Reply whose text is int: 5; it must be text"),
        (odd_thought, 'mine returned a Reply whose reasoning is list: ["a"]; it must be text'),
        (odd_call, 'mine returned a Reply with a tool call of dict: {"name": "f"}; it must be a '),
        (not_async, 'mine is not async: it returned str: "Hi"; write it with `async def`'),
    ],
)
def test_any_other_exception_is_unexpected(function: Any, reason: str) -> None:
    """The error describes the function's fault on one line."""
    assert str(failure(function)).startswith(f"unexpected: provider {reason}")


@pytest.mark.parametrize(
    ("parts", "fault"),
    [
        ({"usage": {"total": 3}}, 'whose usage is dict: {"total": 3}; it must be a Usage'),
        ({"usage": Usage(total=-1)}, "whose usage is dict: "),
        ({"cost": "0.5"}, 'whose cost is str: "0.5"; it must be a number of at least 0'),
        ({"cost": math.nan}, "whose cost is float: NaN; it must be a number of at least 0"),
        ({"finish_reason": 3}, "whose finish_reason is int: 3; it must be text"),
        ({"refusal": True}, "whose refusal is bool: true; it must be text"),
        ({"log_probs": ["x"]}, 'whose log_probs is list: ["x"]; it must be a list of numbers'),
    ],
)
def test_a_wrong_part_of_a_reply_is_shown(parts: Mapping[str, Any], fault: str) -> None:
    """Its cost and its usage count nevertheless, as far as they are right."""

    async def odd(_request: Request) -> Reply:
        return Reply(**{"text": "x", "usage": Usage(total=7), "cost": 0.25, **parts})

    error = failure(odd)
    assert str(error).startswith(f"unexpected: provider mine returned a Reply {fault}")
    assert error.usage == (Usage() if "usage" in parts else Usage(total=7))
    assert error.money == (None if "cost" in parts else 0.25)


def test_tool_calls_of_a_reply_are_objects_of_their_class() -> None:
    """Their output could not be made from anything else."""
    calls: Any = ({"name": "f"},)
    with pytest.raises(UsageError) as caught:
        Reply(tool_calls=calls)
    assert str(caught.value) == "each of Reply.tool_calls must be a ToolCall, got {'name': 'f'}"


def test_the_cause_is_kept() -> None:
    """The traceback of the user's code is preserved."""
    assert isinstance(failure(broken).__cause__, ValueError)


def test_an_exception_group_is_described_by_its_parts() -> None:
    """The message does not mention exceptions from a nursery."""
    error = failure(broken_in_a_nursery)
    assert isinstance(error.__cause__, ExceptionGroup)
    parts = error.message.removeprefix("provider mine: ").split("; ")
    assert sorted(parts) == ["ProviderError: overloaded: later", "ValueError: no luck"]


def test_cancellation_passes_through_a_function() -> None:
    """A cancelled call is cancelled, not failed."""

    async def forever(_request: Request) -> str:
        await trio.sleep_forever()

    async def main() -> bool:
        with trio.move_on_after(0) as scope:
            await CustomProvider("mine", forever)(ASK)
        return scope.cancelled_caught

    assert trio.run(main)
