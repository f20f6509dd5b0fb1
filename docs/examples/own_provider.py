"""A provider of one's own: an async function with its lane and the maximum cost of a call."""

import trio

import trioeval
from trioeval import LaneSpec, ProviderError, Reply, Request, own_provider


async def abacus(request: Request) -> Reply:
    """Add two numbers. Sends one request, and neither retries nor limits: the lane does."""
    first, _, second = request.prompt.partition(" + ")
    await trio.sleep(0.01)  # where a request would go out
    if not (first.isdecimal() and second.isdecimal()):
        raise ProviderError("bad_request", f"an abacus cannot read {request.prompt!r}")
    return Reply(output=str(int(first) + int(second)), cost=0.01)


async def main() -> None:
    suite = trioeval.parse_suite(
        {
            "providers": ["abacus"],
            "prompts": ["{{a}} + {{b}}"],
            "tests": [
                {"vars": {"a": 2, "b": 2}, "assert": [{"type": "equals", "value": 4}]},
                {"vars": {"a": 2, "b": 3}, "assert": [{"type": "equals", "value": 6}]},
                {"vars": {"a": 2, "b": "x"}, "assert": [{"type": "equals", "value": 2}]},
            ],
            "evaluateOptions": {"budget": {"usd": 0.06}},
        }
    )
    mine = own_provider(abacus, lane=LaneSpec("abacus", 2), max_cost=0.02)
    for row in await trioeval.collect(suite, providers={"abacus": mine}):
        print(row.index, row.status.value, row.output, row.error)


if __name__ == "__main__":
    trio.run(main)
