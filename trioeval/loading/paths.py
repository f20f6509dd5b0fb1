"""Keys whose texts are paths that a command opens or writes; they are kept as they are written."""

from typing import Any

from trioeval.documents.files import Around, wrong_paths
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind
from trioeval.documents.structure import Hook, one_or_more, scalar_texts


def place_hook(around: Around) -> Hook:
    """One path, which must stay in the folder of the suite."""

    def hook(value: Any, _wanted: Any) -> str:
        if not isinstance(value, str):
            raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
        around.place(value)
        return value

    return hook


def places_hook(around: Around) -> Hook:
    """A path or a list of them, which must stay in the folder of the suite."""

    def hook(value: Any, wanted: Any) -> tuple[str, ...]:
        texts = one_or_more(value, wanted)
        mistakes = Mistakes()
        for position, text in enumerate(texts):
            with mistakes.below(*(() if isinstance(value, str) else (position,))):
                around.place(text)
        mistakes.raise_any()
        return texts

    return hook


def variables_hook(around: Around) -> Hook:
    """Environment variables; those that name a file which a run opens are paths of the suite."""

    def hook(value: Any, wanted: Any) -> dict[str, str]:
        variables = scalar_texts(value, wanted)
        Mistakes(wrong_paths(variables, around)).raise_any()
        return variables

    return hook
