"""The types of flags as the parser reads them, and the groups of flags in its help."""

import sys
from pathlib import Path
from typing import Annotated

import attrs
from cyclopts import Group, Parameter
from cyclopts.validators import Number

from trioeval.cli import flags

Count = Annotated[int, Parameter(validator=Number(gte=1))]
NotNegative = Annotated[float, Parameter(validator=Number(gte=0))]
Whole = Annotated[int, Parameter(validator=Number(gte=0))]
Share = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
Texts = Annotated[tuple[str, ...], Parameter(negative=())]
Paths = Annotated[tuple[Path, ...], Parameter(negative=())]
Switch = Annotated[bool, Parameter(negative=())]


def shown_default(default: object) -> str:
    """Return a default value as the help and the reference page show it.

    Example:
        >>> shown_default(None), shown_default(()), shown_default(True), shown_default(0.5)
        ('none', 'none', 'on', '0.5')
    """
    match default:
        case None | ():
            return "none"
        case bool():
            return "on" if default else "off"
        case int() | float():
            return f"{default:g}"
        case _:
            return str(default)


def effective(default: str) -> Parameter:
    """The default that the help shows for a flag that is None unless it is given."""
    return Parameter(show_default=default)


# Flags of several commands.

Database = Annotated[
    Path | None, effective(".trioeval/results.db"), Parameter(help="The database of runs.")
]
EnvFiles = Annotated[
    Paths,
    Parameter(
        name=["--env-file", "--env-path"],
        help="Read environment variables, such as API keys, from this file. "
        "Variables that are set and not empty take precedence.",
    ),
]
ClusterName = Annotated[
    str | None,
    effective("this process"),
    Parameter(
        name="--on",
        help="Run the rows on the workers of a Dask cluster: `dask://host:8786`, or `local:4` for processes "
        "of this machine.",
    ),
]
LaneOwner = Annotated[
    Switch,
    Parameter(
        name="--lane-owner",
        help="With --on, let one worker make all calls of a lane, although the suite has Redis.",
    ),
]
SentPaths = Annotated[
    tuple[str, ...],
    effective("none"),
    Parameter(
        name="--send",
        negative=(),
        help="With --on, send this file, folder or pattern to the workers besides the files that the suite "
        "names; relative to the suite's folder. Repeatable.",
    ),
]
Linger = Annotated[
    float,
    Parameter(
        name="--linger",
        validator=Number(gte=0, lte=60),
        help="With --on, let workers collect replies and rows for so many seconds before they send them.",
    ),
]
OmitZeroCounters = Annotated[
    Switch,
    Parameter(
        help="Leave token counters that are zero out of .json, .jsonl, .yaml and .xml files."
    ),
]


def _group(name: str, key: int) -> Parameter:
    return Parameter(name="*", group=Group(name, sort_key=key))


SuiteGroup = Annotated[flags.SuiteFlags, _group("Suite and input", 1)]
RowGroup = Annotated[flags.RowFlags, _group("Row filters", 2)]
LimitGroup = Annotated[flags.LimitFlags, _group("Limits", 3)]
StorageGroup = Annotated[flags.StorageFlags, _group("Storage and reuse", 4)]
StartGroup = Annotated[flags.StartFlags, _group("Storage and reuse", 4)]
OutputGroup = Annotated[flags.OutputFlags, _group("Output", 5)]
PreviewGroup = Annotated[flags.PreviewFlags, Parameter(name="*")]
SimulateGroup = Annotated[flags.SimulateFlags, Parameter(name="*")]
InitGroup = Annotated[flags.InitFlags, Parameter(name="*")]


def resolve_types() -> None:
    """Put the types of this module in place of their names in the classes of flags.

    The parser reads them from the initialiser, and cattrs from the fields.
    """
    names = {**vars(flags), **vars(sys.modules[__name__])}
    for group in (
        flags.SuiteFlags,
        flags.RowFlags,
        flags.LimitFlags,
        flags.StorageFlags,
        flags.StartFlags,
        flags.OutputFlags,
        flags.PreviewFlags,
        flags.SimulateFlags,
        flags.InitFlags,
    ):
        attrs.resolve_types(group, names)
        types = {field.name: field.type for field in attrs.fields(group)}
        vars(group)["__init__"].__annotations__.update(types)
