"""Harmful requests to a limit server, accidental or not, from a program that knows the token."""

import json
from typing import Any

import pytest
from local_servers import SLOTS, TOKEN, in_trio, limits_server

from trioeval.limits import LimitState

pytestmark = [pytest.mark.attack("requests of limits"), pytest.mark.network]

KNOWN = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}
NEED = [{"key": "slots", "amount": 1}]
WEEK = 7 * 86_400

PAUSES: list[Any] = [
    WEEK + 1, 28 * 365 * 86_400, 900_000_000, 1e300, -1, -0.001, "60", None, True, [60],
    "Infinity", "NaN", 2**63, 2**64,
]  # fmt: skip
ASKS: dict[str, Any] = {
    "a long id": {"lease_id": "a" * 257, "requirements": NEED},
    "a blank id": {"lease_id": " ", "requirements": NEED},
    "a number for an id": {"lease_id": 7, "requirements": NEED},
    "a long job": {"lease_id": "a", "job_id": "j" * 1025, "requirements": NEED},
    "nothing": {"lease_id": "a", "requirements": []},
    "too many": {
        "lease_id": "a",
        "requirements": [{"key": f"k{n}", "amount": 1} for n in range(33)],
    },
    "one key twice": {"lease_id": "a", "requirements": NEED * 2},
    "a long key": {"lease_id": "a", "requirements": [{"key": "k" * 257, "amount": 1}]},
    "no amount": {"lease_id": "a", "requirements": [{"key": "slots"}]},
    "amount 0": {"lease_id": "a", "requirements": [{"key": "slots", "amount": 0}]},
    "amount -1": {"lease_id": "a", "requirements": [{"key": "slots", "amount": -1}]},
    "amount 1.5": {"lease_id": "a", "requirements": [{"key": "slots", "amount": 1.5}]},
    "amount 2^53": {"lease_id": "a", "requirements": [{"key": "slots", "amount": 2**53}]},
    "amount true": {"lease_id": "a", "requirements": [{"key": "slots", "amount": True}]},
    "a list": [],
    "a text": "a",
    "nothing at all": None,
    "a field more": {"lease_id": "a", "requirements": NEED, "priority": 1},
}
ENDS: dict[str, Any] = {
    "a long id": {"lease_id": "a" * 257},
    "a long job": {"lease_id": "a", "job_id": "j" * 1025},
    "too many": {"lease_id": "a", "actuals": [{"key": "k", "actual_amount": 1}] * 33},
    "a long key": {"lease_id": "a", "actuals": [{"key": "k" * 257, "actual_amount": 1}]},
    "used -1": {"lease_id": "a", "actuals": [{"key": "slots", "actual_amount": -1}]},
    "used 2^53": {"lease_id": "a", "actuals": [{"key": "slots", "actual_amount": 2**53}]},
}
OTHERS: dict[str, tuple[str, str, Any]] = {
    "no batch": ("POST", "/v1/reserve/batch", {"requests": []}),
    "a large batch": ("POST", "/v1/reserve/batch", {"requests": [{}] * 257}),
    "a large batch of ends": ("POST", "/v1/complete/batch", {"requests": [{}] * 257}),
    "many ids": ("POST", "/v1/extend", {"lease_ids": ["a"] * 257}),
    "long ids": ("POST", "/v1/extend", {"lease_ids": ["a" * 257]}),
    "a long key to pause": ("POST", "/v1/admin/pause", {"key": "k" * 257, "seconds": 1}),
    "capacity 0": ("PUT", "/v1/admin/limits", {"key": "x", "kind": "budget", "capacity": 0}),
    "capacity -1": ("PUT", "/v1/admin/limits", {"key": "x", "kind": "budget", "capacity": -1}),
    "capacity 2^53": ("PUT", "/v1/admin/limits", {"key": "x", "kind": "budget", "capacity": 2**53}),
    "a long key to define": ("PUT", "/v1/admin/limits", {"key": "k" * 257, "kind": "budget", "capacity": 1}),
    "no window": ("PUT", "/v1/admin/limits", {"key": "x", "kind": "rolling", "capacity": 1}),
    "window 0": (
        "PUT", "/v1/admin/limits", {"key": "x", "kind": "rolling", "capacity": 1, "window_seconds": 0},
    ),
    "a window of centuries": (
        "PUT", "/v1/admin/limits", {"key": "x", "kind": "rolling", "capacity": 1, "window_seconds": 1e10},
    ),
    "deep nesting": ("POST", "/v1/reserve", None),
}  # fmt: skip


def refuses(method: str, path: str, body: str) -> None:
    async def main() -> None:
        async with limits_server() as server:
            reply = await server.ask(method, path, KNOWN, body)
            assert (reply.status, json.loads(reply.body)["error"]) == (400, "invalid_request")
            assert list(await server.limits.states()) == [LimitState(limit=SLOTS)]
            assert (await server.ask("GET", "/healthz")).status == 200

    in_trio(main)


@pytest.mark.parametrize("seconds", PAUSES, ids=str)
def test_a_pause_is_at_most_a_week(seconds: Any) -> None:
    """Milliseconds given as seconds, or a typing error, close no limit for years."""
    refuses("POST", "/v1/admin/pause", json.dumps({"key": "slots", "seconds": seconds}))


@pytest.mark.parametrize("name", ASKS)
def test_a_request_out_of_bounds_reserves_nothing(name: str) -> None:
    """None of it is stored."""
    refuses("POST", "/v1/reserve", json.dumps(ASKS[name]))


@pytest.mark.parametrize("name", ENDS)
def test_a_completion_out_of_bounds_returns_nothing(name: str) -> None:
    """Negative usage would create capacity."""
    refuses("POST", "/v1/complete", json.dumps(ENDS[name]))


@pytest.mark.parametrize("name", OTHERS)
def test_other_values_out_of_bounds_are_refused(name: str) -> None:
    """This covers batches, definitions, and texts that are not JSON."""
    method, path, data = OTHERS[name]
    body = "[" * 100_000 if name == "deep nesting" else json.dumps(data)
    refuses(method, path, body)


@pytest.mark.parametrize("size", [4 * 1024 * 1024 + 1, 64 * 1024 * 1024])
def test_a_large_body_is_not_stored(size: int) -> None:
    """The server does not wait for it either."""

    async def main() -> None:
        async with limits_server() as server:
            reply = await server.ask("POST", "/v1/reserve", KNOWN, " " * size)
            assert reply.status in {0, 413}
            assert (await server.ask("GET", "/healthz")).status == 200

    in_trio(main)
