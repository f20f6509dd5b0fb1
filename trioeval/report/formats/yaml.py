"""Documents as YAML, piece by piece.

The text reads the same in YAML 1.1 and 1.2: a text that either of them would read as a number, a date or a
boolean is quoted.
"""

from collections.abc import Iterator
from typing import Any

import yaml

from trioeval.report.formats.json import finite, has_stream


def yaml_chunks(document: Any, margin: str = "") -> Iterator[str]:
    """Yield the YAML text of a document.

    Args:
        document: As for `json_chunks`: iterators are written as lists.
        margin: The beginning of each line at the level of the document.

    Example:
        >>> print("".join(yaml_chunks({"rows": iter([{"a": "no", "b": "1e3"}])})), end="")
        rows:
          - a: 'no'
            b: "1e3"
    """
    match document:
        case dict() if has_stream(document):
            for key, part in document.items():
                if not has_stream(part):
                    yield _text({key: part}, margin)
                    continue
                yield _text({key: []}, margin).removesuffix(" []\n")
                yield "\n" if isinstance(part, dict) else ""
                yield from yaml_chunks(part, margin + "  ")
        case Iterator():
            between = "\n"
            for part in document:
                yield between + _text([part], margin)
                between = ""
            yield " []\n" if between else ""
        case _:
            yield _text(document, margin)


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's
        return True


def _scalar(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Lone surrogates cannot be written in any encoding.
    plain = text.encode("utf-8", "backslashreplace").decode()
    quoted = "\n" in plain or plain[:1] in _NUMBER_BEGINS
    return dumper.represent_scalar("tag:yaml.org,2002:str", plain, style='"' if quoted else None)


_NUMBER_BEGINS = tuple("+-.0123456789")
_ENDLESS = 2**31 - 1  # characters of a line: texts are not folded

_Dumper.add_representer(str, _scalar)


def _text(value: Any, margin: str) -> str:
    found = yaml.dump(
        _plain(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_ENDLESS
    )
    return margin + found.removesuffix("\n").replace("\n", "\n" + margin) + "\n"


def _plain(value: Any) -> Any:
    """Return only values that YAML represents, as JSON would write them."""
    match finite(value):
        case dict() as found:
            return {str(key): _plain(part) for key, part in found.items()}
        case list() as found:
            return [_plain(part) for part in found]
        case None | bool() | int() | float() | str() as found:
            return found
        case found:
            return str(found)
