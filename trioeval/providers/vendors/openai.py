"""Which endpoint of an OpenAI-compatible service an id means.

`openai:<model>`, `openai:chat:<model>`, `openai:embedding:<model>`, …: the kind may be left out.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from trioeval.errors import Problem
from trioeval.providers.endpoint import Service
from trioeval.providers.settings import Settings, Surroundings
from trioeval.providers.vendors.openai_chat import read_chat
from trioeval.providers.vendors.services import SERVICES

KindReader: TypeAlias = Callable[
    [Service, str, Mapping[str, Any], Mapping[str, str]], Settings | list[Problem]
]

READERS: Mapping[str, KindReader] = {"chat": read_chat}


def read(
    prefix: str, rest: str, config: Mapping[str, Any], around: Surroundings
) -> Settings | list[Problem]:
    """Read an entry of any service with this kind of endpoints; see `Reader`."""
    kind, _, model = rest.partition(":")
    if kind not in READERS:
        kind, model = "chat", rest
    if not model.strip():
        return [Problem(".id", f'"{prefix}:{rest}" names no model', f"write {prefix}:<model>")]
    return READERS[kind](SERVICES[prefix], model, config, around.environ)
