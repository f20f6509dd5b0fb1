"""A sentence model on this machine: an ONNX file and its tokenizer turn a text into a vector.

The vector is the mean of those of all tokens, of length 1, as most sentence models were trained. A text
that is longer than the model can see at once is seen window by window, and the mean goes over all of them:
what stands late in a text counts as much as what stands early. Windows come one at a time and without
padding, so a text has the same vector whatever else is asked for, and memory does not grow with it.

Everything here blocks. Nothing is imported before a model is loaded: the runtime takes a third of a second.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import ProviderError
from trioeval.providers.config import show

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
