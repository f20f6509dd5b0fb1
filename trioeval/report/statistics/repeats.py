"""What repeats of a test tell: whether one of k tries passes, and whether all of them do.

Both are estimated for each test from n ≥ k tries of which c passed, without bias, and are then averaged over
tests.

Sources:
    M. Chen et al., *Evaluating large language models trained on code*, arXiv:2107.03374 (2021), section 2.1,
    for pass@k; S. Yao et al., *τ-bench*, arXiv:2406.12045 (2024), section 3, for pass^k.
"""

import math
from collections.abc import Iterator

_ALL = 5  # values of k that are shown one by one


def at_least_one(n: int, passed: int, k: int) -> float:
    """Pass@k: the chance that at least one of k tries passes, 1 - C(n - c, k) / C(n, k).

    Args:
        n: Tries, ≥ `k`.
        passed: How many of them passed, 0 to `n`.
        k: At least 1.

    Raises:
        ValueError: One of them is out of its range.

    Example:
        >>> at_least_one(5, 1, 1), at_least_one(5, 1, 3), at_least_one(5, 3, 3)
        (0.2, 0.6, 1.0)
    """
    _check(n, passed, k)
    ways = math.comb(n, k)
    return (ways - math.comb(n - passed, k)) / ways


def every_one(n: int, passed: int, k: int) -> float:
    """Pass^k: the chance that all of k tries pass, C(c, k) / C(n, k).

    Args:
        n: Tries, ≥ `k`.
        passed: How many of them passed, 0 to `n`.
        k: At least 1.

    Raises:
        ValueError: One of them is out of its range.

    Example:
        >>> every_one(5, 4, 2), every_one(5, 1, 2)
        (0.6, 0.0)
    """
    _check(n, passed, k)
    return math.comb(passed, k) / math.comb(n, k)


def shown_ks(repeats: int) -> Iterator[int]:
    """For which k they are told of tests with so many repeats: 1 to 5, then 10, 20, 50, 100 …, and all.

    Example:
        >>> [*shown_ks(1)], [*shown_ks(3)], [*shown_ks(64)]
        ([], [1, 2, 3], [1, 2, 3, 4, 5, 10, 20, 50, 64])
    """
    if repeats <= 1:
        return
    yield from range(1, min(_ALL, repeats) + 1)
    power = 10
    while power < repeats:
        yield from (k for k in (power, 2 * power, 5 * power) if k < repeats)
        power *= 10
    if repeats > _ALL:
        yield repeats


def _check(n: int, passed: int, k: int) -> None:
    if not (1 <= k <= n and 0 <= passed <= n):
        msg = f"must be 1 ≤ k ≤ n and 0 ≤ passed ≤ n, got n={n}, passed={passed}, k={k}"
        raise ValueError(msg)
