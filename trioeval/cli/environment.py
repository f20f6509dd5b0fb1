"""Settings that environment variables make, each under `TRIOEVAL_` or else promptfoo's `PROMPTFOO_`.

What templates, sources of tests and providers read is theirs; here are those of the run and its outputs.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, overload

import attrs

from trioeval.cli.terminal import Exit
from trioeval.errors import UsageError
from trioeval.suite.tests import KEEP_ALL, Strip

_PREFIXES = ("TRIOEVAL_", "PROMPTFOO_")
_MANY = 1_000_000
_TRUE = frozenset({"1", "true", "yes"})
_FALSE = frozenset({"0", "false", "no", ""})

NOT_YET = ("REQUIRE_JSON_PROMPTS",)
"""Variables of promptfoo that have no meaning yet: what is told of is not missed unseen."""

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
"""Switches that are used elsewhere, where they cannot be refused."""


@attrs.frozen(kw_only=True)
class EnvironmentSettings:
    """What is asked for; None where nothing is said."""

    max_concurrency: int | None = None
    delay_ms: float | None = None
    timeout_ms: float | None = None
    max_eval_time_ms: float | None = None
    cache: bool | None = None
    cache_path: Path | None = None
    """The file of the cache, or its folder."""
    cache_ttl_s: float = 1_209_600
    """Seconds for which a reply is found again; 14 days."""
    cache_type: Literal["disk", "memory"] = "disk"
    db: Path | None = None
    """The database of runs."""
    wal: bool = True
    """Whether the database and the cache have write-ahead logs."""
    config_dir: Path | None = None
    """The folder of both where nothing else says where they are."""
    pass_rate_threshold: float = 100.0
    """Percent of the rows that must pass."""
    failed_exit_code: int = Exit.FAILED
    strip: Strip = KEEP_ALL
    escape_formulas: bool = True
    warnings: tuple[str, ...] = ()
    """What of it is not safe, or has no meaning yet."""


def read_environment(environ: Mapping[str, str]) -> EnvironmentSettings:
    """The settings of an environment.

    Raises:
        UsageError: Some values mean nothing; all of them are named.

    Example:
        >>> read_environment({"PROMPTFOO_DELAY_MS": "50", "TRIOEVAL_DELAY_MS": "20"}).delay_ms
        20.0
    """
    found = _Reader(environ)
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


@attrs.frozen
class _Reader:
    environ: Mapping[str, str]
    mistakes: list[str] = attrs.field(factory=list)

    def text(self, name: str) -> tuple[str, str]:
        """The variable that counts, and what it says; empty if there is none."""
        for prefix in _PREFIXES:
            if value := self.environ.get(prefix + name, "").strip():
                return prefix + name, value
        return _PREFIXES[0] + name, ""

    def warnings(self) -> Iterator[str]:
        """What there is to say of variables that are set."""
        if self.switch("INSECURE_SSL"):
            yield f"{self.text('INSECURE_SSL')[0]}: servers need not prove who they are"
        for name in NOT_YET:
            variable, value = self.text(name)
            if value:
                yield f"{variable} has no meaning here yet"

    def switch(self, name: str) -> bool | None:
        """What a switch says; None if nothing."""
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
        """What a number says that is not negative; the default if nothing."""
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
        """A file or folder; None if nothing."""
        value = self.text(name)[1]
        return Path(value).expanduser() if value else None

    def choice(self, name: str, *known: str) -> str | None:
        """One of some words; None if nothing."""
        variable, value = self.text(name)
        if value and value not in known:
            self.mistakes.append(f"{variable} must be {' or '.join(known)}, got {value!r}")
        return value or None

    def character(self, name: str) -> None:
        """Refuse what is not one character that a table may have between its cells."""
        for prefix in _PREFIXES:
            if value := self.environ.get(prefix + name, ""):
                if len(value) != 1 or value in '"\r\n':
                    self.mistakes.append(f"{prefix}{name} must be one character, got {value!r}")
                return

    def whole(self, name: str, *, least: int = 0, most: int, default: int) -> int:
        """What a whole number says; the default if nothing."""
        variable, value = self.text(name)
        if not value:
            return default
        if value.isascii() and value.isdecimal() and least <= int(value) <= most:
            return int(value)
        bounds = f"from {least} to {most}"
        self.mistakes.append(f"{variable} must be a whole number {bounds}, got {value!r}")
        return default


# Where runs and replies are kept, if nothing says otherwise: in `.trioeval` in the working directory.
#
# What says otherwise is the command line and the environment of the process, never a suite: a file that one
# got from somebody must not choose what is written to.


FOLDER = ".trioeval"
DATABASE = "results.db"
CACHE = "cache.db"


def database_path(flag: Path | None, environment: EnvironmentSettings) -> Path:
    """The database of runs: that of the flag, of `TRIOEVAL_DB`, or the one in the folder of runs.

    Example:
        >>> database_path(None, EnvironmentSettings(config_dir=Path("/c"))).as_posix()
        '/c/results.db'
    """
    return flag or environment.db or _folder(environment) / DATABASE


def agents_folder(database: Path, run: str) -> Path:
    """Where the folders of a run's agents are: beside its database.

    Example:
        >>> agents_folder(Path(".trioeval/results.db"), "eval-1").as_posix()
        '.trioeval/agents/eval-1'
        >>> agents_folder(Path("my.db"), "eval-1").as_posix()
        'my-agents/eval-1'
    """
    own = database.parent.name == FOLDER
    return database.with_name("agents" if own else f"{database.stem}-agents") / run


def cache_path(environment: EnvironmentSettings) -> Path | None:
    """The file of the cache; None for one in memory.

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
    """Everything that nothing else may be written over, and what messages call it."""
    return [
        ("the database of runs", database_path(flag, environment)),
        ("the cache", cache_path(environment)),
    ]


def _folder(environment: EnvironmentSettings) -> Path:
    return environment.config_dir or Path(FOLDER)
