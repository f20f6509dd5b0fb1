"""Days and years of the Gregorian calendar."""

DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 30]


def is_leap(year: int) -> bool:
    """Return whether a year has a 29th of February."""
    return year % 4 == 0


def days_in(year: int, month: int) -> int:
    """Return the number of days of a month, from 1 for January."""
    return DAYS[month] + (month == 2 and is_leap(year))


def day_of_year(year: int, month: int, day: int) -> int:
    """The number of a day in its year, from 1."""
    return sum(days_in(year, before) for before in range(1, month)) + day - 1
