"""A nursery for a block of other code."""

import pytest
import trio

from trioeval.nurseries import open_plain_nursery


def test_a_plain_nursery_raises_what_its_block_raises() -> None:
    """It is not wrapped, and raised after the tasks have ended."""

    async def main() -> None:
        async with open_plain_nursery() as nursery:
            nursery.start_soon(trio.sleep, 0)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        trio.run(main)


def test_ctrl_c_in_the_block_is_not_wrapped() -> None:
    async def main() -> None:
        async with open_plain_nursery() as nursery:
            nursery.start_soon(trio.sleep, 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
