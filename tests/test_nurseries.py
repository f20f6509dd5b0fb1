"""A nursery for a block that others use."""

import pytest
import trio

from trioeval.nurseries import open_plain_nursery


def test_a_plain_nursery_raises_what_its_block_raises() -> None:
    """As it is, and after the tasks have ended."""

    async def main() -> None:
        async with open_plain_nursery() as nursery:
            nursery.start_soon(trio.sleep, 0)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        trio.run(main)
