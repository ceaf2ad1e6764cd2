"""Stage 2, one region a partition: the kept documents as token ids, case masks and cuts, with a receipt."""

from casebits_dagster.orchestration import produce
from casebits_dagster.orchestration.describe_region import document_columns
from casebits_dagster.orchestration.stages import ENCODED, FILTERED, RegionStage
from casebits_dagster.records.pins import Generation

VERSION = 1
STORY = """\
**The region as a trainer reads it**: lower-case token ids, a case mask a token, cuts between documents.

Encodes the kept text with the pinned vocabulary, ends every document with one end-of-document id, and publishes arrays,
document lines and receipt together by one folder rename. The receipt is a *claim*, sealed by its content id; it proves
nothing until the region is admitted.
"""


def encoded_arrays(generation: Generation) -> RegionStage:
    """Return the stage for a pinned generation."""
    return RegionStage(
        name=ENCODED,
        version=VERSION,
        story=STORY,
        kinds={"python", "numpy"},
        pins=generation.pins.to_dict(),
        after=FILTERED,
        metadata=document_columns(),
        work=produce.encoded,
    )
