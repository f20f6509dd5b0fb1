"""Names of leases, made by who asks: 26 letters and digits that sort by the time they were made.

48 bits of milliseconds, then 80 bits of chance: two programs that never heard of each other make the
same one with a chance of 1 : 2⁸⁰ in the same millisecond. The alphabet is Crockford's base 32, which
has no letters that are taken for digits.
"""

from collections.abc import Callable

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_BITS, _CHANCE_BITS, _LETTER_BITS, _LETTERS = 48, 80, 5, 26


def lease_id(utc_ms: int, chance: int) -> str:
    """The id of a moment and a number drawn at random.

    Args:
        utc_ms: Milliseconds since 1970; of a larger number the last 48 bits count.
        chance: From 0 to 2⁸⁰ - 1.

    Raises:
        ValueError: `chance` is out of its range.

    Example:
        >>> lease_id(1_700_000_000_000, 1)
        '01HF7YAT000000000000000001'
    """
    if not 0 <= chance < 1 << _CHANCE_BITS:
        msg = f"chance must be from 0 to 2**{_CHANCE_BITS} - 1, got {chance!r}"
        raise ValueError(msg)
    number = (utc_ms % (1 << _TIME_BITS)) << _CHANCE_BITS | chance
    places = range((_LETTERS - 1) * _LETTER_BITS, -1, -_LETTER_BITS)
    return "".join([_ALPHABET[number >> place & 31] for place in places])


def lease_ids(utc: Callable[[], float], bits: Callable[[int], int]) -> Callable[[], str]:
    """What makes a new id whenever it is called.

    Args:
        utc: Tells the seconds since 1970.
        bits: Draws a number of so many bits.

    Example:
        >>> import random, time
        >>> new = lease_ids(time.time, random.getrandbits)
        >>> new() != new()
        True
    """
    return lambda: lease_id(int(utc() * 1000), bits(_CHANCE_BITS))
