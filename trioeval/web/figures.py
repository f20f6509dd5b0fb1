"""Numbers, times and ages as people read them. Pure."""

from datetime import UTC, datetime


def count_text(number: float) -> str:
    """A number with its thousands apart.

    Example:
        >>> count_text(12345), count_text(7.5), count_text(60.0)
        ('12,345', '7.5', '60')
    """
    return f"{number:,.0f}" if number == int(number) else f"{number:,.1f}"


def seconds_text(seconds: float) -> str:
    """How long something takes.

    Example:
        >>> (
        ...     seconds_text(0.0002),
        ...     seconds_text(0.12),
        ...     seconds_text(3.21),
        ...     seconds_text(75),
        ...     seconds_text(7300),
        ... )
        ('< 1 ms', '120 ms', '3.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.001 else "< 1 ms"  # noqa: PLR2004
    if seconds < 60:  # noqa: PLR2004 - of a minute
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004 - of an hour
        return f"{minutes} min {left} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def money_text(dollars: float) -> str:
    """US dollars.

    Example:
        >>> money_text(0), money_text(0.00123), money_text(12.5)
        ('–', '$0.0012', '$12.50')
    """
    if not dollars:
        return "–"
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.4f}"


def age_text(utc: str, now: datetime) -> str:
    """How long ago an instant was.

    Args:
        utc: ISO 8601.
        now: What time it is.

    Example:
        >>> age_text("2026-01-01T00:00:00.000Z", datetime(2026, 1, 1, 3, 0, tzinfo=UTC))
        '3 h ago'
        >>> age_text("long ago", datetime(2026, 1, 1, tzinfo=UTC))
        ''
    """
    try:
        then = datetime.fromisoformat(utc)
    except ValueError:
        return ""
    seconds = (now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size):,} {unit} ago"
    return f"{max(0, int(seconds))} s ago"
