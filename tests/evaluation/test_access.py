"""The registers and conversations that a step may use, found in its texts."""

from pathlib import Path
from typing import Any

import pytest
from pace import takes_less

from trioeval.evaluation.registers import CellAccess, FindAccess, Sharing, conversation_of
from trioeval.loading.load import parse_suite
from trioeval.suite.expand import Expansion, expand
from trioeval.templates import Templates

HISTORY = "{% for t in _conversation %}{{t.output}}{% endfor %}"
STORES = {"vars": {"q": "1"}, "options": {"storeOutputAs": "r"}}
REGISTERS = frozenset({("registers", None)})


def steps_of(prompt: Any, *tests: Any, **more: Any) -> Expansion:
    return expand(
        parse_suite({"providers": ["echo"], "prompts": [prompt], "tests": list(tests), **more})
    )


def finder(steps: Expansion, opaque: frozenset[int] = frozenset()) -> FindAccess:
    templates = Templates()
    names = [entry.label or entry.id for entry in steps.suite.providers]
    return FindAccess(steps, Sharing.of(steps, templates), templates, names, opaque)


def reads(prompt: str, test: Any, **more: Any) -> bool:
    """Return whether the step of a test after one that stores `r` may read registers."""
    return bool(finder(steps_of(prompt, STORES, test, **more))(1).reads)


@pytest.mark.parametrize(
    ("prompt", "test"),
    [
        ("{{r}}", {"vars": {"q": "1"}}),
        ("{{ r.text | upper }}", {"vars": {"q": "1"}}),
        ("{% if r %}yes{% endif %}", {"vars": {"q": "1"}}),
        ("{{q}}", {"vars": {"q": "see {{ r }}"}}),
        ("{{q}}", {"vars": {"q": "{% raw %}{{ r }}{% endraw %}"}}),
        ("{{q}}", {"vars": {"q": "{{ open and {{r}}"}}),
        ("{{q}}", {"vars": {"q": {"deep": ["{{r}}"]}}}),
        ("{{q}}", {"vars": {"q": "1"}, "assert": [{"type": "contains", "value": "{{r}}"}]}),
        (
            "{{q}}",
            {"vars": {"q": "1"}, "assert": [{"type": "contains", "value": "1", "metric": "{{r}}"}]},
        ),
        ("{{q}}", {"vars": {"q": "1"}, "options": {"prefix": "{{r}}"}}),
        ("{{q}}", {"vars": {"q": "1"}, "options": {"temperature": "{{r}}"}}),
        ("{{q}}", {"vars": {"q": "1"}, "options": {"transform": "output + r"}}),
        ("{{q}}", {"vars": {"q": "1"}, "options": {"transform": "output + context.vars['a' + q]"}}),
        ("{{q}}", {"vars": {"q": "1"}, "options": {"transform": "JSON.stringify(arguments[1])"}}),
        ("{{q}}", {"vars": {"q": "1"}, "options": {"transform": "(o, c) => JSON.stringify(c)"}}),
        ("{{q}}", {"vars": {"q": "1"}, "options": {"transform": "python: str(output)"}}),
        ("{{q}}", {"vars": {"q": "{{ a }}", "a": "{{ re{{b}} }}", "b": "g"}}),
        ("{{q}}", {"vars": {"q": "{{b}}{ x }}", "b": "{"}}),
        ("{{q}}", {"vars": {"q": "{{b}}", "b": {"json": "a {"}}}),
        ("{{q}}", {"vars": {"q": "see {{ _conversation }}"}}),
        ('{"text": "{{ \\u0072 }}"}', {"vars": {"q": "1"}}),
        ('{{ "}}" ~ r }}', {"vars": {"q": "1"}}),
    ],
)
def test_a_text_that_may_read_a_register_is_found(prompt: str, test: Any) -> None:
    """It is found at any position and in any notation."""
    assert reads(prompt, test)


@pytest.mark.parametrize(
    ("prompt", "test"),
    [
        ("{{q}} and r", {"vars": {"q": "r"}}),
        ("{# r #}{{q}}", {"vars": {"q": "1"}}),
        ("{{q}}", {"vars": {"q": "1"}, "metadata": {"r": "{{r}}"}, "description": "{{r}}"}),
        ("{{q}}", {"vars": {"q": "1"}, "options": {"transform": "output.answer.r"}}),
        ("{{q}}", {"vars": {"q": "1"}, "options": {"transform": "$.r"}}),
        ("{{q}}", {"vars": {"q": "{{ a }}", "a": "{{ b }}", "b": "r"}}),
        ("{{q}}", {"vars": {"q": '{"json": {"r": 1}}', "a": "{{q} r"}}),
    ],
)
def test_other_words_are_not_references(prompt: str, test: Any) -> None:
    """A register may have the name of an ordinary word."""
    assert not reads(prompt, test)


def test_a_file_may_contain_any_reference(tmp_path: Path) -> None:
    """It is read when the row runs, and is a template then."""
    Path(tmp_path, "words.txt").write_text("no register")
    document = {
        "providers": ["echo"],
        "prompts": ["{{q}}"],
        "tests": [STORES, {"vars": {"q": "file://words.txt"}}],
    }
    assert finder(expand(parse_suite(document, directory=tmp_path)))(1).reads


def test_a_provider_that_gets_the_variables_may_read_them_all() -> None:
    """A prompt that is a program may read all as well."""
    steps = steps_of("{{q}}", STORES, {"vars": {"q": "1"}})
    assert finder(steps)(1) == CellAccess()
    assert finder(steps, frozenset({0}))(1) == CellAccess(reads=REGISTERS)
    assert finder(steps, frozenset({0}))(0) == CellAccess(REGISTERS, REGISTERS)


def test_a_row_sees_the_names_of_its_own_texts_only() -> None:
    """A text written by a model names no register."""
    steps = steps_of("{{a}}", STORES, {"vars": {"q": "1"}})
    found = {"a": "{{ b }}", "b": ["see {{c}}"], "c": "3", "d": "{{a}}", "e": "{"}
    visible = finder(steps).visible
    assert list(visible(steps[1], found)) == ["a"]
    assert visible(steps[1], {"d": "1"}) == {}
    assert visible(steps[1], {}) == {}


@pytest.mark.slow
def test_long_texts_and_many_names_are_searched_in_linear_time() -> None:
    """The cases are unclosed marks, and ten thousand registers."""
    steps = steps_of("{{a}} {{ name_77 }}", STORES, {"vars": {"q": "1"}})
    visible = finder(steps).visible
    many = {f"name_{number}": "text" for number in range(10_000)}
    hostile = {"a": "{{" * 200_000 + "{%" * 200_000}

    def look() -> None:
        assert list(visible(steps[1], {**many, **hostile})) == ["name_77", "a"]
        for _ in range(200):
            visible(steps[1], many)

    assert takes_less(6, look)  # some 0.6 s on an idle machine


def test_columns_may_have_separate_registers() -> None:
    """This is `registerScope: column`; otherwise all columns share one set."""
    more = {"providers": [{"id": "echo", "label": label} for label in ("left", "right")]}
    suite = steps_of("{{q}}", STORES, **more)
    assert [finder(suite)(index).writes for index in (0, 1)] == [REGISTERS] * 2
    column = steps_of("{{q}}", STORES, registerScope="column", **more)
    assert [finder(column)(index).writes for index in (0, 1)] == [
        {("registers", 0)},
        {("registers", 1)},
    ]


def test_a_turn_reads_and_writes_its_conversation() -> None:
    """A turn that does not read it adds to it nevertheless; columns that do not use it have none."""
    off = {"vars": {"q": "1"}, "options": {"disableConversationVar": True}}
    steps = steps_of(HISTORY, {"vars": {"q": "1"}}, off)
    find = finder(steps)
    conversation = frozenset({("conversation", conversation_of(steps[0], "echo"))})
    assert find(0) == CellAccess(conversation, conversation)
    assert find(1) == CellAccess(writes=conversation)
    assert finder(steps_of("_conversation {{q}}", {"vars": {"q": "1"}}))(0) == CellAccess()


def test_conversations_have_names_of_any_kind() -> None:
    """A number is another name than its digits; null does not count."""
    names: list[Any] = ["1", 1, None, True, ["a"]]
    tests = [{"metadata": {"conversationId": name}} for name in names]
    steps = steps_of(HISTORY, *tests, {"metadata": {"k": 1}})
    found = [conversation_of(step, "echo") for step in steps]
    assert len(set(found)) == 5
    assert found[5] == found[2]
    assert conversation_of(steps[0], "other") != found[0]


def test_sharing_is_determined_by_the_whole_suite() -> None:
    """It covers the names under which tests and scenarios store, and columns that use the history."""
    steps = steps_of(
        HISTORY,
        STORES,
        defaultTest={"options": {"storeOutputAs": "d"}},
        scenarios=[{"config": [{"options": {"storeOutputAs": "c"}}], "tests": [{"vars": {}}]}],
    )
    assert Sharing.of(steps, Templates()) == Sharing(frozenset({0}), frozenset("rdc"))
    assert Sharing.of(steps, Templates(), conversation=False).conversations == frozenset()
    assert not Sharing.of(steps_of("{{q}}", {"vars": {"q": "1"}}), Templates()).any
