# Separate from `report.statistics.paired`: sizes of samples, not comparisons.
"""The smallest difference that some tests can show, and the number of tests that a difference needs.

*Power* is the probability that an existing difference is found; 0.8 is usual.

Sources:
    H. S. Bloom, *Minimum detectable effects*, Evaluation Review 19 (1995); E. Miller, *Adding error bars to
    evals*, arXiv:2411.00640 (2024), section 5; J. L. Fleiss, B. Levin and M. C. Paik, *Statistical methods
    for rates and proportions* (2003), section 4.2; R. J. Connor, *Sample size for testing differences in
    proportions for the paired-sample design*, Biometrics 43 (1987).
"""

import math

from trioeval.report.statistics.distributions import normal_quantile, student_quantile
from trioeval.report.statistics.estimates import CONFIDENCE

POWER = 0.8


def detectable(
    standard_error: float,
    freedom: float | None = None,
    *,
    confidence: float = CONFIDENCE,
    power: float = POWER,
) -> float:
    """Return the least difference found with a power: (q_{1 - α/2} + q_power) · standard error.

    Args:
        standard_error: The standard error of the difference, > 0.
        freedom: Degrees of freedom of Student's t, clusters minus one; None takes normal quantiles.
        confidence: 1 - α.
        power: More than 0, less than 1.

    Example:
        >>> round(detectable(0.01), 4)
        0.028
    """
    shares = (1 + confidence) / 2, power
    if freedom is None:
        return math.fsum(map(normal_quantile, shares)) * standard_error
    return math.fsum(student_quantile(share, freedom) for share in shares) * standard_error


def needed(
    effect: float, deviation: float, *, confidence: float = CONFIDENCE, power: float = POWER
) -> int:
    """Return the tests that two runs of the same tests need: ((z_{1 - α/2} + z_power) · deviation / effect)².

    Args:
        effect: The least difference to find, not 0.
        deviation: The standard deviation of the difference of one test: √n times the standard error of n
            tests.
        confidence: 1 - α.
        power: More than 0, less than 1.

    Raises:
        ValueError: The effect is 0.

    Example:
        >>> needed(0.03, 1 / 3)
        969
    """
    _check_effect(effect)
    factor = detectable(1.0, confidence=confidence, power=power)
    return max(1, math.ceil((factor * deviation / effect) ** 2))


def needed_unpaired(
    effect: float,
    deviations: tuple[float, float],
    *,
    confidence: float = CONFIDENCE,
    power: float = POWER,
) -> int:
    """Return the tests that each of two runs of different tests needs.

    (z_{1 - α/2} + z_power)² · (σ_a² + σ_b²) / effect²

    Args:
        effect: The least difference of means to find, not 0.
        deviations: The standard deviations of the scores of both runs.
        confidence: 1 - α.
        power: More than 0, less than 1.

    Raises:
        ValueError: The effect is 0.

    Example:
        >>> needed_unpaired(0.5, (1, 1))
        63
    """
    return needed(effect, math.hypot(*deviations), confidence=confidence, power=power)


def needed_for_rates(
    before: float, after: float, *, confidence: float = CONFIDENCE, power: float = POWER
) -> int:
    """Return the tests that each of two runs of different tests needs to distinguish two pass rates.

    (z_{1 - α/2} √(2 p̄ (1 - p̄)) + z_power √(p_a (1 - p_a) + p_b (1 - p_b)))² / (p_a - p_b)²

    Args:
        before: One rate, 0 to 1.
        after: The other rate, not equal.
        confidence: 1 - α.
        power: More than 0, less than 1.

    Raises:
        ValueError: The rates are equal.

    Example:
        >>> needed_for_rates(0.25, 0.40)
        152
    """
    middle = (before + after) / 2
    alike = math.sqrt(2 * middle * (1 - middle))
    own = math.sqrt(before * (1 - before) + after * (1 - after))
    return _needed(alike, own, before - after, confidence, power)


def needed_for_pairs(
    effect: float, discordant: float, *, confidence: float = CONFIDENCE, power: float = POWER
) -> int:
    """Return the tests that two runs of the same tests need to distinguish pass rates by McNemar's test.

    (z_{1 - α/2} √ψ + z_power √(ψ - effect²))² / effect². The exact test needs more tests, and finds a few
    percent of the differences less.

    Args:
        effect: The difference of the rates, not 0.
        discordant: ψ, the share of tests that only one of the runs passes; at least |effect|.
        confidence: 1 - α.
        power: More than 0, less than 1.

    Raises:
        ValueError: The effect is 0, or larger than the share of tests that could cause it.

    Example:
        >>> needed_for_pairs(0.05, 0.15)
        469
    """
    if abs(effect) > discordant:
        msg = f"discordant must be at least the effect, {abs(effect)}, got {discordant}"
        raise ValueError(msg)
    own = math.sqrt(discordant - effect * effect)
    return _needed(math.sqrt(discordant), own, effect, confidence, power)


def _needed(alike: float, own: float, effect: float, confidence: float, power: float) -> int:
    _check_effect(effect)
    found = normal_quantile((1 + confidence) / 2) * alike + normal_quantile(power) * own
    return math.ceil((found / effect) ** 2)


def _check_effect(effect: float) -> None:
    if not effect:
        msg = "the effect must not be 0: no number of tests can show a difference of 0"
        raise ValueError(msg)
