# Apart from `cli.app`: loaded when it is used.
"""`trioeval schema`: the JSON Schema of suite files, for editors."""

from importlib import resources


def schema_text() -> str:
    """The schema as it is shipped with the package; a test keeps it equal to the models."""
    return resources.files("trioeval.loading").joinpath("suite-schema.json").read_text("utf-8")
