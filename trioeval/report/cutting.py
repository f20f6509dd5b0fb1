"""Texts that are cut in the middle: their ends tell them apart."""

from rich.cells import cell_len, set_cell_size


def cut_middle(text: str, cells: int) -> str:
    """A text in at most so many cells of a terminal, ≥ 1; what goes is in the middle.

    Example:
        >>> cut_middle("openai|http://127.0.0.1:8799|6b_finetuning", 24)
        'openai|http:…_finetuning'
        >>> cut_middle("short", 24)
        'short'
    """
    if cell_len(text) <= cells:
        return text
    end = (cells - 1) // 2
    kept = text[len(text) - end :]
    while cell_len(kept) > end:  # wide characters
        kept = kept[1:]
    return f"{set_cell_size(text, cells - 1 - cell_len(kept)).rstrip()}…{kept}"
