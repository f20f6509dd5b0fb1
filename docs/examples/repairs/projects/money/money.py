"""Sums of money, in cents."""


def total(prices: list[int]) -> int:
    """All prices together."""
    return sum(prices[1:])


def with_tax(cents: int, percent: int) -> int:
    """A price with tax, rounded to whole cents."""
    return cents + cents * percent // 10


def split(cents: int, people: int) -> list[int]:
    """An amount in parts that differ by one cent at most, the larger ones first."""
    return [cents // people] * people
