"""The suite file: what it means, where it is wrong, and the steps that it stands for."""

from trioeval.suite.columns import Column as Column
from trioeval.suite.expand import Expansion as Expansion
from trioeval.suite.expand import Step as Step
from trioeval.suite.expand import all_tests as all_tests
from trioeval.suite.expand import expand as expand
from trioeval.suite.load import load_suite as load_suite
from trioeval.suite.load import parse_suite as parse_suite
from trioeval.suite.load import place_problems as place_problems
from trioeval.suite.mistakes import MistakenError as MistakenError
from trioeval.suite.models import ABSENT as ABSENT
from trioeval.suite.models import BudgetSettings as BudgetSettings
from trioeval.suite.models import CommandLineOptions as CommandLineOptions
from trioeval.suite.models import EvaluateOptions as EvaluateOptions
from trioeval.suite.models import LaneSettings as LaneSettings
from trioeval.suite.models import Prompt as Prompt
from trioeval.suite.models import PromptFunction as PromptFunction
from trioeval.suite.models import ProviderEntry as ProviderEntry
from trioeval.suite.models import Scenario as Scenario
from trioeval.suite.models import Suite as Suite
from trioeval.suite.models import Test as Test
from trioeval.suite.models import TestOptions as TestOptions
from trioeval.suite.paths import show_path as show_path
from trioeval.suite.sources.around import Around as Around
from trioeval.suite.sources.file_values import load_file_value as load_file_value
from trioeval.suite.sources.filters import load_filters as load_filters
from trioeval.suite.templates import Templates as Templates
