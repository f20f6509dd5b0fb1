"""`trioeval fake-provider`: the fake server in the foreground."""

import signal
import sys

import trio

from trioeval.cli.exits import Exit
from trioeval.providers.fake import FakeAddress, FakeSettings, serve_fake


def serve_until_interrupted(settings: FakeSettings) -> int:
    """Serve, print the base URL on stdout, and return when a signal comes.

    Raises:
        UsageError: The address cannot be bound.
    """
    return trio.run(_serve, settings)


async def _serve(settings: FakeSettings) -> int:
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            address: FakeAddress = await nursery.start(serve_fake, settings)
            print(address.base_url, flush=True)
            print("serving; interrupt to stop", file=sys.stderr)
            async for _number in received:
                break
        nursery.cancel_scope.cancel("interrupted")
    return Exit.OK
