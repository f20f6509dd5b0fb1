"""Student's t and the normal distribution, as far as intervals and tests need them.

Implemented here so that trioeval does not need SciPy; tests compare them with it.
"""

import math
from collections.abc import Callable

_MOST = 10_000  # steps of a continued fraction; about the square root of the degrees of freedom are needed
_TINY = 1e-300
_EPSILON = 1e-15
_MANY = 1000  # degrees of freedom above which a series in their inverse is exact to 11 digits


def normal_tail(z: float) -> float:
    """Return the probability that a standard normal number exceeds `z`.

    Example:
        >>> round(normal_tail(1.96), 4)
        0.025
    """
    return math.erfc(z / math.sqrt(2)) / 2


def normal_quantile(share: float) -> float:
    """Return the quantile of the standard normal distribution.

    Args:
        share: The probability, more than 0 and less than 1.

    Example:
        >>> round(normal_quantile(0.975), 4)
        1.96
    """
    return -normal_quantile(1 - share) if share > 1 / 2 else -_root(normal_tail, share)


def student_tail(t: float, freedom: float) -> float:
    """Return the probability that a number of Student's t distribution exceeds `t`.

    It is I_x(freedom / 2, 1 / 2) / 2 at x = freedom / (freedom + t²), with the regularized incomplete beta
    function I (Abramowitz and Stegun, *Handbook of Mathematical Functions*, 1964, 26.7.1 and 26.5.27).

    Args:
        t: Any number.
        freedom: Degrees of freedom, > 0.

    Example:
        >>> round(student_tail(2.228, 10), 4)
        0.025
    """
    if t < 0:
        return 1 - student_tail(-t, freedom)
    if math.isinf(square := t * t):
        return 0.0
    return _incomplete_beta(freedom / 2, 1 / 2, freedom, square) / 2


def student_quantile(share: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution.

    Above 1000 degrees of freedom by the series of Abramowitz and Stegun, 26.7.5.

    Args:
        share: The probability, more than 0 and less than 1.
        freedom: Degrees of freedom, > 0.

    Example:
        >>> round(student_quantile(0.975, 10), 3)
        2.228
    """
    if share > 1 / 2:
        return -student_quantile(1 - share, freedom)
    if freedom <= _MANY:
        return -_root(lambda t: student_tail(t, freedom), share)
    z = normal_quantile(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


def _root(tail: Callable[[float], float], share: float) -> float:
    """Return where a falling function, 1/2 at 0, reaches a value; by bisection."""
    low, high = 0.0, 1.0
    while tail(high) > share:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if tail(middle) > share else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, p: float, q: float) -> float:
    """Return I_x(a, b) at x = p / (p + q), without loss of digits in x or 1 - x."""
    x, y = p / (p + q), q / (p + q)
    if y <= 0:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges faster for the other side
        return 1 - _incomplete_beta(b, a, q, p)
    front = a * math.log(x) + b * math.log(y) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(front) * _beta_fraction(a, b, x) / a


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function by Lentz's method (DLMF 8.17.22)."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _MOST):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            found *= c * d
        if abs(c * d - 1) < _EPSILON:
            break
    return found


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
