"""The media in the record of a row."""

from collections.abc import Sequence

from trioeval.providers.base import Media
from trioeval.report.records import RowRecord


def media_of(record: RowRecord) -> Sequence[Media]:
    """Return the images, audio and video of the reply; what is not valid is left out."""
    listed = None if record.response is None else record.response.get("media")
    if not listed:
        return ()
    from trioeval.providers.media import valid_media  # most rows have none

    return valid_media(listed)
