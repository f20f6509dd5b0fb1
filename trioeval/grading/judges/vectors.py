"""How near two vectors are to each other."""

import math
from collections.abc import Sequence

from trioeval.errors import GradingError

Vector = Sequence[float]

_TOO_LARGE = "the numbers of an embedding are too large to count with"


def dot(one: Vector, other: Vector) -> float:
    """The sum of the products, Σ aᵢ·bᵢ.

    Raises:
        GradingError: They have different lengths, or numbers that are too large to count with.
    """
    _same_length(one, other)
    try:
        return _finite(math.fsum(left * right for left, right in zip(one, other, strict=True)))
    except (OverflowError, ValueError) as error:
        raise GradingError(_TOO_LARGE) from error


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of the angle between them, from -1 to 1; 0 where one of them is zero.

    Raises:
        GradingError: As for `dot`.

    Example:
        >>> cosine([3.0, 0.0], [1.0, 0.0]), cosine([0.0, 0.0], [1.0, 0.0])
        (1.0, 0.0)
    """
    product = dot(one, other)
    lengths = _finite(math.hypot(*one) * math.hypot(*other))
    # Rounding may leave the range by the last bit.
    return min(1.0, max(-1.0, product / lengths)) if lengths > 0 else 0.0


def distance(one: Vector, other: Vector) -> float:
    """The Euclidean distance, √Σ(aᵢ − bᵢ)².

    Raises:
        GradingError: As for `dot`.
    """
    _same_length(one, other)
    return _finite(math.dist(one, other))


def _same_length(one: Vector, other: Vector) -> None:
    if len(one) != len(other):
        msg = f"two embeddings have different lengths: {len(one)} and {len(other)}"
        raise GradingError(msg)


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise GradingError(_TOO_LARGE)
    return number
