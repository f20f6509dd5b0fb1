import doctest
import importlib
import pkgutil

import pytest

import trioeval.suite

MODULES = [
    module.name for module in pkgutil.walk_packages(trioeval.suite.__path__, "trioeval.suite.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_give_what_they_say(name: str) -> None:
    """What a reader can copy works."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0
