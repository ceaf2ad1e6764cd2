"""What each stage of a region shows on its page: counts, hashes, tables, a plot, and what it was made from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from casebits_dagster.admission import Admitted
from casebits_dagster.filters.region import FilteredRegion
from casebits_dagster.orchestration.checks import LAYERS
from casebits_dagster.orchestration.lengths_plot import lengths
from casebits_dagster.orchestration.metadata import (
    Metadata,
    Row,
    audit_command,
    column_schema,
    counted,
    digest,
    plain,
    share,
    table,
)
from casebits_dagster.records.canonical import Json
from casebits_dagster.records.layout import ADMISSION, Home
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.record import micro_text
from casebits_dagster.records.region import CheckResult
from casebits_dagster.regions.encode import EncodedRegion
from casebits_dagster.regions.read import Region

_QUANTILES = (0, 10, 50, 90, 100)


def verdict_columns(generation: Generation) -> Metadata:
    """Return the column schema of a verdict table, under the key that fills the page's Columns section."""
    described = {
        "position": ("int64", "row of the source file"),
        "verdict": ("string", "keep, dropped:<reason> or quarantined:<reason>"),
        "document_id": ("binary(16)", "first 16 bytes of the SHA-256 of the text; zeros when quarantined"),
        "cluster": ("int32", "the source's cluster; -1 for none"),
        "source_tokens": ("int64", "tokens as the source stores them"),
        "problem_at": ("int64", "where a quarantined row is malformed; -1 for nowhere"),
    }
    scores = {f"score_{name}": ("int64", "metric in millionths") for name in generation.policy.metrics}
    return column_schema(described | scores)


def document_columns() -> Metadata:
    """Return the same of the document lines of a region."""
    return column_schema(
        {
            "index": ("integer", "number of the document in its region"),
            "id": ("string", "first 16 bytes of the SHA-256 of the text, in hex"),
            "split": ("string", "train or validation"),
            "cluster": ("integer", "the source's cluster; null for none"),
            "source_position": ("integer", "row of the source file, or the byte where its line begins"),
            "token_offset": ("integer", "where its ids and masks begin"),
            "byte_offset": ("integer", "where its text begins in the text of the whole region"),
            "scores": ("object", "metric: its value, as text with 6 digits"),
        }
    )


def filtered(generation: Generation, done: FilteredRegion) -> Metadata:
    """Return the page of a filtered region."""
    verdicts = pq.read_table(done.verdicts)
    reasons = {f"dropped: {name}": count for name, count in done.dropped.items()}
    reasons |= {f"quarantined: {name}": count for name, count in done.quarantined.items()}
    region = generation.plan[done.index]
    return {
        "dagster/row_count": done.kept,
        "what_it_is": f"verdicts on {region.unit} [{region.begin:,}, {region.end:,}) of {region.path}",
        "rows_read": done.rows_read,
        "documents_kept": done.kept,
        "kept_share": share(done.kept, done.rows_read),
        "why_not": counted(reasons, done.rows_read),
        "lengths_plot": lengths(_lengths(verdicts), "source tokens"),
        "scores": table(_score_quantiles(generation, verdicts)),
        "verdicts": done.verdicts,
        "verdicts_digest": done.verdicts_digest,
        "made_from": [_source_slice(generation, done)],
        "audit": f"casebits audit --source-row {generation.name} {region.path} ROW says what became of a row, and why",
        "next": "encoded_arrays turns the kept documents into token ids and case masks.",
    }


def encoded(done: EncodedRegion) -> Metadata:
    """Return the page of an encoded region."""
    receipt, counts = done.receipt, done.receipt.counts
    region = Region.open(done.folder)
    tokens = np.diff(region.offsets.astype("<i8"))
    validation = np.array([line["split"] == "validation" for line in region.documents()], bool)
    ratio = counts.raw_bytes / max(1, counts.tokens - counts.documents)
    source = receipt.source
    return {
        "dagster/row_count": counts.documents,
        "what_it_is": f"kept documents of {source.unit} [{source.begin:,}, {source.end:,}) of {source.path}, encoded",
        "tokens": counts.tokens,
        "documents": counts.documents,
        "splits": table([{"train": counts.train_documents, "validation": counts.validation_documents}]),
        "text_bytes": counts.raw_bytes,
        "bytes_per_token": round(ratio, 4) if counts.documents else "-",
        "mask_bits_per_token": round(done.mask_bits_per_token, 4),
        "bits_if_independent": round(done.independent_bits_per_token, 4),
        "masks_cost": f"{share(done.mask_bits_per_token, done.independent_bits_per_token)} of independent bits",
        "lengths_plot": lengths({"train": tokens[~validation], "validation": tokens[validation]}, "tokens"),
        "files": table(
            [
                {"file": f.name, "type": f.dtype, "items": f"{f.items:,}", "bytes": f"{f.bytes:,}", **digest(f.sha256)}
                for f in receipt.files
            ]
        ),
        "content_id": receipt.content_id,
        "receipt_sha256": done.receipt_sha256,
        "folder": done.folder,
        "written": "published now" if done.published else "identical bytes were published before",
        "encoder": done.encoder,
        "audit": audit_command(receipt.generation, receipt.region.id),
        "next": "admission_proof reads these files and their source again, and admits the region or refuses it.",
    }


def admitted(done: Admitted, home: Home) -> Metadata:
    """Return the page of an admitted region."""
    admission = done.admission
    return {
        "verdict": admission.verdict,
        "checks_passed": len(admission.checks),
        "layers": table(_layers(admission.checks)),
        "evidence": "the Checks tab has what each check proves, and how much of it was examined",
        "digests": admission.digests.to_dict(),
        "files": table([{"file": f.name, "bytes": f"{f.bytes:,}", **digest(f.sha256)} for f in admission.files]),
        "licence": admission.attribution.licence_spdx,
        "content_id": admission.content_id,
        "admission_sha256": done.admission_sha256,
        "admission": home.generation(admission.generation).region(admission.region.index) / ADMISSION,
        "written": "admitted now" if done.published else "the same proof was there before",
        "audit": audit_command(admission.generation, admission.region.id),
        "next": "frontier_manifest extends the gapless prefix when every region before this one is admitted too.",
    }


def _layers(checks: Sequence[CheckResult]) -> list[Row]:
    rows = []
    for layer in LAYERS:
        found = [check for check in checks if check.id.startswith(layer[:2])]
        samples = [
            f"{check.id}: {check.examined:,} of {check.population:,}" for check in found if check.mode == "sample"
        ]
        rows.append({"layer": layer, "passed": len(found), "on a seeded sample": ", ".join(samples) or "none"})
    return rows


def _lengths(verdicts: pa.Table) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    named, tokens = verdicts["verdict"], verdicts["source_tokens"].to_numpy()
    kinds = {"kept": "keep", "dropped": "dropped:", "quarantined": "quarantined:"}
    return {name: tokens[pc.starts_with(named, prefix).to_numpy()] for name, prefix in kinds.items()}


def _score_quantiles(generation: Generation, verdicts: pa.Table) -> list[Row]:
    rows = []
    for metric in generation.policy.metrics:
        scores = verdicts[f"score_{metric}"].drop_null().to_numpy()
        cuts = np.percentile(scores, _QUANTILES, method="lower") if len(scores) else []
        values = {f"p{q}": plain(micro_text(int(cut))) for q, cut in zip(_QUANTILES, cuts, strict=False)}
        rows.append({"metric": metric, **values})
    return rows


def _source_slice(generation: Generation, done: FilteredRegion) -> dict[str, Json]:
    region, source = generation.plan[done.index], generation.source.pin
    return {
        "source": source.repo,
        "revision": source.revision,
        "path": region.path,
        "file_sha256": generation.source.file(region.path).sha256,
        region.unit: [region.begin, region.end],
        "range_sha256": done.range_sha256,
        "licence": source.licence_spdx,
    }
