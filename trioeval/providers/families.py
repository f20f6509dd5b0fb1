"""Which module reads the entries of a prefix.

Modules are named here and imported when an entry needs them: a suite of echoes loads no vendor.
"""

import importlib
from collections.abc import Mapping

from trioeval.providers.settings import Reader
from trioeval.providers.vendors.services import SERVICES

MODULES: Mapping[str, str] = {
    "echo": "local.echo",
    "replay": "local.replay",
    **dict.fromkeys(SERVICES, "vendors.openai"),
}
"""By prefix; each module has a function `read`."""

FORMS = (
    "echo",
    "openai:<model>",
    "openai:chat:<model>",
    "replay:<file>",
)
"""What ids look like, for messages."""


def find_reader(prefix: str) -> Reader | None:
    """Who reads the entries of a prefix; None if nobody does."""
    module = MODULES.get(prefix)
    if module is None:
        return None
    reader: Reader = importlib.import_module(f"trioeval.providers.{module}").read
    return reader
