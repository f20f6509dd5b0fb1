"""YAML by the core rules of version 1.2, on PyYAML's C loader.

PyYAML follows YAML 1.1, where `no` is false, `010` is eight, `12:30` is 750 and `2024-01-01` is a date.
"""

import re
from typing import Any

import yaml

from trioeval.grading.text import read_integer

_NUMBER = r"(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_RULES = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", tuple("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        rf"[-+]?(?:{_NUMBER})|[-+]?(?:\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN",
        tuple("-+.0123456789"),
    ),
    ("tag:yaml.org,2002:merge", r"<<", ("<",)),
)


class Yaml12Loader(yaml.CSafeLoader):
    """Loads one document whose keys are all scalars and whose tags are all plain."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        """A mapping with its keys as they are written; merged keys (`<<`) give way to its own."""
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}

    def construct_integer(self, node: yaml.ScalarNode) -> float:
        """A decimal number, also with leading zeros; `0o` and `0x` say otherwise."""
        text = node.value
        return int(text, 0) if text[:2] in {"0o", "0x"} else read_integer(text)


for _tag, _pattern, _first in _RULES:
    Yaml12Loader.add_implicit_resolver(_tag, re.compile(f"^(?:{_pattern})\\Z"), list(_first))
Yaml12Loader.add_constructor("tag:yaml.org,2002:int", Yaml12Loader.construct_integer)
