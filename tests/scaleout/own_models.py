"""A provider of a program, in a module that workers can import."""

import attrs
import trio

from trioeval.providers import Reply, Request


async def reverse(request: Request) -> Reply:
    """Return the prompt backwards."""
    await trio.lowlevel.checkpoint()
    return Reply(output=request.prompt[::-1], cost=0.5)


@attrs.define
class Prefixer:
    """An object that is a provider, with a state."""

    prefix: str
    token: str = ""

    async def __call__(self, request: Request) -> Reply:
        """Return the prompt after the prefix."""
        await trio.lowlevel.checkpoint()
        return Reply(output=f"{self.prefix} {request.prompt}")
