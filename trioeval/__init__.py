"""An evaluation kernel for language models on Trio's structured concurrency.

    import trio, trioeval

    rows = trio.run(trioeval.collect, "suite.json")

`run_suite` and `collect` run suites; `trioeval.kernel` runs plans of any jobs on lanes; `trioeval.testing`
has the laws, strategies and the virtual clock for testing schedulers.

Names are imported at their first use: `python -m trioeval --version` imports nothing else.
"""

import importlib
from typing import TYPE_CHECKING, Any

from trioeval._version import __version__ as __version__

if TYPE_CHECKING:
    from trioeval.agent.bus.bus import Bus as Bus
    from trioeval.agent.bus.bus import open_bus as open_bus
    from trioeval.agent.bus.messages import Message as Message
    from trioeval.agent.bus.messages import MessageDraft as MessageDraft
    from trioeval.agent.bus.reading import read_bus as read_bus
    from trioeval.agent.in_process import AgentCase as AgentCase
    from trioeval.agent.in_process import run_agents as run_agents
    from trioeval.agent.loop import LoopEnd as LoopEnd
    from trioeval.agent.open import AgentOptions as AgentOptions
    from trioeval.agent.planner import Submission as Submission
    from trioeval.agent.planner import planner_turn as planner_turn
    from trioeval.agent.restarts import Attempt as Attempt
    from trioeval.agent.restarts import AttemptEnd as AttemptEnd
    from trioeval.agent.restarts import AttemptFailure as AttemptFailure
    from trioeval.agent.restarts import RestartPolicy as RestartPolicy
    from trioeval.columns.events import DatasetEvent as DatasetEvent
    from trioeval.columns.events import DatasetShutDown as DatasetShutDown
    from trioeval.columns.events import DatasetStarted as DatasetStarted
    from trioeval.columns.events import GroupAbandoned as GroupAbandoned
    from trioeval.columns.events import GroupOpened as GroupOpened
    from trioeval.columns.events import GroupWritten as GroupWritten
    from trioeval.columns.events import ManyTransientFailures as ManyTransientFailures
    from trioeval.columns.events import ProcessorEnded as ProcessorEnded
    from trioeval.columns.events import ProcessorStarted as ProcessorStarted
    from trioeval.columns.events import RowDropped as RowDropped
    from trioeval.columns.files import DatasetRows as DatasetRows
    from trioeval.columns.result import DatasetResult as DatasetResult
    from trioeval.errors import AgentError as AgentError
    from trioeval.errors import BlockedError as BlockedError
    from trioeval.errors import BusError as BusError
    from trioeval.errors import BusLockedError as BusLockedError
    from trioeval.errors import CursorExpiredError as CursorExpiredError
    from trioeval.errors import CursorNotFoundError as CursorNotFoundError
    from trioeval.errors import DatasetError as DatasetError
    from trioeval.errors import GradingError as GradingError
    from trioeval.errors import LimitError as LimitError
    from trioeval.errors import MarkerError as MarkerError
    from trioeval.errors import OutputError as OutputError
    from trioeval.errors import PlanError as PlanError
    from trioeval.errors import Problem as Problem
    from trioeval.errors import ProviderError as ProviderError
    from trioeval.errors import StoreError as StoreError
    from trioeval.errors import SuiteError as SuiteError
    from trioeval.errors import TemplateError as TemplateError
    from trioeval.errors import TooLateError as TooLateError
    from trioeval.errors import TrioevalError as TrioevalError
    from trioeval.errors import UsageError as UsageError
    from trioeval.grading import KINDS as KINDS
    from trioeval.grading import Assertion as Assertion
    from trioeval.grading import ExternalJudge as ExternalJudge
    from trioeval.grading import Finding as Finding
    from trioeval.grading import Kind as Kind
    from trioeval.grading import Subject as Subject
    from trioeval.grading import Verdict as Verdict
    from trioeval.grading import grade as grade
    from trioeval.grading import kind_of as kind_of
    from trioeval.kernel import Lanes as Lanes
    from trioeval.kernel import LaneSpec as LaneSpec
    from trioeval.loading.load import load_suite as load_suite
    from trioeval.loading.load import parse_suite as parse_suite
    from trioeval.providers import Guardrails as Guardrails
    from trioeval.providers import Provider as Provider
    from trioeval.providers import Reply as Reply
    from trioeval.providers import Request as Request
    from trioeval.providers import Usage as Usage
    from trioeval.providers.local.custom import own_provider as own_provider
    from trioeval.providers.local.record import Recorder as Recorder
    from trioeval.providers.sdk import provider_from_asyncio as provider_from_asyncio
    from trioeval.question_eval.answer import QuestionEvent as QuestionEvent
    from trioeval.question_eval.answer import QuestionResult as QuestionResult
    from trioeval.rates import Budget as Budget
    from trioeval.report.records import RowRecord as RowRecord
    from trioeval.report.stored import RunStart as RunStart
    from trioeval.run import PreparedSuite as PreparedSuite
    from trioeval.run import Row as Row
    from trioeval.run import Status as Status
    from trioeval.run import SuiteSummary as SuiteSummary
    from trioeval.run import collect as collect
    from trioeval.run import make_lanes as make_lanes
    from trioeval.run import open_suite_limits as open_suite_limits
    from trioeval.run import prepare as prepare
    from trioeval.run import run_suite as run_suite
    from trioeval.run.build_dataset import Dataset as Dataset
    from trioeval.run.build_dataset import build_columns as build_columns
    from trioeval.session.run import Run as Run
    from trioeval.session.run import RunSummary as RunSummary
    from trioeval.session.session import Session as Session
    from trioeval.session.session import SessionObserver as SessionObserver
    from trioeval.session.session import open_session as open_session
    from trioeval.store.cache.cache import open_cache as open_cache
    from trioeval.store.planner.planner import open_planner as open_planner
    from trioeval.store.reader import read_store as read_store
    from trioeval.store.store import open_store as open_store
    from trioeval.suite.model import EvaluateOptions as EvaluateOptions
    from trioeval.suite.model import LaneSettings as LaneSettings
    from trioeval.suite.model import Prompt as Prompt
    from trioeval.suite.model import ProviderEntry as ProviderEntry
    from trioeval.suite.model import Suite as Suite
    from trioeval.suite.model import Test as Test
    from trioeval.suite.model import TestOptions as TestOptions

_HOMES = {
    "agent.bus.bus": "Bus open_bus",
    "agent.bus.messages": "MessageDraft Message",
    "agent.bus.reading": "read_bus",
    "agent.in_process": "AgentCase run_agents",
    "agent.loop": "LoopEnd",
    "agent.open": "AgentOptions",
    "agent.planner": "Submission planner_turn",
    "agent.restarts": "Attempt AttemptEnd AttemptFailure RestartPolicy",
    "columns.events": (
        "DatasetStarted DatasetEvent GroupAbandoned GroupOpened GroupWritten ManyTransientFailures"
        " ProcessorStarted ProcessorEnded RowDropped DatasetShutDown"
    ),
    "columns.files": "DatasetRows",
    "columns.result": "DatasetResult",
    "errors": (
        "AgentError BlockedError BusError BusLockedError CursorExpiredError CursorNotFoundError"
        " DatasetError GradingError MarkerError OutputError PlanError Problem ProviderError"
        " LimitError StoreError SuiteError TemplateError TooLateError TrioevalError UsageError"
    ),
    "grading": "ExternalJudge Assertion Finding KINDS Kind Subject Verdict grade kind_of",
    "kernel": "LaneSpec Lanes",
    "loading.load": "load_suite parse_suite",
    "providers": "Guardrails Provider Reply Request Usage",
    "providers.local.custom": "own_provider",
    "providers.local.record": "Recorder",
    "providers.sdk": "provider_from_asyncio",
    "question_eval.answer": "QuestionEvent QuestionResult",
    "run": (
        "PreparedSuite Row Status SuiteSummary collect make_lanes"
        " open_suite_limits prepare run_suite"
    ),
    "run.build_dataset": "Dataset build_columns",
    "report.records": "RowRecord",
    "report.stored": "RunStart",
    "session.run": "Run RunSummary",
    "session.session": "Session SessionObserver open_session",
    "rates": "Budget",
    "store.reader": "read_store",
    "store.store": "open_store",
    "store.cache.cache": "open_cache",
    "store.planner.planner": "open_planner",
    "suite.model": "EvaluateOptions LaneSettings Prompt ProviderEntry Suite Test TestOptions",
}
_HOME_BY_NAME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *_HOME_BY_NAME]  # noqa: PLE0604 - names are text; the linter cannot see it


def __getattr__(name: str) -> Any:
    home = _HOME_BY_NAME.get(name)
    if home is None:
        msg = f"module 'trioeval' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"trioeval.{home}"), name)
