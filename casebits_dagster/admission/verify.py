"""The proof of one region, from its bytes and its source: every check of the table, in layers.

Guarantees: nothing is written; an `Admission` comes back only when all checks passed; a failed one raises `Rejected`.
The same region gives the same admission on every machine. Cost: see benchmarks; memory: a few blocks and columns.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from casebits_dagster.admission.checks import Proof
from casebits_dagster.admission.documents import check_lines, read_lines, render_lines
from casebits_dagster.admission.files import RegionFiles, read_files
from casebits_dagster.admission.scores import METRICS
from casebits_dagster.admission.segmentation import check_segmentation
from casebits_dagster.admission.selection import (
    Selection,
    VerdictTable,
    check_documents,
    check_rows,
    check_selection,
    check_split,
    read_verdicts,
    verdicts_digest,
)
from casebits_dagster.admission.source import SourceRange, SourceRows
from casebits_dagster.admission.structure import DecodedTexts, check_codec, check_structure, decode_cased
from casebits_dagster.admission.tables import CaseTable
from casebits_dagster.records.layout import IDS, RECEIPT, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import (
    Admission,
    Attribution,
    Counts,
    Digests,
    RegionName,
    SourceRecheck,
    Stage,
)

VERIFIER = Stage(name="casebits-admission", version=1)


def verify_region(
    folder: Path,
    generation: Generation,
    *,
    index: int | None = None,
    verdicts: Path | None = None,
    full: bool = False,
) -> Admission:
    """Return the admission that the region in `folder` deserves, or raise Rejected with the check that it fails.

    `index` is the region that must be there (default: what the folder's name says, else what the receipt says);
    `verdicts` is its verdict table (default: where a home has it); `full` also re-encodes and re-scores everything.
    """
    folder = folder.absolute()
    proof = Proof(folder.name, full=full)
    region = read_files(folder, proof)
    table, vocabulary = check_codec(region, generation, proof)
    declared = read_lines(region.lines, generation.policy.metrics, proof)
    decoded = check_structure(region, table, declared, proof)

    index = _wanted_index(folder, region) if index is None else index
    check_pins(region, generation, index, proof)
    path = verdicts or folder.parents[1] / "verdicts" / f"{region_id(index)}.parquet"
    where, policy = f"verdicts/{path.name}", generation.policy
    source_range = SourceRange.of(generation, index)
    range_sha256 = source_range.check_bytes(region.receipt, proof)
    judged = read_verdicts(path, source_range.spec, policy, proof)
    scored = np.flatnonzero(judged.scored)
    sample = scored[proof.sample("L4_SCORES", len(scored))].tolist()
    source = source_range.rows(set(sample), policy.metrics)
    check_rows(judged, source, where, proof)
    selection = check_selection(judged, source, policy, generation.pins.split, where, proof)
    check_documents(judged, selection, declared, proof)
    check_texts(region, table, decoded, source, source_range, selection, proof)
    check_split(selection, declared, proof)
    check_lines(region.lines, _expected_lines(region, judged, source, selection), proof)
    check_counts(region, source, selection, judged, proof)
    check_scores(judged, source, where, len(scored), proof)
    check_segmentation(region, table, vocabulary, proof)
    return _admission(region, generation, decoded, source, judged, selection, range_sha256, proof)


def _wanted_index(folder: Path, region: RegionFiles) -> int:
    named = folder.name.isascii() and folder.name.isdigit()
    return int(folder.name) if named else region.receipt.region.index


def check_pins(region: RegionFiles, generation: Generation, index: int, proof: Proof) -> None:
    """Compare each field of the receipt that a pin decides."""
    receipt = region.receipt
    proof.require_equal("L4_PINS", f"{RECEIPT}: generation", generation.name, receipt.generation)
    proof.require_equal("L4_PINS", f"{RECEIPT}: region.index", index, receipt.region.index)
    if index >= len(generation.plan):
        raise proof.rejected("L4_PINS", f"{RECEIPT}: region.index", f"the plan has {len(generation.plan)} regions")
    pin, spec = generation.pin.source, generation.plan[index]
    file = generation.source_file(spec.path)
    expected = {
        "repo": pin.repo,
        "repo_type": pin.repo_type,
        "revision": pin.revision,
        "path": spec.path,
        "file_bytes": file.bytes,
        "file_sha256": file.sha256,
        "unit": spec.unit,
        "begin": spec.begin,
        "end": spec.end,
        "licence_spdx": pin.licence_spdx,
    }
    for name, value in expected.items():
        proof.require_equal("L4_PINS", f"{RECEIPT}: source.{name}", value, getattr(receipt.source, name))
    proof.require_equal("L4_PINS", f"{RECEIPT}: pins.filter", generation.pins.filter, receipt.pins.filter)
    proof.require_equal("L4_PINS", f"{RECEIPT}: pins.split", generation.pins.split, receipt.pins.split)
    proof.passed("L4_PINS", len(expected) + 4)


def check_texts(
    region: RegionFiles,
    table: CaseTable,
    decoded: DecodedTexts,
    source: SourceRows,
    source_range: SourceRange,
    selection: Selection,
    proof: Proof,
) -> None:
    """Compare the decoded texts with those of the source, by SHA-256; a refusal names the first byte that differs."""
    differs = (decoded.digests != source.digests[selection.rows]).any(axis=1)
    for document in np.flatnonzero(differs)[:1].tolist():
        begin, end = region.offsets[document : document + 2].tolist()
        got = decode_cased(table, region.ids[begin:end], region.cases[begin:end])[0].tobytes()
        want = source_range.text(int(selection.rows[document]))
        shared = min(len(got), len(want))
        at = next((byte for byte in range(shared) if got[byte] != want[byte]), shared)
        raise proof.rejected(
            "L4_TEXT",
            IDS,
            "the decoded text is not that of the source",
            expected=want[at : at + 16],
            read=got[at : at + 16],
            document=document,
            position=at,
        )
    proof.passed("L4_TEXT", len(differs))


def _expected_lines(region: RegionFiles, judged: VerdictTable, source: SourceRows, selection: Selection) -> list[bytes]:
    rows = selection.rows
    return render_lines(
        ids=source.digests[rows, :16],
        clusters=source.clusters[rows],
        positions=judged.positions[rows],
        validation=selection.validation,
        scores={metric: values[rows] for metric, values in judged.scores.items()},
        offsets=region.offsets,
        raw_bytes=region.raw_bytes,
    )


def check_counts(
    region: RegionFiles, source: SourceRows, selection: Selection, judged: VerdictTable, proof: Proof
) -> None:
    """Recount everything the receipt counts, compare its verdict digest, and check that rows are conserved."""
    tally = {"dropped": {}, "quarantined": {}}  # type: dict[str, dict[str, int]]
    for verdict, count in zip(*np.unique(selection.verdicts, return_counts=True), strict=True):
        kind, _, reason = verdict.item().partition(":")
        if reason:
            tally[kind][reason] = count.item()
    validation, documents = int(selection.validation.sum()), len(selection.rows)
    expected = Counts(
        rows_read=len(source.reasons),
        documents=documents,
        tokens=len(region.ids),
        raw_bytes=int(region.raw_bytes.sum()),
        train_documents=documents - validation,
        validation_documents=validation,
        **tally,
    )
    for name, value in expected.to_dict().items():
        proof.require_equal("L4_COUNTS", f"{RECEIPT}: counts.{name}", value, region.receipt.counts.to_dict()[name])
    proof.passed("L4_COUNTS", len(source.reasons))
    digest = verdicts_digest(judged, selection)
    proof.require_equal("L4_VERDICTS_DIGEST", f"{RECEIPT}: verdicts_digest", digest, region.receipt.verdicts_digest)
    proof.passed("L4_VERDICTS_DIGEST", len(source.reasons))


def check_scores(judged: VerdictTable, source: SourceRows, where: str, population: int, proof: Proof) -> None:
    """Compare the recorded scores of the sampled rows with those measured on the source text."""
    for metric in sorted(judged.scores.keys() - METRICS.keys()):
        raise proof.rejected("L4_SCORES", f"{where}: score_{metric}", "this verifier does not know the metric")
    for row, measured in source.scores.items():
        for metric, value in measured.items():
            read = int(judged.scores[metric][row])
            if read != value:
                position = int(judged.positions[row])
                place = f"{where}: score_{metric}"
                raise proof.rejected("L4_SCORES", place, expected=value, read=read, position=position)
    proof.passed("L4_SCORES", population, len(source.scores))


def _admission(
    region: RegionFiles,
    generation: Generation,
    decoded: DecodedTexts,
    source: SourceRows,
    judged: VerdictTable,
    selection: Selection,
    range_sha256: str,
    proof: Proof,
) -> Admission:
    pin, receipt = generation.pin.source, region.receipt

    def digest(column: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
        return hashlib.sha256(column.tobytes()).hexdigest()

    return Admission(
        generation=generation.name,
        region=RegionName(index=receipt.region.index, id=receipt.region.id),
        receipt_sha256=region.receipt_sha256,
        content_id=receipt.content_id,
        files=region.files,
        source_recheck=SourceRecheck(range_sha256=range_sha256, rows_digest=source.digest()),
        checks=proof.results(),
        digests=Digests(
            text=decoded.text_sha256,
            selection=digest(judged.positions[selection.rows].astype("<i8")),
            split=digest(selection.validation.astype("u1")),
            document_ids=digest(source.digests[selection.rows, :16]),
        ),
        attribution=Attribution(licence_spdx=pin.licence_spdx, title=pin.title, url=pin.url, changes=pin.changes),
        verifier=VERIFIER,
    )
