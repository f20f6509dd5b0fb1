"""The prompts of judges, compared with those of promptfoo 0.123.1."""

from typing import Any

import pytest

from trioeval.errors import GradingError
from trioeval.evaluation.rubric_prompts import chosen_prompt, named_values, render_prompt
from trioeval.templates import Templates

MESSAGES = [
    {"role": "system", "content": "Judge {{rubric}}."},
    {"role": "user", "content": "{{output}}"},
]


def rendered(text: str, **names: Any) -> str:
    return render_prompt(text, named_values(names, open_objects=False), Templates().fill)


@pytest.mark.parametrize(
    ("prompts", "part", "prompt"),
    [
        (None, None, "own"),
        ("", None, "own"),
        ({}, 0, "own"),
        ("theirs", None, "theirs"),
        ("theirs", "steps", "own"),
        (MESSAGES[:1], None, '[{"role":"system","content":"Judge {{rubric}}."}]'),
        ({"role": "user", "content": "x"}, None, '{"role":"user","content":"x"}'),
        (["one", "two"], 1, "two"),
        (["one", "two"], 2, "own"),
        (["one", "two"], None, '["one","two"]'),
        (MESSAGES, 1, "{{output}}"),
        ([MESSAGES[:1], "two"], 0, '[{"role":"system","content":"Judge {{rubric}}."}]'),
        ({"steps": "one"}, "steps", "one"),
        ({"steps": "one"}, "evaluate", "own"),
        ({"steps": "one"}, None, '{"steps":"one"}'),
    ],
)
def test_the_users_prompt_is_used_if_it_is_for_the_question(
    prompts: Any, part: int | str | None, prompt: str
) -> None:
    """A text cannot be the prompt of one of several questions; a single question takes any form, as JSON."""
    assert chosen_prompt("own", prompts, part) == prompt


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ('{"a": 1, "b": [1, 2]}', '{"a":1,"b":[1,2]}'),
        ({"a": 1}, '{"a":1}'),
        ('["x", "y"]', "x,y"),
        ('[{"x": 1}]', '{"x":1}'),
        ("1.0", "1"),
        ("null", ""),
        ('"quoted"', "quoted"),
        ("no {json}", "no {json}"),
        ("{{ env.KEY }}", "{{ env.KEY }}"),
        ("{% raise %}", "{% raise %}"),
    ],
)
def test_an_output_is_inserted_as_its_value_and_never_rendered(output: Any, shown: str) -> None:
    """JSON is parsed first, and texts of models are not rendered."""
    assert rendered("<{{output}}>", output=output) == f"<{shown}>"


def test_other_variables_are_inserted_as_text() -> None:
    """Only outputs are parsed as JSON."""
    assert rendered("{{vars}} {{n}}", vars="[1, 2]", n=[{"a": 1}, 2]) == '[1, 2] {"a":1},2'


def test_a_prompt_of_json_is_rendered_inside_of_its_texts() -> None:
    """Quotes of an output cannot break it."""
    text = '[{"role": "user", "content": "{{output}}"}, 5]'
    assert rendered(text, output='say "hi"\n') == (
        '[{"role":"user","content":"say \\"hi\\"\\n"},5]'
    )


def test_objects_may_stay_objects() -> None:
    """The variable is `DISABLE_OBJECT_STRINGIFY`."""
    names = named_values({"output": '{"a": {"b": 2}}'}, open_objects=True)
    assert render_prompt("{{output.a.b}}", names, Templates().fill) == "2"


@pytest.mark.parametrize(
    "text",
    [
        "{{ rubrik }}",
        " {% if nope %}x{% endif %}\n",
        '[{"role": "user", "content": "{{ rubrik }}"}]',
    ],
)
def test_an_empty_prompt_is_an_error_of_grading(text: str) -> None:
    """A judge's reply to an empty prompt is not a verdict."""
    with pytest.raises(GradingError, match="the grading prompt is empty"):
        rendered(text, rubric="kind")


@pytest.mark.parametrize("text", ["{{ x", '["{% if %}"]', "{{ x | nothing }}"])
def test_a_prompt_that_cannot_be_rendered_is_an_error_of_grading(text: str) -> None:
    """Suites are checked at loading, but prompts made in Python are not."""
    if text == "{{ x":
        assert rendered(text) == text  # it is not a template, as elsewhere
        return
    with pytest.raises(GradingError, match="the grading prompt cannot be rendered"):
        rendered(text)
