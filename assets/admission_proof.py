"""Stage 3, one region a partition: an independent verifier proves the region from its bytes and its source."""

from casebits_dagster.admission.process import admit_packed
from casebits_dagster.orchestration.checks import LAYERS
from casebits_dagster.orchestration.stages import ADMITTED, ENCODED, RegionStage
from casebits_dagster.records.pins import Generation

VERSION = 1
STORY = """\
**The proof of the region**, by code that shares nothing with the producer's, in a process of its own.

Hashes the files where they are published, decodes every document, reads the source rows again by itself, and compares
text, order, selection and split. Only then is `admission.json` linked in: without it the region does not exist for
anyone downstream. A refusal names check, file, document and position, and admits nothing.
"""


def admission_proof(generation: Generation) -> RegionStage:
    """Return the stage for a pinned generation, with one blocking check a layer of the proof."""
    return RegionStage(
        name=ADMITTED,
        version=VERSION,
        story=STORY,
        kinds={"python", "proof"},
        pins=generation.pins.to_dict(),
        after=ENCODED,
        checks=LAYERS,
        work=admit_packed,
        apart=True,
    )
