"""A provider of a program, in a module that workers can import."""

import trio

from trioeval.providers import Reply, Request


async def reverse(request: Request) -> Reply:
    """Return the prompt backwards."""
    await trio.lowlevel.checkpoint()
    return Reply(output=request.prompt[::-1], cost=0.5)
