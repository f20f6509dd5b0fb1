"""Small files that unpack to large ones."""

import tracemalloc
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite
from trioeval.store.records import read_text, stored_json

pytestmark = pytest.mark.attack("decompression")

SHEET = "xl/worksheets/sheet1.xml"
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
ENTITIES = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "ha">{LAUGHS}]><x>&l9;</x>'
OUTSIDE = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><x>&f;</x>'


@pytest.fixture(scope="module")
def sheet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a spreadsheet as written by common programs."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["question", "__expected"])
    book.active.append(["2+2", "4"])
    path = tmp_path_factory.mktemp("sheets") / "tests.xlsx"
    book.save(path)
    return path


def changed(sheet: Path, to: Path, **parts: bytes) -> None:
    """Return the spreadsheet with parts replaced or added."""
    with zipfile.ZipFile(sheet) as old, zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            if info.filename not in parts:
                new.writestr(info, old.read(info))
        for name, content in parts.items():
            new.writestr(name, content, zipfile.ZIP_DEFLATED)


def load(folder: Path) -> int:
    """Return the number of tests of a suite with the sheet."""
    path = folder / "suite.yaml"
    path.write_text("prompts: ['{{question}}']\nproviders: [echo]\ntests: file://tests.xlsx\n")
    return len(load_suite(path).tests)


def refusal(folder: Path) -> str:
    """Return the message about a sheet; checking it uses little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(SuiteError) as caught:
            load(folder)
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()
    return str(caught.value)


def test_an_ordinary_spreadsheet_is_read(sheet: Path, tmp_path: Path) -> None:
    """It is valid."""
    changed(sheet, tmp_path / "tests.xlsx")
    assert load(tmp_path) == 1


@pytest.mark.parametrize("part", [SHEET, "other.bin"])
def test_a_spreadsheet_that_unpacks_to_too_much_is_not_unpacked(
    sheet: Path, tmp_path: Path, part: str
) -> None:
    """This holds for each of its parts."""
    changed(sheet, tmp_path / "tests.xlsx", **{part: b" " * (48 * 2**20)})
    message = refusal(tmp_path)
    assert "the spreadsheet unpacks to" in message
    assert "tests.xlsx" in message


def test_a_spreadsheet_of_very_many_parts_is_not_unpacked(sheet: Path, tmp_path: Path) -> None:
    """Each part is small."""
    more = {f"part{number}": b"x" for number in range(2_001)}
    changed(sheet, tmp_path / "tests.xlsx", **more)
    assert "2,000 and" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([20_000], "a row of 16384 cells under a header of 1"),
        (range(2, 1_900), "has more than 30,000,000 empty cells"),
    ],
    ids=["one", "many"],
)
def test_cells_far_from_all_others_are_refused_at_once(
    sheet: Path, tmp_path: Path, rows: Sequence[int], message: str
) -> None:
    """The file has a few kilobytes and millions of empty cells."""
    far = "".join(f'<row r="{row}"><c r="XFD{row}"/></row>' for row in rows[:-1])
    far += f'<row r="{rows[-1]}"><c r="XFD{rows[-1]}"><v>1</v></c></row>'
    text = (
        '<?xml version="1.0"?><worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
        '<dimension ref="A1:XFD1048576"/><sheetData><row r="1"><c r="A1"><v>1</v></c></row>'
        f"{far}</sheetData></worksheet>"
    )
    changed(sheet, tmp_path / "tests.xlsx", **{SHEET: text.encode()})
    assert message in refusal(tmp_path)


def test_a_wrong_size_in_a_file_bounds_the_unpacked_size(sheet: Path, tmp_path: Path) -> None:
    """A part claims to be small, and is not."""
    path = tmp_path / "tests.xlsx"
    changed(sheet, path, **{SHEET: b" " * (48 * 2**20)})
    small = (1000).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace((48 * 2**20).to_bytes(4, "little"), small))
    assert "not a spreadsheet" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("part", "document", "encoding"),
    [
        (SHEET, ENTITIES, "utf-8"),
        (SHEET, OUTSIDE, "utf-16"),
        ("xl/sharedStrings.xml", ENTITIES, "utf-16"),
        ("xl/workbook.xml", OUTSIDE, "utf-8"),
        ("_rels/.rels", ENTITIES, "utf-8"),
    ],
    ids=range(5),
)
def test_a_document_that_defines_entities_is_not_read(
    sheet: Path, tmp_path: Path, part: str, document: str, encoding: str
) -> None:
    """This holds for every encoding, and after a long comment."""
    text = document.replace("<!DOCTYPE", f"<!--{'x' * 100_000}--><!DOCTYPE")
    if encoding == "utf-16":
        text = text.replace('version="1.0"', 'version="1.0" encoding="utf-16"')
    changed(sheet, tmp_path / "tests.xlsx", **{part: text.encode(encoding)})
    assert f"the part {part} of the spreadsheet has a DOCTYPE" in refusal(tmp_path)


def test_a_part_with_another_name_is_checked_too(sheet: Path, tmp_path: Path) -> None:
    """A workbook may name its sheets freely."""
    with zipfile.ZipFile(sheet) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    with zipfile.ZipFile(tmp_path / "tests.xlsx", "w", zipfile.ZIP_DEFLATED) as book:
        for name, content in parts.items():
            text = ENTITIES.encode() if name == SHEET else content
            other = text.replace(b"sheet1.xml", b"sheet1.dat")
            book.writestr(name.replace("sheet1.xml", "sheet1.dat"), other)
    assert "sheet1.dat of the spreadsheet has a DOCTYPE" in refusal(tmp_path)


@pytest.mark.parametrize("size", [17, 64])
def test_a_text_of_the_store_that_unpacks_to_too_much_is_damaged(size: int) -> None:
    """It is not unpacked beyond the maximum for a text of its length."""
    packer = zlib.compressobj(9)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(size)) + packer.flush()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="unpack to more than"):
            read_text(bomb)
        assert tracemalloc.get_traced_memory()[1] < 80 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [1, 4, 100])
def test_a_text_of_the_store_that_was_cut_off_is_damaged(cut: int) -> None:
    """No part of it is used as the whole."""
    stored = stored_json('"' + "".join(map(str, range(20_000))) + '"')
    assert isinstance(stored, bytes)
    with pytest.raises(ValueError, match="it is truncated"):
        read_text(stored[:-cut])


def test_a_long_text_with_high_compression_can_be_read_again() -> None:
    """Written texts are never treated as bombs."""
    text = '"' + "x" * (17 * 2**20) + '"'
    assert read_text(stored_json(text)) == text
