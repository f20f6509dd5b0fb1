"""YAML by the core rules of version 1.2, on PyYAML's C loader.

PyYAML follows YAML 1.1, where `no` is false, `010` is eight, `12:30` is 750 and `2024-01-01` is a date.
"""

import re
from typing import Any

import yaml

from trioeval.suite.paths import DocumentPath

_RULES = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    (
        "tag:yaml.org,2002:int",
        r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
        tuple("-+0123456789"),
    ),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?",
        tuple("-+.0123456789"),
    ),
    ("tag:yaml.org,2002:merge", r"<<", ("<",)),
)


class Yaml12Loader(yaml.CSafeLoader):
    """Loads one document and notes keys that stand twice in one mapping."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated_keys: list[tuple[str, yaml.Mark, yaml.Mark]] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        """A mapping with text for keys; merged keys (`<<`) give way to its own."""
        seen: dict[str, yaml.Mark] = {}
        for key, _ in node.value:
            if key.tag.endswith(":merge") or not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                self.repeated_keys.append((key.value, seen[key.value], key.start_mark))
            seen.setdefault(key.value, key.start_mark)
        return {
            key if isinstance(key, str) else str(key): value
            for key, value in super().construct_mapping(node, deep=deep).items()
        }

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        """A decimal number, also with leading zeros; `0o` and `0x` say otherwise."""
        text = node.value
        return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)


for _tag, _pattern, _first in _RULES:
    Yaml12Loader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})$"), list(_first))
Yaml12Loader.add_constructor("tag:yaml.org,2002:int", Yaml12Loader.construct_integer)


def yaml_place(text: str, path: DocumentPath, *, key: bool = False) -> tuple[int, int] | None:
    """Line and column of the value at `path`, or of its key; None if it does not stand there."""
    node = yaml.compose(text, Loader=Yaml12Loader)
    mark = node.start_mark if node else None
    for step in path:
        found = _step(node, step)
        if found is None:
            return None
        key_node, node = found
        mark = key_node.start_mark if key and key_node else node.start_mark
    return (mark.line + 1, mark.column + 1) if mark else None


def _step(
    node: yaml.Node | None, step: str | int
) -> tuple[yaml.Node | None, yaml.Node] | None:
    match node:
        case yaml.MappingNode():
            return next(((k, v) for k, v in node.value if k.value == step), None)
        case yaml.SequenceNode() if isinstance(step, int) and step < len(node.value):
            return None, node.value[step]
        case _:
            return None
