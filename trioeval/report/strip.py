"""The parts of rows that are left out of results for privacy."""

import attrs


@attrs.frozen(kw_only=True)
class Strip:
    """The parts that are left out of everything that is written."""

    prompt_text: bool = False
    response_output: bool = False
    test_vars: bool = False
    grading_result: bool = False
    metadata: bool = False


KEEP_ALL = Strip()
