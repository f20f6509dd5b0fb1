"""What results leave out of rows, where somebody must not see all of them."""

import attrs


@attrs.frozen(kw_only=True)
class Strip:
    """What is left out of everything that is written."""

    prompt_text: bool = False
    response_output: bool = False
    test_vars: bool = False
    grading_result: bool = False
    metadata: bool = False


KEEP_ALL = Strip()
