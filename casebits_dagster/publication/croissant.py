"""Croissant 1.0 metadata (JSON-LD) of a publication: its files with their hashes, for catalogues of datasets.

Paths are relative to the folder that `croissant.json` lies in. A region is named by a glob only as far as the manifest
lists it: what lies beyond the prefix is not described.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

from casebits_dagster.publication.licence import licence_url
from casebits_dagster.records.frontier import Latest, Manifest, ManifestPointer
from casebits_dagster.records.layout import ADMISSION, ARRAY_NAMES, DOCUMENTS, RECEIPT
from casebits_dagster.records.mix import (
    NEXT_NAMES,
    SEGMENTS,
    SHARD_SUFFIXES,
    TABLE,
    TRAIN,
    VALIDATION,
    MixReport,
    val_name,
)
from casebits_dagster.records.mix_latest import MixLatest
from casebits_dagster.records.pins import Generation

_TERMS = (
    "citeAs column conformsTo data dataType equivalentProperty examples extract field fileObject fileProperty fileSet "
    "format includes isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace "
    "samplingRate separator source subField transform"
)
# The context that the specification prints, which readers compare with.
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{term: f"cr:{term}" for term in _TERMS.split()},
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}
_BINARY, _JSON, _LINES, _TEXT = "application/octet-stream", "application/json", "application/jsonlines", "text/plain"
_FIELDS = {
    "id": ("sc:Text", "the first half of the SHA-256 of the document's text, 32 hex digits"),
    "split": ("sc:Text", "train or validation"),
    "cluster": ("sc:Integer", "the source's cluster of the document; null where it has none"),
    "index": ("sc:Integer", "its number in its region"),
    "source_position": ("sc:Integer", "row of the source file, or byte at which its line begins"),
    "token_offset": ("sc:Integer", "where its ids begin in its region; they end where those of the next one begin"),
    "byte_offset": ("sc:Integer", "where its text begins in the text of its region"),
}


def frontier_croissant(generation: Generation, manifest: Manifest, latest: Latest) -> bytes:
    """Return croissant.json of a frontier: manifest, gates, codec, the files of its regions, and their documents."""
    source, where = generation.source.pin, latest.manifest
    files = [_pointed("manifest", where)]
    if latest.gates:
        files.append(_file("gates", latest.gates.path, _JSON, latest.gates.sha256))
    files += [_file(f"codec/{f.name}", f"codec/{f.name}", _kind(f.name), f.sha256, f.bytes) for f in manifest.codec]
    names = (*ARRAY_NAMES[generation.pins.codec.format].dtypes, DOCUMENTS, RECEIPT, ADMISSION)
    regions = prefix_globs(manifest.count)
    files += [_file_set(name, [f"regions/{region}/{name}" for region in regions]) for name in names]
    description = (
        f"Documents of {source.title}, filtered and encoded: generation {generation.name}, version {latest.version} of "
        f"its frontier, status {latest.status}. README.md has the terms and limits, ATTRIBUTION.md the source."
    )
    made_from = f"made from {source.repo} at {source.revision}"
    return _written(generation.name, description, latest, (source.licence_spdx,), made_from, files, [_documents()])


def mix_croissant(report: MixReport, latest: MixLatest, licences: Sequence[str]) -> bytes:
    """Return croissant.json of a mix: its manifest, which has the hash of every file, its shards and its tables."""
    folder = PurePosixPath(latest.manifest.path).parent
    shards = [
        f"{split}_*.{suffix}" for split in (TRAIN, VALIDATION) for suffix in SHARD_SUFFIXES[report.codec].values()
    ]
    names = [*shards, *NEXT_NAMES[report.codec].values(), SEGMENTS, TABLE, val_name(SEGMENTS), val_name(TABLE)]
    files = [_pointed("manifest", latest.manifest), *(_file_set(name, [f"{folder}/{name}"]) for name in names)]
    description = (
        f"Windows of {report.recipe.sequence_length} tokens, strategy {report.recipe.strategy}: mix {latest.mix}, "
        f"version {latest.version}. README.md has the terms and limits, ATTRIBUTION.md the sources."
    )
    sources = ", ".join(f"{used.generation} version {used.manifest_version}" for used in report.sources)
    return _written(latest.mix, description, latest, licences, f"made from {sources}", files, [])


def prefix_globs(count: int) -> list[str]:
    """Return globs that match the ids of regions 0 to count - 1 (count at most 99,999), and no others.

    >>> prefix_globs(2100)
    ['0[0-1][0-9][0-9][0-9]', '020[0-9][0-9]']
    """
    digits = f"{count:05d}"
    return [
        f"{digits[:place]}{'0' if digit == '1' else f'[0-{int(digit) - 1}]'}{'[0-9]' * (4 - place)}"
        for place, digit in enumerate(digits)
        if digit != "0"
    ]


def _written(
    name: str,
    description: str,
    latest: Latest | MixLatest,
    licences: Sequence[str],
    made_from: str,
    files: list[dict[str, Any]],
    record_sets: list[dict[str, Any]],
) -> bytes:
    found = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": description,
        "citeAs": f"{name}, version {latest.version}, manifest sha256 {latest.manifest.sha256}, {made_from}",
        "creator": {"@type": "sc:Organization", "name": "casebits-dagster"},
        "datePublished": latest.published_at,
        "inLanguage": "en",
        "license": [licence_url(spdx) for spdx in licences],
        "url": "./",
        "version": f"{latest.version}.0.0",
        "distribution": files,
        "recordSet": record_sets,
    }
    return (json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode()


def _pointed(name: str, pointer: ManifestPointer) -> dict[str, Any]:
    return _file(name, pointer.path, _kind(pointer.path), pointer.sha256, pointer.bytes)


def _file(name: str, path: str, kind: str, sha256: str, size: int | None = None) -> dict[str, Any]:
    stated = {} if size is None else {"contentSize": f"{size} B"}
    found = {"@type": "cr:FileObject", "@id": name, "name": name, "contentUrl": path, "encodingFormat": kind}
    return {**found, **stated, "sha256": sha256}


def _file_set(name: str, globs: Iterable[str]) -> dict[str, Any]:
    found = {"@type": "cr:FileSet", "@id": name, "name": name, "encodingFormat": _kind(name)}
    return {**found, "includes": list(globs)}


def _kind(name: str) -> str:
    return {".json": _JSON, ".jsonl": _LINES, ".txt": _TEXT}.get(PurePosixPath(name).suffix, _BINARY)


def _documents() -> dict[str, Any]:
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"documents/{name}",
            "name": name,
            "description": meaning,
            "dataType": kind,
            "source": {"fileSet": {"@id": DOCUMENTS}, "extract": {"column": name}},
        }
        for name, (kind, meaning) in _FIELDS.items()
    ]
    return {"@type": "cr:RecordSet", "@id": "documents", "name": "documents", "field": fields}
