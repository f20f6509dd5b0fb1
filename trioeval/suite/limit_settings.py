"""What a suite file says of limits that it shares with others, as frozen data."""

from pathlib import Path
from typing import Annotated, Literal

import attrs

from trioeval.documents.structure import TEXT, Count, Form, Milliseconds, NamedText
from trioeval.limits.model import Limit, Unit


@attrs.frozen(kw_only=True)
class QuotaKey:
    """A limit that the calls of a lane count against."""

    key: NamedText
    unit: Unit
    """What of a call counts; where the file says nothing, it is told from the end of the key."""


@attrs.frozen(kw_only=True)
class BatchSettings:
    """How requests to whoever keeps the limits are put together."""

    size: Count = 128
    """Most leases in one request, 1 to 256."""
    flush_ms: Milliseconds = 2
    """How long one waits for others, ≥ 1."""


@attrs.frozen(kw_only=True)
class QuotaSettings:
    """Where the shared limits are kept."""

    backend: Literal["memory", "redis", "http"] = "memory"
    url: str | None = attrs.field(default=None, repr=False)
    """Of Redis, or of `trioeval quota serve`; needed by both."""
    namespace: str = "trioeval"
    """What keys in Redis begin with."""
    limits: tuple[Limit, ...] | None = None
    """In memory, those that there are; elsewhere those that are made where they are not there yet."""
    limits_file: Annotated[Path, Form(TEXT)] | None = None
    """A file of them, in place of `limits`; absolute."""
    unreachable: Literal["closed", "open"] = "closed"
    """What becomes of calls when nobody can be asked for longer than the patience: they fail, or are made."""
    patience_ms: Milliseconds = 30_000
    """How long calls wait for whoever keeps the limits to answer again, in milliseconds, ≥ 1."""
    request_timeout_ms: Milliseconds = 2000
    """Milliseconds that one request may take, ≥ 1."""
    batch: BatchSettings | None = None
    """None sends each request alone."""
    max_output_tokens: Count = 2048
    """What a reply is taken to have at most where nothing bounds it, in tokens, ≥ 1."""
    workers: Count = 1
    """Questions under way at once on each lane of a task that does not say how many, ≥ 1."""
