import doctest
import importlib
import pkgutil

import pytest

import trioeval.grading

MODULES = [
    module.name for module in pkgutil.walk_packages(trioeval.grading.__path__, "trioeval.grading.")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_give_what_they_say(name: str) -> None:
    """What a reader can copy works."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0
