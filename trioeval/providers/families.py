"""Which module reads the entries of a prefix.

Modules are named here and imported when an entry needs them: a suite of echoes loads no vendor.
"""

import importlib
from collections.abc import Mapping

from trioeval.providers.settings import Reader
from trioeval.providers.vendors.services import ANY_SERVICE, SERVICES

MODULES: Mapping[str, str] = {
    "echo": "local.echo",
    "sequence": "local.sequence",
    "replay": "local.replay",
    "sim": "local.sim",
    "local": "local.embedding",
    **dict.fromkeys((*SERVICES, ANY_SERVICE), "vendors.openai"),
    "anthropic": "vendors.anthropic",
    "google": "vendors.gemini",
    "gemini": "vendors.gemini",
    "vertex": "vendors.gemini",
    "http": "generic.http",
    "https": "generic.http",
    "exec": "programs.exec",
    "python": "programs.python",
    "openai-sdk": "sdk.entries",
    "anthropic-sdk": "sdk.entries",
    "google-sdk": "sdk.entries",
    "bedrock": "sdk.bedrock",
}
"""By prefix; each module has a function `read`."""

FORMS = (
    "echo",
    "sequence",
    "replay:<file>",
    "sim:<name>",
    "local:embedding",
    "local:embedding:<folder>",
    "openai:<model>",
    "openai:<kind>:<model>",
    "<service>:<model>",
    f"{ANY_SERVICE}:<service>:<model>",
    "anthropic:<model>",
    "google:<model>",
    "bedrock:<model>",
    "openai-sdk:<model>",
    "anthropic-sdk:<model>",
    "google-sdk:<model>",
    "https://<url>",
    "exec:<command>",
    "python:<file>",
)
"""What ids look like, for messages; services are those of `SERVICES`."""


def find_reader(prefix: str) -> Reader | None:
    """Who reads the entries of a prefix; None if nobody does."""
    module = MODULES.get(prefix)
    if module is None:
        return None
    reader: Reader = importlib.import_module(f"trioeval.providers.{module}").read
    return reader
