"""The first help page of the program and of `trioeval run`: one screen of constant text.

This module imports only the standard library, so that `trioeval --help` is answered without loading the
parser. Tests compare the text with the commands, flags and defaults that the parser has.
"""

import itertools
from collections.abc import Sequence

HELP_ALL = "--help-all"
HELP = frozenset({"--help", "-h"})
COMMANDS = frozenset(
    {
        "run", "resume", "show", "runs", "view", "compare", "export", "import", "init", "preview",
        "simulate", "schema", "fake-provider", "cache", "limits", "agent", "bus",
    }
)  # fmt: skip

PROGRAM = """\
trioeval evaluates language models with suites of tests, within the rate limits of every provider.

Usage: trioeval SUITE [FLAGS]        run a suite file (JSON, YAML or TOML)
       trioeval COMMAND [FLAGS]      trioeval COMMAND --help shows the flags of a command

Run and look
  run SUITE         run a suite and show its results; the default command
  resume [RUN]      continue a run that was interrupted
  show [RUN [ROW]]  show the rows of a run, or everything about one row
  runs              list stored runs; delete some
  view              serve a page that shows and controls runs
Results
  compare A B       compare two runs row by row
  export -o FILE    write result files of a stored run
  import FILE       store a result file as a run
Tools
  init              write a starter suite, or with --csv a suite for a table of questions
  preview SUITE     generate the first rows of a suite's datasets
  simulate SUITE    forecast duration, cost and refusals; compare settings of lanes
  fake-provider     serve a fake OpenAI-compatible provider
  cache             inspect, empty or export the cache of replies
  schema            print the JSON Schema of suite files
Agents and shared limits
  agent, bus        commands for agents: child runs and messages
  limits            serve, show and change limits that programs share

Most used flags of run
  -o, --output FILE        write results: .json .jsonl .csv .html .md and others  [default: none]
  -n, --filter-first-n N   run only the first N tests                             [default: all]
      --filter-pattern RE  run only tests whose description matches               [default: none]
  -j, --max-concurrency N  calls in flight per lane        [default: as each lane says, else 4]
      --max-cost USD       stop before the run costs more                        [default: no limit]
      --no-cache           call providers even for cached replies                 [default: --cache]
      --resume [RUN]       continue a run and reuse its replies                   [default: none]
      --env-file FILE      read API keys and other variables from a file          [default: none]
      --record FILE        record replies; --replay FILE runs without a network   [default: none]
      --plan               show rows, cost and duration; call no provider         [default: off]
`trioeval --help-all` lists every flag.
"""

RUN = """\
Run a suite and show its results.

Usage: trioeval run SUITE [FLAGS]

  SUITE  the suite file: JSON, YAML or TOML; without one, promptfooconfig.yaml of this folder

Suite and input
  -r, --providers NAME     call only this provider, by label or id; repeatable    [default: none]
  -p, --prompts FILE       replace the suite's prompts; repeatable                [default: none]
  -t, --tests FILE         replace the suite's tests; also -v, --vars             [default: none]
      --var NAME=VALUE     a variable of every test; repeatable                   [default: none]
      --env-file FILE      read API keys and other variables from a file          [default: none]
      --record FILE        record every provider reply                            [default: none]
      --replay FILE        take replies from a recording: no network, no keys     [default: none]
Row filters
  -n, --filter-first-n N   run only the first N tests                             [default: all]
      --filter-pattern RE  run only tests whose description matches               [default: none]
      --filter-failing FILE  run only tests that did not pass in a result file    [default: none]
Limits
  -j, --max-concurrency N  calls in flight per lane        [default: as each lane says, else 4]
      --max-cost USD       stop before the run costs more                        [default: no limit]
      --max-time SECONDS   stop the run after this time                          [default: no limit]
      --timeout SECONDS    the working time of one row                           [default: no limit]
      --fail-fast          start no more rows after the first that did not pass   [default: off]
Storage and reuse
      --resume [RUN]       continue a run and reuse its replies                   [default: none]
      --retry ROWS         run rows again: failed, errors, timeouts or 3,17       [default: none]
      --no-cache           call providers even for cached replies                 [default: --cache]
      --no-write           do not store the run in the database                   [default: --write]
Output
  -o, --output FILE        write results: .json .jsonl .csv .html .md and others  [default: none]
      --plan               show rows, cost and duration; call no provider         [default: off]
  -w, --watch              run again whenever a file of the suite changes         [default: off]
  -q, --quiet              show only errors and the last line                     [default: off]
`trioeval run --help-all` lists every flag.
"""


def short_help(arguments: Sequence[str]) -> str | None:
    """Return the page that a command line asks for with `--help`; None if it asks for none of these.

    Example:
        >>> short_help(["run", "--help"]) == RUN, short_help(["show", "--help"])
        (True, None)
    """
    given = list(itertools.takewhile(lambda argument: argument != "--", arguments))
    if HELP.isdisjoint(given) or HELP_ALL in given:
        return None
    words = [argument for argument in given if argument not in HELP]
    if not words:
        return PROGRAM
    return RUN if words[0] == "run" or words[0] not in COMMANDS else None


def parsed_help(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with `--help-all` as the parser knows it: `--help`.

    Example:
        >>> parsed_help(["run", "--help-all"])
        ['run', '--help']
    """
    end = list(arguments).index("--") if "--" in arguments else len(arguments)
    known = ["--help" if argument == HELP_ALL else argument for argument in arguments[:end]]
    return [*known, *arguments[end:]]
