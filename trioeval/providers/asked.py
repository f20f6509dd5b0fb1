"""Who answers, in words that others than a suite understand."""

import attrs


@attrs.frozen(kw_only=True)
class Asked:
    """Who is asked, as far as that is known before a call. Holds no secret."""

    id: str
    """As the suite says it."""
    family: str | None = None
    """What kind of service it is, as `openai` or `azure`; None of what is no service."""
    model: str | None = None
    """As the service knows it."""
    host: str | None = None
    """Of the server."""
    port: int | None = None
    """Likewise; None where there is no host."""
