"""Bodies of requests, most of which is the same for every call: that part is written once."""

import json
from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class PreparedBody:
    """The fields of a JSON object that do not change, as text.

    Example:
        >>> PreparedBody.of({"model": "m"}).complete({"messages": []})
        b'{"model":"m","messages":[]}'
    """

    _fixed: bytes
    """Between the braces."""

    @classmethod
    def of(cls, fixed: Mapping[str, Any]) -> "PreparedBody":
        """Write what is fixed; it must be JSON."""
        return cls(_write(fixed))

    def complete(self, fields: Mapping[str, Any]) -> bytes:
        """The object with these fields behind the others; none may be there already."""
        return b"{" + b",".join(filter(None, (self._fixed, _write(fields)))) + b"}"


def _write(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()[1:-1]
