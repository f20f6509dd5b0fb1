"""The command line: parses, wires, prints, handles signals. The only place that prints.

Names are imported when they are first used, so that `trioeval --help` loads no parser.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trioeval.cli.app import report_fault as report_fault
    from trioeval.cli.app import run_command_line as run_command_line
    from trioeval.cli.interrupts import Interrupts as Interrupts

_MODULES = {"Interrupts": "interrupts", "report_fault": "app", "run_command_line": "app"}


def __getattr__(name: str) -> Any:
    if (module := _MODULES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
