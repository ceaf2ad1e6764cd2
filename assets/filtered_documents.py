"""Stage 1, one region a partition: which rows of the source are kept, and why the others are not."""

from casebits_dagster.orchestration import produce
from casebits_dagster.orchestration.describe_region import verdict_columns
from casebits_dagster.orchestration.stages import FILTERED, RegionStage
from casebits_dagster.records.pins import Generation

VERSION = 1
STORY = """\
**One verdict for every row of the region**: kept, dropped for one reason, or quarantined as malformed.

Reads the rows of the pinned source range, turns their tokens back into text, scores each document with every metric of
the filter policy, and applies the policy's rules in order. Nothing is lost: rows read = kept + dropped + quarantined,
and the verdict table answers "why not?" for each row.
"""


def filtered_documents(generation: Generation) -> RegionStage:
    """Return the stage for a pinned generation."""
    return RegionStage(
        name=FILTERED,
        version=VERSION,
        story=STORY,
        kinds={"python", "parquet"},
        pins={"filter": generation.pins.filter.to_dict()},
        metadata=verdict_columns(generation),
        work=produce.filtered,
    )
