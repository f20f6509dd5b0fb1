"""The provider that says what it was asked: for trying out suites without a model."""

import attrs
import trio

from trioeval.providers.base import Reply, Request, Usage


@attrs.frozen
class EchoProvider:
    """Answers with the prompt; costs nothing and uses no tokens."""

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request. Always a checkpoint, so that a long run can be cancelled."""
        await trio.lowlevel.checkpoint()
        return Reply(output=request.prompt, usage=Usage(prompt=0, completion=0, total=0), cost=0.0)
