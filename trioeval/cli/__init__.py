"""The command line: parses, wires, prints, handles signals. The only place that prints."""

from trioeval.cli.app import report_fault as report_fault
from trioeval.cli.app import run_command_line as run_command_line
from trioeval.cli.interrupts import Interrupts as Interrupts
