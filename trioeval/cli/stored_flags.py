"""The flags that a run was started with, as JSON in the store, and the flags of its continuation. Pure.

Flags that decide which rows a run has are fixed when it starts; a continuation may repeat them but not
change them. Flags that only decide how it runs may change with each continuation and hold for that
execution; without them those of the start apply.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.cli.flags import LimitFlags, OutputFlags, RowFlags, RunFlags, StorageFlags, SuiteFlags
from trioeval.errors import UsageError

_SAME = ("what", "rows", "limits")
"""Groups with flags that decide which rows a run has."""
_FREE = {"env_file", *(field.name for field in attrs.fields(LimitFlags))} - {"repeat"}
"""Flags of these groups that a continuation may change."""
_ONE_RUN = ("record", "tag")
"""Flags that would only apply to a part of the run."""
_KEEP = ("durability", "cache", "refresh")
_OUTPUT = ("omit_zero_counters", "table", "table_cell_max_length", "progress", "fail_exit_code")
"""Flags of the other groups that are stored: the rest names files, or is about one execution."""


@attrs.frozen(kw_only=True)
class StoredFlags(RunFlags):
    """The flags that a run was started with."""

    directory: Path
    """The working directory, which is the base of relative paths."""
    suite: Path | None = None
    """The suite file as the command line named it."""
    outputs: tuple[Path, ...] = ()
    """Absolute paths of result files, from flags or the suite."""
    settings: Mapping[str, str] = attrs.field(factory=dict)
    """The settings digest of each task."""

    def json(self) -> dict[str, Any]:
        """Return the flags that differ from their defaults.

        Example:
            >>> StoredFlags(directory=Path("/d"), suite=Path("s.json")).json()
            {'directory': '/d', 'suite': 's.json'}
        """
        found = attrs.asdict(
            self, filter=lambda field, value: value != field.default, value_serializer=_plain
        )
        return {name: part for name, part in found.items() if part}

    @classmethod
    def read(cls, found: Mapping[str, Any], run: str) -> "StoredFlags":
        """Return the flags that `json` wrote.

        Raises:
            UsageError: They were written by another version, or the run is not one of a suite.
        """
        import cattrs

        from trioeval.cli.flag_types import resolve_types

        resolve_types()
        try:
            return cattrs.Converter(forbid_extra_keys=True).structure(found, cls)
        except cattrs.BaseValidationError:
            msg = (
                f"{run} cannot be continued: it was imported, or stored by another version; "
                "run its suite again"
            )
            raise UsageError(msg) from None

    def with_flags(self, given: RunFlags) -> RunFlags:
        """Return the flags of a continuation.

        Args:
            given: The flags of its command line.

        Raises:
            UsageError: Some flags would change the rows of the run; all of them are named.
        """
        wrong = [*self._differences(given)]
        wrong += [
            f"{_flag(name)} applies to a whole run and cannot be used to continue one"
            for name in _ONE_RUN
            if getattr(given.what, name)
        ]
        if wrong:
            raise UsageError("\n".join(wrong))
        outputs = given.output.output or self.outputs
        return attrs.evolve(
            given,
            what=attrs.evolve(
                self.what, env_file=given.what.env_file or self.what.env_file, record=None
            ),
            rows=self.rows,
            limits=attrs.evolve(self.limits, **dict(_given(given.limits))),
            keep=attrs.evolve(given.keep, **self._storage_flags(given.keep)),
            output=attrs.evolve(self.output, **{**dict(_given(given.output)), "output": outputs}),
        )

    def _storage_flags(self, given: StorageFlags) -> dict[str, Any]:
        before = self.keep
        # One of these two may exclude the other, so both are replaced if one is given.
        source = before if given.cache is None and not given.refresh else given
        return {
            "durability": given.durability or before.durability,
            "cache": source.cache,
            "refresh": source.refresh,
        }

    def _differences(self, given: RunFlags) -> Iterator[str]:
        for group in _SAME:
            before = dict(_given(getattr(self, group)))
            for name, value in _given(getattr(given, group)):
                if name in _FREE or name in _ONE_RUN or value == before.get(name):
                    continue
                start = f"with {_typed(name, before[name])}" if name in before else "without"
                yield f"{_typed(name, value)}: the run was started {start}"


def stored_flags(
    suite: Path | None, flags: RunFlags, outputs: Sequence[Path], settings: Mapping[str, str]
) -> StoredFlags:
    """Return the flags to store with a run that starts here."""
    here, keep, output = Path.cwd(), flags.keep, flags.output
    return StoredFlags(
        directory=here,
        suite=suite,
        what=flags.what,
        rows=flags.rows,
        limits=flags.limits,
        keep=StorageFlags(**{name: getattr(keep, name) for name in _KEEP}),
        output=OutputFlags(**{name: getattr(output, name) for name in _OUTPUT}),
        outputs=tuple(here / path for path in outputs),
        settings=settings,
    )


def _given(
    flags: SuiteFlags | RowFlags | LimitFlags | StorageFlags | OutputFlags,
) -> Iterator[tuple[str, Any]]:
    """Yield the flags of a group that differ from their defaults, by name."""
    for field in attrs.fields(type(flags)):
        value = getattr(flags, field.name)
        if value != field.default:
            yield field.name, value


def _typed(name: str, value: Any) -> str:
    """Return a flag as it is typed."""
    values = value if isinstance(value, tuple) else () if value is True else (value,)
    return " ".join([_flag(name), *map(str, values)])


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _plain(_owner: Any, _field: Any, value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
