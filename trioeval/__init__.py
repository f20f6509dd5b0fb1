"""An evaluation kernel for language models on Trio's structured concurrency.

    import trio, trioeval

    rows = trio.run(trioeval.collect, "suite.json")

`run_suite` and `collect` run suites; `trioeval.kernel` runs plans of any jobs on lanes;
`trioeval.testing` holds the laws, strategies and the virtual clock that schedulers are tested with.

Names are imported when they are first used: `python -m trioeval --version` imports nothing else.
"""

import importlib
from typing import TYPE_CHECKING, Any

from trioeval._version import __version__ as __version__

if TYPE_CHECKING:
    from trioeval.agents.attempts import Attempt as Attempt
    from trioeval.agents.attempts import AttemptEnd as AttemptEnd
    from trioeval.agents.attempts import AttemptFailure as AttemptFailure
    from trioeval.agents.bus.bus import Bus as Bus
    from trioeval.agents.bus.bus import open_bus as open_bus
    from trioeval.agents.bus.messages import Draft as Draft
    from trioeval.agents.bus.messages import Message as Message
    from trioeval.agents.bus.reading import read_bus as read_bus
    from trioeval.agents.inprocess import AgentCase as AgentCase
    from trioeval.agents.inprocess import run_agents as run_agents
    from trioeval.agents.loop import LoopEnd as LoopEnd
    from trioeval.agents.planner import Submission as Submission
    from trioeval.agents.planner import planner_turn as planner_turn
    from trioeval.agents.restarts import RestartPolicy as RestartPolicy
    from trioeval.datasets.files import DatasetRows as DatasetRows
    from trioeval.datasets.result import DatasetResult as DatasetResult
    from trioeval.errors import AgentError as AgentError
    from trioeval.errors import BlockedError as BlockedError
    from trioeval.errors import BusError as BusError
    from trioeval.errors import BusLockedError as BusLockedError
    from trioeval.errors import CursorExpiredError as CursorExpiredError
    from trioeval.errors import CursorNotFoundError as CursorNotFoundError
    from trioeval.errors import DatasetError as DatasetError
    from trioeval.errors import GradingError as GradingError
    from trioeval.errors import MarkerError as MarkerError
    from trioeval.errors import OutputError as OutputError
    from trioeval.errors import PlanError as PlanError
    from trioeval.errors import Problem as Problem
    from trioeval.errors import ProviderError as ProviderError
    from trioeval.errors import QuotaError as QuotaError
    from trioeval.errors import StoreError as StoreError
    from trioeval.errors import SuiteError as SuiteError
    from trioeval.errors import TemplateError as TemplateError
    from trioeval.errors import TooLateError as TooLateError
    from trioeval.errors import TrioevalError as TrioevalError
    from trioeval.errors import UsageError as UsageError
    from trioeval.grading import KINDS as KINDS
    from trioeval.grading import Asking as Asking
    from trioeval.grading import Assertion as Assertion
    from trioeval.grading import Finding as Finding
    from trioeval.grading import Kind as Kind
    from trioeval.grading import Subject as Subject
    from trioeval.grading import Verdict as Verdict
    from trioeval.grading import grade as grade
    from trioeval.grading import kind_of as kind_of
    from trioeval.kernel import Lanes as Lanes
    from trioeval.kernel import LaneSpec as LaneSpec
    from trioeval.providers import Guardrails as Guardrails
    from trioeval.providers import Provider as Provider
    from trioeval.providers import Recorder as Recorder
    from trioeval.providers import Reply as Reply
    from trioeval.providers import Request as Request
    from trioeval.providers import Usage as Usage
    from trioeval.providers.sdk import provider_from_asyncio as provider_from_asyncio
    from trioeval.store import RunStart as RunStart
    from trioeval.store import open_store as open_store
    from trioeval.store import read_store as read_store
    from trioeval.store.agent_planner import open_planner as open_planner
    from trioeval.store.cache import open_cache as open_cache
    from trioeval.suite import EvaluateOptions as EvaluateOptions
    from trioeval.suite import LaneSettings as LaneSettings
    from trioeval.suite import Prompt as Prompt
    from trioeval.suite import ProviderEntry as ProviderEntry
    from trioeval.suite import Suite as Suite
    from trioeval.suite import Test as Test
    from trioeval.suite import TestOptions as TestOptions
    from trioeval.suite import load_suite as load_suite
    from trioeval.suite import parse_suite as parse_suite
    from trioeval.tasks import PreparedSuite as PreparedSuite
    from trioeval.tasks import QuestionEvent as QuestionEvent
    from trioeval.tasks import QuestionResult as QuestionResult
    from trioeval.tasks import Row as Row
    from trioeval.tasks import Status as Status
    from trioeval.tasks import SuiteSummary as SuiteSummary
    from trioeval.tasks import collect as collect
    from trioeval.tasks import make_lanes as make_lanes
    from trioeval.tasks import open_suite_quota as open_suite_quota
    from trioeval.tasks import prepare as prepare
    from trioeval.tasks import run_suite as run_suite
    from trioeval.tasks.agents.agent_terms import AgentTerms as AgentTerms
    from trioeval.tasks.columns.building import Dataset as Dataset
    from trioeval.tasks.columns.building import build_columns as build_columns
    from trioeval.tasks.columns.dataset_events import DatasetBegun as DatasetBegun
    from trioeval.tasks.columns.dataset_events import DatasetEvent as DatasetEvent
    from trioeval.tasks.columns.dataset_events import GroupGivenUp as GroupGivenUp
    from trioeval.tasks.columns.dataset_events import GroupOpened as GroupOpened
    from trioeval.tasks.columns.dataset_events import GroupWritten as GroupWritten
    from trioeval.tasks.columns.dataset_events import ManyMishaps as ManyMishaps
    from trioeval.tasks.columns.dataset_events import ProcessorBegun as ProcessorBegun
    from trioeval.tasks.columns.dataset_events import ProcessorEnded as ProcessorEnded
    from trioeval.tasks.columns.dataset_events import RowDropped as RowDropped
    from trioeval.tasks.columns.dataset_events import ShutDown as ShutDown

_HOMES = {
    "agents.attempts": "Attempt AttemptEnd AttemptFailure",
    "agents.bus.bus": "Bus open_bus",
    "agents.bus.messages": "Draft Message",
    "agents.bus.reading": "read_bus",
    "agents.inprocess": "AgentCase run_agents",
    "agents.loop": "LoopEnd",
    "agents.planner": "Submission planner_turn",
    "agents.restarts": "RestartPolicy",
    "datasets.files": "DatasetRows",
    "datasets.result": "DatasetResult",
    "errors": (
        "AgentError BlockedError BusError BusLockedError CursorExpiredError CursorNotFoundError"
        " DatasetError GradingError MarkerError OutputError PlanError Problem ProviderError QuotaError"
        " StoreError SuiteError TemplateError TooLateError TrioevalError UsageError"
    ),
    "grading": "Asking Assertion Finding KINDS Kind Subject Verdict grade kind_of",
    "kernel": "LaneSpec Lanes",
    "providers": "Guardrails Provider Recorder Reply Request Usage",
    "providers.sdk": "provider_from_asyncio",
    "store": "RunStart open_store read_store",
    "store.agent_planner": "open_planner",
    "store.cache": "open_cache",
    "suite": (
        "EvaluateOptions LaneSettings Prompt ProviderEntry Suite Test TestOptions load_suite"
        " parse_suite"
    ),
    "tasks": (
        "PreparedSuite QuestionEvent QuestionResult Row Status SuiteSummary collect make_lanes"
        " open_suite_quota prepare run_suite"
    ),
    "tasks.agents.agent_terms": "AgentTerms",
    "tasks.columns.building": "Dataset build_columns",
    "tasks.columns.dataset_events": (
        "DatasetBegun DatasetEvent GroupGivenUp GroupOpened GroupWritten ManyMishaps"
        " ProcessorBegun ProcessorEnded RowDropped ShutDown"
    ),
}
_HOME_BY_NAME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *_HOME_BY_NAME]  # noqa: PLE0604 - names are text; the linter cannot see it


def __getattr__(name: str) -> Any:
    home = _HOME_BY_NAME.get(name)
    if home is None:
        msg = f"module 'trioeval' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"trioeval.{home}"), name)
