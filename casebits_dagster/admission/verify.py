"""The proof of one region, from its bytes and its source: every check of the table, in layers.

Guarantees: nothing is written; an `Admission` comes back only when all checks passed; a failed one raises `Rejected`.
The same region gives the same admission on every machine. Cost: see benchmarks; memory: a few blocks and columns.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from casebits_dagster.admission.checks import Proof
from casebits_dagster.admission.documents import check_lines, read_lines, render_lines
from casebits_dagster.admission.files import RegionFiles, read_files
from casebits_dagster.admission.scores import read_weights
from casebits_dagster.admission.selection import (
    check_counts,
    check_documents,
    check_rows,
    check_selection,
    check_split,
    read_verdicts,
)
from casebits_dagster.admission.source import SourceRange
from casebits_dagster.admission.structure import check_arrays, check_codec, check_declared
from casebits_dagster.admission.texts import check_ids, check_scores, check_segmentation, check_texts
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import RECEIPT, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.region import Admission, Attribution, Digests, SourceRecheck, Stage
from casebits_dagster.stores.source import published_sha256

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
    folder, policy = folder.absolute(), generation.policy
    proof = Proof(folder.name, full=full, format=generation.pins.codec.format)
    region = read_files(folder, proof)
    table, vocabulary = check_codec(region, generation, proof)
    texts, text_sha256 = check_arrays(region, table, proof)

    index = _wanted_index(folder, region) if index is None else index
    check_pins(region, generation, index, proof)
    path = verdicts or folder.parents[1] / "verdicts" / f"{region_id(index)}.parquet"
    judged = read_verdicts(path, policy, proof)
    scored = np.flatnonzero(judged.scored)
    sample = scored[proof.sample("L4_SCORES", len(scored))].tolist()
    spec, keeps_ids = generation.plan[index], generation.keeps_ids
    source_range = SourceRange(
        generation.source,
        spec,
        policy.metrics,
        read_weights(generation.weights) if generation.weights else None,
        keeps_ids,
    )
    source, range_sha256 = source_range.read(set(sample), region.receipt, proof)
    check_rows(judged, source, proof)
    selection = check_selection(judged, source, policy, generation.pins.split, proof)
    lines = render_lines(region, selection)
    declared = read_lines(region, selection, lines, proof)
    check_declared(region, texts, declared, proof)
    check_documents(selection, declared["source_position"], proof)
    check_texts(region, table, texts, source_range, selection, proof)
    check_split(selection, declared["validation"], proof)
    check_lines(region, lines, proof)
    check_counts(region, judged, selection, proof)
    check_scores(judged, source, policy.metrics, proof)
    if keeps_ids:
        check_ids(region, table, source.kept, source_range, selection, proof)
        # Ids that are kept are whatever the source has: no tokenizer has to agree with them.
        proof.passed("L5_SEGMENTATION", 0)
    else:
        proof.passed("L4_IDS", 0)
        check_segmentation(region, table, vocabulary, proof)

    recheck = SourceRecheck(range_sha256=range_sha256, rows_digest=source.digest())
    digests = Digests(
        text=text_sha256,
        selection=sha256(selection.positions.astype("<i8").tobytes()),
        split=sha256(selection.validation.astype("u1").tobytes()),
        document_ids=sha256(selection.ids.tobytes()),
    )
    return _admission(region, generation, recheck, digests, proof)


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
    pin, spec = generation.source.pin, generation.plan[index]
    file = generation.source.file(spec.path)
    source = {
        "repo": pin.repo,
        "repo_type": pin.repo_type,
        "revision": pin.revision,
        "path": spec.path,
        "file_bytes": file.bytes,
        "file_sha256": published_sha256(generation.source, spec.path),
        "unit": spec.unit,
        "begin": spec.begin,
        "end": spec.end,
        "licence_spdx": pin.licence_spdx,
    }
    pins = {"filter": generation.pins.filter, "split": generation.pins.split}
    proof.require_fields("L4_PINS", f"{RECEIPT}: source", source, receipt.source)
    proof.require_fields("L4_PINS", f"{RECEIPT}: pins", pins, receipt.pins)
    proof.passed("L4_PINS", len(source) + len(pins) + 2)


def _admission(
    region: RegionFiles, generation: Generation, recheck: SourceRecheck, digests: Digests, proof: Proof
) -> Admission:
    pin, receipt = generation.source.pin, region.receipt
    return Admission(
        generation=generation.name,
        region=receipt.region,
        receipt_sha256=region.receipt_sha256,
        content_id=receipt.content_id,
        files=region.files,
        source_recheck=recheck,
        checks=proof.results(),
        digests=digests,
        attribution=Attribution(licence_spdx=pin.licence_spdx, title=pin.title, url=pin.url, changes=pin.changes),
        verifier=VERIFIER,
    )
