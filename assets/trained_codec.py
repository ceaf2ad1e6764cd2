"""Where a codec comes from, one asset a codec that says what it was trained on: trained again, beside its pin."""

import dagster as dg
from dagster import AssetExecutionContext

from casebits_dagster.orchestration.metadata import Metadata
from casebits_dagster.orchestration.partitions import asset_key
from casebits_dagster.orchestration.stages import Materialized, stage
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.pins import Generation
from casebits_dagster.sources.training import Retrained, retrain

VERSION = 1
CODECS = "codecs"
CHECKS = {
    "vocabulary": "Trained again, the vocabulary has the pinned bytes: training it is integer arithmetic.",
    "mixture": "Trained again, the mixture has the pinned bytes; it may differ as processors do, which is a warning.",
}


def trained_codec(codec: CodecFiles, source: Generation) -> dg.AssetsDefinition:
    """Return the asset of a codec that was trained on the source of a generation."""

    @stage(
        asset_key(CODECS, codec.codec),
        VERSION,
        kinds={"python", "numpy"},
        pins={"codec": codec.to_dict(), "source": source.source.pin.revision},
        after=[],
        checks=CHECKS,
        metadata={"command": codec.command},
    )
    def asset(context: AssetExecutionContext) -> Materialized:
        """**How the vocabulary and the model of the masks were made**: trained again from the pinned source.

        The committed pin is the truth and is never replaced; this shows that its command makes it. A vocabulary that
        differs is an error. A mixture that differs is a warning with its size, since floating point may differ between
        processors.
        """
        done = retrain(source.source.pins_folder, codec, context.log.info)
        return dg.MaterializeResult(
            metadata={"trained_on": codec.trained_on, "vocabulary_sha256": done.made.vocabulary_sha256},
            check_results=[_vocabulary(done), _mixture(done)],
            data_version=dg.DataVersion(done.made.vocabulary_sha256),
        )

    return asset


def _vocabulary(done: Retrained) -> dg.AssetCheckResult:
    expected, read = done.pinned.vocabulary_sha256, done.made.vocabulary_sha256
    shown: Metadata = {"expected": expected, "read": read}
    return dg.AssetCheckResult(check_name="vocabulary", passed=expected == read, metadata=shown)


def _mixture(done: Retrained) -> dg.AssetCheckResult:
    expected, read = done.pinned.mixture_sha256 or "none", done.made.mixture_sha256 or "none"
    shown: Metadata = {"expected": expected, "read": read, "largest_difference_in_steps_of_1/65535": done.mixture_steps}
    warn = dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(check_name="mixture", passed=expected == read, severity=warn, metadata=shown)
