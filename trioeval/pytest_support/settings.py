"""What the settings of pytest say of suites."""

from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

_OFF = frozenset({"off", "false", "no", "0"})
_ON = frozenset({"", "on", "true", "yes", "1"})


@attrs.frozen(kw_only=True)
class Settings:
    """How suites are run."""

    max_concurrency: int | None = None
    """Calls in flight that no lane may exceed, ≥ 1; None leaves that to the suites."""
    is_cached: bool = True
    """Whether replies come from a cache, and go into it."""
    cache: Path | None = None
    """Its file; None is a cache in memory."""
    db: Path | None = None
    """The database of runs; None keeps them only as long as the session."""


def read_settings(config: pytest.Config, environ: Mapping[str, str]) -> Settings:
    """What the settings say; paths are relative to the root of the session.

    Args:
        config: Of the session.
        environ: Says where the cache is, and whether there is one, where the settings do not.

    Raises:
        UsageError: One of them means nothing.
    """
    width = str(config.getini("trioeval_max_concurrency") or "").strip()
    if width and not (width.isascii() and width.isdigit() and int(width) >= 1):
        msg = f"trioeval_max_concurrency must be a whole number of at least 1, got {width!r}"
        raise pytest.UsageError(msg)
    db = str(config.getini("trioeval_db") or "").strip()
    is_cached, cache = _cache(config, environ)
    return Settings(
        max_concurrency=int(width) if width else None,
        is_cached=is_cached,
        cache=cache,
        db=config.rootpath / db if db else None,
    )


def _cache(config: pytest.Config, environ: Mapping[str, str]) -> tuple[bool, Path | None]:
    said = str(config.getini("trioeval_cache") or "").strip()
    if not said:
        said = _variable(environ, "CACHE_ENABLED") or ""
    if said.lower() in _OFF:
        return False, None
    if said.lower() == "memory" or (
        said.lower() in _ON and _variable(environ, "CACHE_TYPE") == "memory"
    ):
        return True, None
    if said.lower() not in _ON:
        return True, config.rootpath / said
    given = _variable(environ, "CACHE_PATH")
    if given is None:
        folder = _variable(environ, "CONFIG_DIR") or ".trioeval"
        return True, config.rootpath / folder / "cache.db"
    path = config.rootpath / given
    return True, path if path.suffix == ".db" and not path.is_dir() else path / "cache.db"


def _variable(environ: Mapping[str, str], name: str) -> str | None:
    return environ.get(f"TRIOEVAL_{name}") or environ.get(f"PROMPTFOO_{name}") or None
