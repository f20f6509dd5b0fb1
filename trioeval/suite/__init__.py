"""The suite file: what it means, where it is wrong, and the steps that it stands for."""

from trioeval.suite.expand import Column as Column
from trioeval.suite.expand import Expansion as Expansion
from trioeval.suite.expand import Step as Step
from trioeval.suite.expand import expand as expand
from trioeval.suite.load import load_suite as load_suite
from trioeval.suite.load import parse_suite as parse_suite
from trioeval.suite.load import place_problems as place_problems
from trioeval.suite.models import BudgetSettings as BudgetSettings
from trioeval.suite.models import EvaluateOptions as EvaluateOptions
from trioeval.suite.models import LaneSettings as LaneSettings
from trioeval.suite.models import Prompt as Prompt
from trioeval.suite.models import ProviderEntry as ProviderEntry
from trioeval.suite.models import Suite as Suite
from trioeval.suite.models import Test as Test
from trioeval.suite.models import TestOptions as TestOptions
from trioeval.suite.template import Templates as Templates
