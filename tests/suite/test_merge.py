"""Inheritance of tests from the default test and from configs of scenarios."""

import attrs
import pytest

from trioeval.grading import Assertion
from trioeval.suite.merge import ScenarioTests, merged
from trioeval.suite.model import ProviderEntry, Scenario, Suite, Test, TestOptions

ONE, TWO, THREE = (Assertion(type="contains", value=value) for value in "abc")
FULL = Test(
    description="full",
    vars={"x": "full", "y": "full"},
    provider=ProviderEntry(id="echo"),
    providers=("left",),
    prompts=("first",),
    provider_output="full",
    assertions=(ONE,),
    threshold=0.5,
    metadata={"k": "full", "l": "full"},
    options=TestOptions(
        run_serially=True,
        repeat=2,
        prefix="<",
        suffix=">",
        transform="output",
        store_output_as="r",
        disable_var_expansion=True,
        overrides={"temperature": 1, "seed": 1},
    ),
)


def scenario(default: Test | None, *settings: Test, tests: tuple[Test, ...] = (Test(),)) -> Suite:
    return Suite(
        providers=(),
        prompts=(),
        tests=(),
        default_test=default,
        scenarios=(Scenario(config=settings, tests=tests),),
    )


def test_an_empty_test_inherits_everything_except_its_own_keys() -> None:
    """Description and `provider_output` are not inherited."""
    own = attrs.evolve(FULL, description=None, provider_output=None)
    assert merged(FULL, Test()) == own
    assert merged(None, FULL) is FULL
    assert merged(Test(), FULL) == FULL


@pytest.mark.parametrize(
    ("test", "field", "wanted"),
    [
        (Test(vars={"y": "own", "z": "own"}), "vars", {"x": "full", "y": "own", "z": "own"}),
        (Test(metadata={"l": None}), "metadata", {"k": "full", "l": None}),
        (Test(assertions=(TWO,)), "assertions", (ONE, TWO)),
        (Test(threshold=0.0), "threshold", 0.0),
        (Test(providers=()), "providers", ()),
        (Test(prompts=()), "prompts", ()),
        (Test(provider=ProviderEntry(id="b")), "provider", ProviderEntry(id="b")),
        (Test(provider_output=""), "provider_output", ""),
        (Test(description="own"), "description", "own"),
    ],
)
def test_settings_of_a_test_override_inherited_ones(test: Test, field: str, wanted: object) -> None:
    """This includes 0, an empty list and null."""
    assert getattr(merged(FULL, test), field) == wanted


@pytest.mark.parametrize(
    ("options", "field", "wanted"),
    [
        (TestOptions(run_serially=False), "run_serially", False),
        (TestOptions(repeat=1), "repeat", 1),
        (TestOptions(prefix=""), "prefix", "<"),
        (TestOptions(suffix="!"), "suffix", "!"),
        (TestOptions(transform="[output]"), "transform", "[output]"),
        (TestOptions(disable_var_expansion=False), "disable_var_expansion", False),
        (TestOptions(overrides={"seed": 2}), "overrides", {"temperature": 1, "seed": 2}),
    ],
)
def test_options_are_merged_key_by_key(options: TestOptions, field: str, wanted: object) -> None:
    """An empty prefix counts as absent, as in promptfoo."""
    found = merged(FULL, Test(options=options)).options
    assert getattr(found, field) == wanted
    assert found.store_output_as == "r"


def test_only_a_test_can_exclude_the_default_assertions() -> None:
    """In the default test the option has no effect, except for tests of scenarios."""
    without = TestOptions(disable_default_asserts=True)
    assert merged(FULL, Test(assertions=(TWO,), options=without)).assertions == (TWO,)
    default = attrs.evolve(FULL, options=without)
    assert merged(default, Test(assertions=(TWO,))).assertions == (ONE, TWO)
    inside = ScenarioTests(scenario(default, Test()))[0]
    assert merged(default, inside).assertions == ()


def test_a_test_of_a_scenario_overrides_its_config_and_the_default() -> None:
    """All assertions of the config stay, whatever the test does with those of the default."""
    setting = Test(vars={"y": "set", "z": "set"}, assertions=(TWO,), options=TestOptions(repeat=3))
    test = Test(
        vars={"z": "own"}, assertions=(THREE,), options=TestOptions(disable_default_asserts=True)
    )
    found = merged(FULL, ScenarioTests(scenario(FULL, setting, tests=(test,)))[0])
    assert found.vars == {"x": "full", "y": "set", "z": "own"}
    assert found.assertions == (TWO, THREE)
    assert (found.options.repeat, found.options.prefix, found.threshold) == (3, "<", 0.5)
    assert (found.description, found.provider_output) == ("full", "full")


def test_conversations_of_scenarios_are_numbered_by_config() -> None:
    """The count covers all scenarios; an id of the config, the test or the default stays."""
    named = Test(metadata={"conversationId": "mine"})
    null = Test(metadata={"conversationId": None})
    suite = Suite(
        providers=(),
        prompts=(),
        scenarios=(
            Scenario(config=(Test(), named), tests=(Test(), null)),
            Scenario(config=(Test(),), tests=(Test(), named)),
        ),
    )
    tests = ScenarioTests(suite)
    assert [test.metadata["conversationId"] for test in tests] == [
        "__scenario_0__",
        "__scenario_0__",
        "mine",
        "__scenario_1__",
        "__scenario_2__",
        "mine",
    ]
    assert [tests.origin(index) for index in (0, 3, 5)] == [(0, 0, 0), (0, 1, 1), (1, 0, 1)]
    assert [test.metadata for test in tests[4:]] == [tests[4].metadata, tests[5].metadata]
    default = Test(metadata={"conversationId": "all"})
    assert ScenarioTests(scenario(default, Test()))[0].metadata == {"conversationId": "all"}
