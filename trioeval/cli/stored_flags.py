"""The flags that a run was begun with, as JSON in the store, and what flags it goes on with. Pure.

What decides which rows there are is asked for once, when a run begins; whoever goes on with it may say it
again, but not say something else. What only decides how it goes may be another thing each time, and is of
that time alone: whoever says nothing goes by the beginning.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import cattrs

from trioeval.cli.flags import KeepFlags, LimitFlags, OutputFlags, RowFlags, RunFlags, WhatFlags
from trioeval.errors import UsageError

_SAME = ("what", "rows", "limits")
"""Groups of which some flags decide which rows there are."""
_FREE = {"env_file", *(field.name for field in attrs.fields(LimitFlags))} - {"repeat"}
"""Flags of these groups that may be said anew."""
_ONE_RUN = ("record", "tag")
"""Flags of which one half of a run would know nothing."""
_KEEP = ("durability", "cache", "refresh")
_OUTPUT = ("table", "table_cell_max_length", "progress", "fail_exit_code")
"""Flags of the other groups that are kept: the rest names files, or is of one execution."""


@attrs.frozen(kw_only=True)
class StoredFlags(RunFlags):
    """What a run was begun with."""

    directory: Path
    """The working directory, which relative paths are relative to."""
    suite: Path | None = None
    """The suite file, as it was named."""
    outputs: tuple[Path, ...] = ()
    """Result files, wherever they were named; absolute."""
    settings: Mapping[str, str] = attrs.field(factory=dict)
    """Of each task, `settings_digest`."""

    def json(self) -> dict[str, Any]:
        """All of it that is not as it would be anyway.

        Example:
            >>> StoredFlags(directory=Path("/d"), suite=Path("s.json")).json()
            {'directory': '/d', 'suite': 's.json'}
        """
        found: dict[str, Any] = _CONVERTER.unstructure(self)
        return {name: part for name, part in found.items() if part}

    @classmethod
    def read(cls, found: Mapping[str, Any], run: str) -> "StoredFlags":
        """What `json` made.

        Raises:
            UsageError: Another version made it, or it is no run of a suite.
        """
        try:
            return _CONVERTER.structure(found, cls)
        except cattrs.BaseValidationError:
            msg = (
                f"{run} does not say how it was begun: it was imported, or written by another version; "
                "run its suite again"
            )
            raise UsageError(msg) from None

    def with_flags(self, given: RunFlags) -> RunFlags:
        """What the run goes on with.

        Raises:
            UsageError: Something is given that would make it another run; all of that is named.
        """
        wrong = [*self._differences(given)]
        wrong += [
            f"{_flag(name)} is of a whole run: it cannot be given for the rest of one"
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
            keep=attrs.evolve(given.keep, **self._keeping(given.keep)),
            output=attrs.evolve(self.output, **{**dict(_given(given.output)), "output": outputs}),
        )

    def _keeping(self, given: KeepFlags) -> dict[str, Any]:
        before = self.keep
        # Of these two one may exclude the other: whoever says one of them means both.
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
                begun = f"with {_said(name, before[name])}" if name in before else "without"
                yield f"{_said(name, value)}: the run was begun {begun}"


def stored_flags(
    suite: Path | None, flags: RunFlags, outputs: Sequence[Path], settings: Mapping[str, str]
) -> StoredFlags:
    """The flags of a run that begins here."""
    here, keep, output = Path.cwd(), flags.keep, flags.output
    return StoredFlags(
        directory=here,
        suite=suite,
        what=flags.what,
        rows=flags.rows,
        limits=flags.limits,
        keep=KeepFlags(**{name: getattr(keep, name) for name in _KEEP}),
        output=OutputFlags(**{name: getattr(output, name) for name in _OUTPUT}),
        outputs=tuple(here / path for path in outputs),
        settings=settings,
    )


def _given(
    flags: WhatFlags | RowFlags | LimitFlags | KeepFlags | OutputFlags,
) -> Iterator[tuple[str, Any]]:
    """The flags of a group that are not as they would be anyway, by name."""
    for field in attrs.fields(type(flags)):
        value = getattr(flags, field.name)
        if value != field.default:
            yield field.name, value


def _said(name: str, value: Any) -> str:
    """A flag as it is typed."""
    values = value if isinstance(value, tuple) else () if value is True else (value,)
    return " ".join([_flag(name), *map(str, values)])


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


_CONVERTER = cattrs.Converter(forbid_extra_keys=True, omit_if_default=True)
