"""A provider of one's own: an async function, under a name of the caller's choosing."""

import trio

import trioeval
from trioeval import ProviderError, Reply, Request


async def abacus(request: Request) -> Reply:
    """Adds two numbers. Sends one request, never retries, never limits: that is the lane's work."""
    first, _, second = request.prompt.partition(" + ")
    await trio.sleep(0.01)  # where a request would go out
    if not (first.isdecimal() and second.isdecimal()):
        raise ProviderError("bad_request", f"an abacus cannot read {request.prompt!r}")
    return Reply(output=str(int(first) + int(second)))


async def main() -> None:
    suite = trioeval.parse_suite(
        {
            "providers": [{"id": "abacus", "lane": {"maxConcurrency": 2}}],
            "prompts": ["{{a}} + {{b}}"],
            "tests": [
                {"vars": {"a": 2, "b": 2}, "assert": [{"type": "equals", "value": 4}]},
                {"vars": {"a": 2, "b": 3}, "assert": [{"type": "equals", "value": 6}]},
                {"vars": {"a": 2, "b": "x"}, "assert": [{"type": "equals", "value": 2}]},
            ],
        }
    )
    for row in await trioeval.collect(suite, providers={"abacus": abacus}):
        print(row.index, row.status.value, row.output, row.error)


if __name__ == "__main__":
    trio.run(main)
