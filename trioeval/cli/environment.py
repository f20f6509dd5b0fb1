"""Settings from environment variables, named `TRIOEVAL_…` or, as in promptfoo, `PROMPTFOO_…`.

This module has the settings of a run and its outputs; templates, test sources and providers read their own.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, overload

import attrs

from trioeval.cli.terminal import Exit
from trioeval.errors import UsageError
from trioeval.report.strip import KEEP_ALL, Strip

_PREFIXES = ("TRIOEVAL_", "PROMPTFOO_")
_MANY = 1_000_000
_TRUE = frozenset({"1", "true", "yes"})
_FALSE = frozenset({"0", "false", "no", ""})

UNSUPPORTED = ("REQUIRE_JSON_PROMPTS",)
"""Variables of promptfoo that are not supported yet; each one that is set causes a warning."""

ELSEWHERE = (
    "CSV_STRICT",
    "DISABLE_AJV_STRICT_MODE",
    "DISABLE_CONVERSATION_VAR",
    "DISABLE_JSON_AUTOESCAPE",
    "DISABLE_MULTIMEDIA_AS_BASE64",
    "DISABLE_OBJECT_STRINGIFY",
    "DISABLE_PDF_AS_TEXT",
    "DISABLE_TEMPLATE_ENV_VARS",
    "DISABLE_TEMPLATING",
    "DISABLE_VAR_EXPANSION",
    "SHORT_CIRCUIT_TEST_FAILURES",
)
"""Switches that other modules use and cannot refuse; their values are checked here."""


@attrs.frozen(kw_only=True)
class EnvironmentSettings:
    """The settings of the environment; None where a variable is not set."""

    max_concurrency: int | None = None
    delay_ms: float | None = None
    timeout_ms: float | None = None
    max_eval_time_ms: float | None = None
    cache: bool | None = None
    cache_path: Path | None = None
    """The file or folder of the cache."""
    cache_ttl_s: float = 1_209_600
    """The lifetime of a cached reply; 14 days."""
    cache_type: Literal["disk", "memory"] = "disk"
    db: Path | None = None
    """The database of runs."""
    wal: bool = True
    """True if the database and the cache use write-ahead logs."""
    config_dir: Path | None = None
    """The folder of the database and the cache if their own settings name none."""
    pass_rate_threshold: float = 100.0
    """The percentage of rows that must pass."""
    failed_exit_code: int = Exit.FAILED
    strip: Strip = KEEP_ALL
    escape_formulas: bool = True
    warnings: tuple[str, ...] = ()
    """Warnings about variables that are unsafe or not supported."""


def read_environment(environ: Mapping[str, str]) -> EnvironmentSettings:
    """Return the settings of an environment.

    Raises:
        UsageError: Some values are invalid; all of them are named.

    Example:
        >>> read_environment({"PROMPTFOO_DELAY_MS": "50", "TRIOEVAL_DELAY_MS": "20"}).delay_ms
        20.0
    """
    found = _EnvironmentReader(environ)
    settings = EnvironmentSettings(
        max_concurrency=found.whole("MAX_CONCURRENCY", least=1, most=_MANY, default=0) or None,
        delay_ms=found.number("DELAY_MS"),
        timeout_ms=found.number("EVAL_TIMEOUT_MS"),
        max_eval_time_ms=found.number("MAX_EVAL_TIME_MS"),
        cache=found.switch("CACHE_ENABLED"),
        cache_path=found.place("CACHE_PATH"),
        cache_ttl_s=found.number("CACHE_TTL", default=1_209_600),
        cache_type="memory" if found.choice("CACHE_TYPE", "disk", "memory") == "memory" else "disk",
        db=found.place("DB"),
        wal=not found.switch("DISABLE_WAL_MODE"),
        config_dir=found.place("CONFIG_DIR"),
        pass_rate_threshold=found.number("PASS_RATE_THRESHOLD", most=100, default=100.0),
        failed_exit_code=found.whole("FAILED_TEST_EXIT_CODE", most=255, default=Exit.FAILED),
        strip=Strip(
            prompt_text=bool(found.switch("STRIP_PROMPT_TEXT")),
            response_output=bool(found.switch("STRIP_RESPONSE_OUTPUT")),
            test_vars=bool(found.switch("STRIP_TEST_VARS")),
            grading_result=bool(found.switch("STRIP_GRADING_RESULT")),
            metadata=bool(found.switch("STRIP_METADATA")),
        ),
        escape_formulas=not found.switch("DISABLE_CSV_FORMULA_ESCAPING"),
        warnings=tuple(found.warnings()),
    )
    for name in ELSEWHERE:
        found.switch(name)
    found.whole("PYTHON_WORKERS", least=1, most=64, default=1)
    found.whole("ASSERTIONS_MAX_CONCURRENCY", least=1, most=_MANY, default=1)
    found.character("CSV_DELIMITER")
    if found.mistakes:
        raise UsageError("\n".join(found.mistakes))
    return settings


@attrs.frozen(eq=False, repr=False)
class _EnvironmentReader:
    environ: Mapping[str, str]
    mistakes: list[str] = attrs.field(factory=list)

    def text(self, name: str) -> tuple[str, str]:
        """Return the name of the variable that applies and its value, which is empty if it is not set."""
        for prefix in _PREFIXES:
            if value := self.environ.get(prefix + name, "").strip():
                return prefix + name, value
        return _PREFIXES[0] + name, ""

    def warnings(self) -> Iterator[str]:
        """Yield warnings about variables that are set."""
        if self.switch("INSECURE_SSL"):
            yield f"{self.text('INSECURE_SSL')[0]}: certificates of servers are not verified"
        for name in UNSUPPORTED:
            variable, value = self.text(name)
            if value:
                yield f"{variable} is not supported and has no effect"

    def switch(self, name: str) -> bool | None:
        """Return the value of a switch; None if it is not set."""
        variable, value = self.text(name)
        if not value:
            return None
        if value.lower() not in _TRUE | _FALSE:
            self.mistakes.append(f"{variable} must be true or false, got {value!r}")
        return value.lower() in _TRUE

    @overload
    def number(self, name: str, *, most: float = ..., default: float) -> float: ...
    @overload
    def number(self, name: str, *, most: float = ..., default: None = ...) -> float | None: ...
    def number(
        self, name: str, *, most: float = math.inf, default: float | None = None
    ) -> float | None:
        """Return a number that is not negative; the default if it is not set."""
        variable, value = self.text(name)
        if not value:
            return default
        try:
            found = float(value)
        except ValueError:
            found = math.nan
        if math.isfinite(found) and 0 <= found <= most:
            return found
        bounds = "at least 0" if most == math.inf else f"from 0 to {most:g}"
        self.mistakes.append(f"{variable} must be a number {bounds}, got {value!r}")
        return default

    def place(self, name: str) -> Path | None:
        """Return a path; None if it is not set."""
        value = self.text(name)[1]
        return Path(value).expanduser() if value else None

    def choice(self, name: str, *known: str) -> str | None:
        """Return one of the known words; None if it is not set."""
        variable, value = self.text(name)
        if value and value not in known:
            self.mistakes.append(f"{variable} must be {' or '.join(known)}, got {value!r}")
        return value or None

    def character(self, name: str) -> None:
        """Report a value that is not one character that can separate the cells of a table."""
        for prefix in _PREFIXES:
            if value := self.environ.get(prefix + name, ""):
                if len(value) != 1 or value in '"\r\n':
                    self.mistakes.append(f"{prefix}{name} must be one character, got {value!r}")
                return

    def whole(self, name: str, *, least: int = 0, most: int, default: int) -> int:
        """Return a whole number; the default if it is not set."""
        variable, value = self.text(name)
        if not value:
            return default
        if value.isascii() and value.isdecimal() and least <= int(value) <= most:
            return int(value)
        bounds = f"from {least} to {most}"
        self.mistakes.append(f"{variable} must be a whole number {bounds}, got {value!r}")
        return default


# The places of stored runs and cached replies, by default `.trioeval` in the working directory.
#
# Only the command line and the environment of the process can change them, never a suite: a foreign file
# must not choose which files are written.


FOLDER = ".trioeval"
DATABASE = "results.db"
CACHE = "cache.db"


def database_path(flag: Path | None, environment: EnvironmentSettings) -> Path:
    """Return the path of the database: from the flag, from `TRIOEVAL_DB`, or in the folder of runs.

    Example:
        >>> database_path(None, EnvironmentSettings(config_dir=Path("/c"))).as_posix()
        '/c/results.db'
    """
    return flag or environment.db or _folder(environment) / DATABASE


def existing_database(db: Path | None, environment: EnvironmentSettings) -> Path:
    """Return the database of runs.

    Raises:
        UsageError: It does not exist.
    """
    path = database_path(db, environment)
    if not path.exists():
        raise UsageError(
            f"{path}: no database of runs: no suite has been run here; --db PATH names another database"
        )
    return path


def cache_path(environment: EnvironmentSettings) -> Path | None:
    """Return the file of the cache; None for a cache in memory.

    `CACHE_PATH` names a folder, as promptfoo's does, unless it ends in `.db`.

    Example:
        >>> cache_path(EnvironmentSettings(cache_path=Path("/c"))).as_posix()
        '/c/cache.db'
    """
    if environment.cache_type == "memory":
        return None
    given = environment.cache_path
    if given is None:
        return _folder(environment) / CACHE
    return given if given.suffix == ".db" and not given.is_dir() else given / CACHE


def databases(flag: Path | None, environment: EnvironmentSettings) -> list[tuple[str, Path | None]]:
    """Return the files that must not be overwritten, with their names in messages."""
    return [
        ("the database of runs", database_path(flag, environment)),
        ("the cache", cache_path(environment)),
    ]


def _folder(environment: EnvironmentSettings) -> Path:
    return environment.config_dir or Path(FOLDER)
