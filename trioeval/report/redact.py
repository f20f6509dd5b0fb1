"""The removal of credentials from configs."""

import re
from collections.abc import Mapping
from typing import Any

from trioeval.providers.command_secrets import hide_in_command
from trioeval.providers.secrets import is_secret_name, longest_first, surely_keys

_USER = re.compile(r"(?<=://)(?:[^/?#@:\s\[]*:(?!\d+[/?#])(?:(?!://)\S)+@|[^/?#\s]*@)")
_QUERY = re.compile(r"(://[^?\s]*)\?.*")

_COMMANDS = {"args", "arguments", "argv", "cmd", "command", "commands"}
"""Names of command lines, or of lists of their words."""

REDACTED = "[redacted]"
"""The replacement of a credential."""


def keys_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys in an environment, which templates may have inserted anywhere; longest first.

    Example:
        >>> keys_of(
        ...     {"MY_API_KEY": "sk-0123456789", "STAGE_TOKEN": "test", "HOST": "10.0.0.1/abcdef"}
        ... )
        ('sk-0123456789',)
    """
    return longest_first(
        surely_keys(text for name, text in environ.items() if is_secret_name(name))
    )


def redacted(config: Any) -> Any:
    """Return a config without values that look like credentials."""
    match config:
        case Mapping():
            return {name: _redacted_member(str(name), value) for name, value in config.items()}
        case list() | tuple():
            return [redacted(value) for value in config]
        case _:
            return config


def redacted_judges(value: Any) -> Any:
    """Return a judge as the suite defines it, without values that look like credentials, also in URLs.

    A URL alone, as of a webhook, is accepted.

    Example:
        >>> redacted_judges({"id": "https://me:pass@host/x?key=1", "config": {"apiKey": "s"}})
        {'id': 'https://host/x?[redacted]', 'config': {'apiKey': '[redacted]'}}
    """
    match value:
        case str():
            return _QUERY.sub(rf"\1?{REDACTED}", _USER.sub("", value))
        case Mapping() if "id" in value:
            return {**redacted(value), "id": redacted_judges(value["id"])}
        case Mapping():
            return {role: redacted_judges(one) for role, one in value.items()}
        case _:
            return value


def redacted_command(value: Any) -> Any:
    """Return the value of a `command` assertion without secrets.

    Example:
        >>> redacted_command({"command": "ask --token abc", "timeoutMs": 5})
        {'command': 'ask --token [hidden]', 'timeoutMs': 5}
    """
    return redacted(value) if isinstance(value, Mapping) else hide_in_command(value)


def _redacted_member(name: str, value: Any) -> Any:
    if _is_secret(name):
        return _blank(value)
    return redacted(hide_in_command(value) if name.lower() in _COMMANDS else value)


def _blank(value: Any) -> Any:
    return dict.fromkeys(value, REDACTED) if isinstance(value, Mapping) else REDACTED


def _is_secret(name: str) -> bool:
    return name.lower() == "headers" or is_secret_name(name)
