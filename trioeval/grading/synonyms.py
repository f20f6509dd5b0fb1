"""Synonyms from WordNet, where NLTK and its data are installed. Nothing is ever downloaded."""

import functools
import importlib
import importlib.util
import threading
from collections.abc import Callable
from typing import Any

_READING = threading.Lock()
"""NLTK's reader has one place in its files, and judges may run in threads."""


@functools.cache
def find_synonyms() -> Callable[[str], frozenset[str]] | None:
    """What tells the synonyms of a word, spelled as one word; None where there is no data.

    Reading WordNet takes seconds, but only the first time.
    """
    if importlib.util.find_spec("nltk") is None:
        return None
    wordnet: Any = importlib.import_module("nltk.corpus").wordnet
    with _READING:
        try:
            wordnet.ensure_loaded()
        except LookupError:
            return None

    def synonyms(word: str) -> frozenset[str]:
        with _READING:
            names = [name for synset in wordnet.synsets(word) for name in synset.lemma_names()]
        return frozenset(name for name in names if "_" not in name)

    return synonyms
