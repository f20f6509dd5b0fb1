"""Variables from files: whole sets, patterns of files, and the text of a file for a template."""

import base64
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pypdf
import pytest

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError, collect_unknown_keys
from trioeval.suite.sources.values import load_file_value, read_vars, resolve_file_vars, with_files

PNG = b"\x89PNG\r\n\x1a\n...."


@pytest.fixture
def context(tmp_path: Path) -> FileContext:
    for name, content in {
        "a.yaml": b"q: a\nr: a\n",
        "b.json": b'{"q": "b", "l": ["x", "y"]}',
        "c.yml": b"[1, 2]\n",
        "nested.yaml": b"doc: file://docs/one.txt\ndocs: file://docs/*.txt\nprogram: file://p.py\n",
        "broken.yaml": b"doc: file://none.txt\n",
        "docs/one.txt": b" One\n",
        "docs/two.txt": b"Two",
        "p.py": b"",
        "one.csv": b"name\nAnn\nBob\n",
        "two.csv": b"name,age\nAnn,7\n",
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    return FileContext(directory=tmp_path)


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["a.yaml"], {"q": "a", "r": "a"}),
        (["a.yaml", "b.json"], {"q": "b", "r": "a", "l": ["x", "y"]}),
        (["b.json", "a.yaml"], {"q": "a", "r": "a", "l": ["x", "y"]}),
        (["[ab].*"], {"q": "b", "r": "a", "l": ["x", "y"]}),
        (
            ["nested.yaml"],
            {"doc": " One\n", "docs": [" One\n", "Two"], "program": "file://p.py"},
        ),
        ([], {}),
    ],
)
def test_variables_are_read_from_files_and_later_ones_override_earlier_ones(
    context: FileContext, scheme: str, names: list[str], wanted: dict[str, Any]
) -> None:
    references = [scheme + name for name in names]
    assert read_vars(references, context) == wanted
    if len(references) == 1:
        assert read_vars(references[0], context) == wanted


def test_all_invalid_files_of_variables_are_reported(context: FileContext) -> None:
    with pytest.raises(MistakenError) as caught:
        read_vars(["none.yaml", 5, "c.yml", "a.yaml", "broken.yaml"], context)
    mistakes = [(part.at, part.message, part.place) for part in caught.value.parts]
    assert mistakes == [
        ((0,), 'file not found: "none.yaml"', None),
        ((1,), "must be the name of a file, got 5", None),
        ((), "must be an object of variables, got a list", (1, 1)),
        (("doc",), 'file not found: "file://none.txt"', (1, 6)),
    ]
    assert caught.value.parts[2].file == context.directory / "c.yml"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("file://docs/one.txt", "file://docs/one.txt"),
        ("file://docs/../a.yaml", "file://a.yaml"),
        ("file://docs/*.txt", ["file://docs/one.txt", "file://docs/two.txt"]),
        ("file://docs/o*.txt", "file://docs/one.txt"),
        (
            ["file://docs/*.txt", "x", 5],
            ["file://docs/one.txt", "file://docs/two.txt", "x", 5],
        ),
        ("docs/one.txt", "docs/one.txt"),
        ([{"a": "file://none"}], [{"a": "file://none"}]),
        (5, 5),
        (None, None),
    ],
)
def test_patterns_are_expanded_to_files(context: FileContext, value: Any, wanted: Any) -> None:
    assert resolve_file_vars({"v": value}, context) == {"v": wanted}


def test_an_absolute_path_stays_inside_its_folder(context: FileContext) -> None:
    absolute = f"file://{context.directory}/a.yaml"
    assert resolve_file_vars({"v": absolute}, context) == {"v": "file://a.yaml"}


def test_all_invalid_variables_are_reported(context: FileContext) -> None:
    with pytest.raises(MistakenError) as caught:
        resolve_file_vars(
            {"a": "file://none.txt", "_conversation": "x", "b": ["y", "file://no/*"]}, context
        )
    assert [(part.at, part.key) for part in caught.value.parts] == [
        (("a",), False),
        (("_conversation",), True),
        (("b", 1), False),
    ]
    assert caught.value.parts[1].message == '"_conversation" shadows a reserved name'


def test_a_variable_that_hides_the_environment_causes_a_warning(tmp_path: Path) -> None:
    warnings: list[Mistake] = []
    context = FileContext(directory=tmp_path)
    with collect_unknown_keys(warnings):
        assert resolve_file_vars({"env": "x"}, context) == {"env": "x"}
    assert [(warning.at, warning.key) for warning in warnings] == [(("env",), True)]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("file://a.yaml", {"q": "a", "r": "a"}),
        ("file://[ac].*", [{"q": "a", "r": "a"}, 1, 2]),
        ("file://one.csv", ["Ann", "Bob"]),
        ("file://two.csv", [{"name": "Ann", "age": "7"}]),
        ("file://p.py", "file://p.py"),
        ("file://p.py:make", "file://p.py:make"),
        ({"a": ["file://docs/two.txt", 5]}, {"a": ["Two", 5]}),
    ],
)
def test_names_of_files_are_replaced_by_their_contents(
    context: FileContext, value: Any, wanted: Any
) -> None:
    assert with_files(value, context) == wanted


def test_all_missing_files_are_reported(context: FileContext) -> None:
    with pytest.raises(MistakenError) as caught:
        with_files({"a": "file://no", "b": [1, "file://nor/*"]}, context)
    assert [part.at for part in caught.value.parts] == [("a",), ("b", 1)]


def value(
    tmp_path: Path, name: str, content: bytes, environ: Mapping[str, str] | None = None
) -> str:
    file = tmp_path / name
    file.write_bytes(content)
    return load_file_value(file, FileContext(directory=tmp_path, environ=environ or {}))


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("a.txt", b"\n text \xc3\xa4\xc2\xa0\n", "text ä"),
        ("a.md", b"\xef\xbb\xbf# A", "# A"),
        ("a.json", b' {"a":  1}\n', '{"a":  1}'),
        ("a.yaml", b"a: 1.0\nb: [x, null, true]\n", '{"a":1,"b":["x",null,true]}'),
        ("a.yml", b"no\n", '"no"'),
        ("a.PNG", PNG, f"data:image/png;base64,{base64.b64encode(PNG).decode()}"),
        ("a.jpg", PNG, f"data:image/png;base64,{base64.b64encode(PNG).decode()}"),
        ("a.jpg", b"??", "data:image/jpeg;base64,Pz8="),
        ("a.gif", b"RIFF....WEBP", "data:image/webp;base64,UklGRi4uLi5XRUJQ"),
        ("a.svg", b"<svg/>", "data:image/svg+xml;base64,PHN2Zy8+"),
        ("a.mp3", b"ID3", "SUQz"),
        ("a.mp4", b"ID3", "SUQz"),
    ],
)
def test_a_file_is_text_in_a_template(
    tmp_path: Path, name: str, content: bytes, wanted: str
) -> None:
    assert value(tmp_path, name, content) == wanted


def test_media_are_text_if_the_environment_sets_it(tmp_path: Path) -> None:
    off = {"PROMPTFOO_DISABLE_MULTIMEDIA_AS_BASE64": "true"}
    assert value(tmp_path, "a.svg", b"<svg/>\n", off) == "<svg/>"
    assert value(tmp_path, "a.pdf", b"%PDF\n", {"TRIOEVAL_DISABLE_PDF_AS_TEXT": "1"}) == "%PDF"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.txt", r"byte 1 \(0xff\) is not UTF-8"),
        ("a.yaml", r"byte 1 \(0xff\) is not UTF-8"),
        ("a.pdf", "cannot be read as PDF"),
    ],
)
def test_files_that_are_not_text_are_reported(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(MistakenError, match=message) as caught:
        value(tmp_path, name, b"a\xff")
    assert caught.value.parts[0].file == tmp_path / name


def test_a_removed_file_is_reported(tmp_path: Path) -> None:
    for name in ("a.png", "a.mp3", "a.pdf", "a.txt"):
        with pytest.raises(MistakenError, match="cannot be read"):
            load_file_value(tmp_path / name, FileContext(directory=tmp_path))


def test_the_text_of_a_pdf_is_that_of_its_pages(tmp_path: Path) -> None:
    file = tmp_path / "a.pdf"
    file.write_bytes(_pdf("Hello", "World"))
    assert load_file_value(file, FileContext(directory=tmp_path)) == "Hello\n\nWorld"


def test_pdf_files_need_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(MistakenError, match=r'"a\.pdf" requires the extra pdf'):
        value(tmp_path, "a.pdf", b"%PDF")


def _pdf(*pages: str) -> bytes:
    """Return a document of pages with one line of text each."""
    import io

    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = pypdf.PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in pages:
        page = writer.add_blank_page(200, 200)
        fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        content = DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(content)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        (
            "v.js",
            "const fs = require('fs');\nmodule.exports = () => 1;",
            "uses require in line 1, so ",
        ),
        ("v.mjs", "export default (", "is not JavaScript"),
        ("v.ts", "", "is TypeScript, so it needs Node"),
    ],
)
def test_a_variable_with_code_that_cannot_run_is_refused(
    context: FileContext, name: str, code: str, message: str
) -> None:
    """Its source must not become the value."""
    (context.directory / name).write_text(code)
    context = attrs.evolve(context, environ={"PATH": "/nowhere"})
    with pytest.raises(MistakenError, match=f'"{name}" {message}') as caught:
        resolve_file_vars({"a": f"file://{name}"}, context)
    assert caught.value.parts[0].at == ("a",)
