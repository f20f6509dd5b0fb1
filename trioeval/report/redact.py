"""Configs without what looks like a credential."""

from collections.abc import Mapping
from typing import Any

from trioeval.providers.secret_names import is_secret_name

REDACTED = "[redacted]"
"""What stands for a credential."""


def redacted(config: Any) -> Any:
    """A config without what looks like a credential."""
    match config:
        case Mapping():
            return {
                name: _blank(value) if _is_secret(str(name)) else redacted(value)
                for name, value in config.items()
            }
        case list() | tuple():
            return [redacted(value) for value in config]
        case _:
            return config


def _blank(value: Any) -> Any:
    return dict.fromkeys(value, REDACTED) if isinstance(value, Mapping) else REDACTED


def _is_secret(name: str) -> bool:
    return name.lower() == "headers" or is_secret_name(name)
