"""Time of a take-down query by the document index, and of an audit of one window.

    python -m benchmarks.audit [--documents 10000000] [--tokens 1000000000] [--folder FOLDER]

The index of made-up documents lies in regions of 71,000, each with the receipt that its stamp names; three ids are
looked for, as `casebits audit --document` does. The peer is a scan of their documents.jsonl, on fewer documents.

The window is one of a mix of so many tokens, repeated from a mix of the sample: shards are sparse files but for the
first, tables are real rows over the sample's documents. What an audit of a window reads does not depend on where it is.
Seconds are of the processor, the least of three runs; files are in the cache of the system.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from casebits_dagster.lineage.audit import audit_window
from casebits_dagster.lineage.locate import as_ids, find_documents
from casebits_dagster.mixing.seeds import splitmix64
from casebits_dagster.records.digests import sha256_file
from casebits_dagster.records.layout import DOCUMENTS, RECEIPT, Home
from casebits_dagster.records.mix import MANIFEST, REPORT, SEGMENTS, TABLE, TRAIN, MixReport, shard_name
from casebits_dagster.records.pins import default_pins_folder, load_generation
from casebits_dagster.records.region import Receipt
from casebits_dagster.regions import index as document_index
from tests.sample import build_sample

REGION = 71_000
FRONTIER = 150_000_000
MIX = "sample_aligned"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--tokens", type=int, default=1_000_000_000)
    parser.add_argument("--folder", type=Path, help="where the files are made (42 bytes a document, 4 a token, sparse)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        sample = Home(Path(folder) / "sample")
        build_sample(sample, default_pins_folder())
        _take_down(sample, Home(Path(folder) / "many"), options.documents)
        _window(sample, options.tokens)


def _least(run: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return min(times)


def _take_down(sample: Home, home: Home, documents: int) -> None:
    template = Receipt.parse((sample.generation("sample").region(0) / RECEIPT).read_bytes(), RECEIPT)
    ids = [_write_region(home, template, number, REGION) for number in range(-(-documents // REGION))]
    wanted = as_ids([ids[0], ids[len(ids) // 2], ids[-1]])
    found = find_documents(home, wanted)
    seconds = _least(lambda: find_documents(home, wanted))
    count = found.searched[0].documents
    print(f"3 ids among {count:,} documents in {len(ids)} regions: {seconds:.2f} s, found {len(found.places)}")
    print(f"  in proportion, {FRONTIER:,} documents: {seconds * FRONTIER / count:.1f} s")
    few = Home(home.root.with_name("few"))
    _write_region(few, template, 0, REGION)
    shutil.rmtree(few.generation("sample").root / "index")
    lines = (json.dumps({"id": f"{number:032x}"}) + "\n" for number in range(REGION))
    (few.generation("sample").region(0) / DOCUMENTS).write_text("".join(lines))
    peer = _least(lambda: find_documents(few, wanted)) * count / REGION
    print(f"  by documents.jsonl (peer), in proportion: {peer:.1f} s, {peer / seconds:.0f} times that")


def _write_region(home: Home, template: Receipt, number: int, count: int) -> str:
    """Write a receipt and an index; return the id of the last document."""
    folder = home.generation("sample")
    named = replace(template, region=replace(template.region, index=number, id=f"{number:05d}"), content_id="").sealed()
    folder.region(number).mkdir(parents=True)
    (folder.region(number) / RECEIPT).write_bytes(named.to_bytes())
    rows = np.zeros(count, document_index.INDEX_DTYPE)
    halves = splitmix64(np.arange(2 * count, dtype=np.uint64) + np.uint64(2 * number * count))
    rows["id"] = halves.view("V16")
    rows["region"], rows["index"] = number, np.arange(count)
    path = folder.index(number)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, rows)
    stamp = f"{document_index._VERSION} {named.content_id} {named.pins.codec.mixture_sha256} {sha256_file(path)}\n"
    path.with_suffix(".stamp").write_text(stamp)
    return str(rows["id"][-1].tobytes().hex())


def _window(home: Home, tokens: int) -> None:
    """Audit a window of the sample, then one of a mix of `tokens` tokens that repeats it."""
    generations = {"sample": load_generation(default_pins_folder(), "sample")}
    small = _least(lambda: audit_window(home, MIX, 5, generations=generations))
    _repeat(home, tokens)
    large = _least(lambda: audit_window(home, "large", 5, generations=generations))
    audit = audit_window(home, "large", 5, generations=generations)
    print(f"one window, slices: {small:.2f} s of the sample's mix, {large:.2f} s of a mix of {tokens:,} tokens")
    print(f"  {audit.windows:,} windows, {len(audit.evidence)} links, proven: {audit.proven}")


def _repeat(home: Home, tokens: int) -> None:
    folder, large = home.mix(MIX), home.mix("large")
    report = MixReport.parse((folder / REPORT).read_bytes(), REPORT)
    length, windows = report.recipe.sequence_length, report.train.windows
    times = -(-tokens // (length * windows))
    shutil.copytree(folder, large)
    segments, documents = np.load(folder / SEGMENTS), np.load(folder / TABLE)
    segments = segments[segments["window"] < windows]
    many, copies = np.tile(segments, times), np.repeat(np.arange(times, dtype="<u4"), len(segments))
    many["window"] += copies * np.uint32(windows)
    many["document"] += copies * np.uint32(len(documents))
    np.save(large / SEGMENTS, many)
    np.save(large / TABLE, np.tile(documents, times))
    files = replace(report.train, windows=windows * times)
    (large / REPORT).write_bytes(replace(report, train=files).to_bytes())
    shards = -(-windows * times // report.recipe.windows_per_shard)
    for shard in range(report.train.shards, shards):
        for stream in ("ids", "cases"):
            with (large / shard_name(TRAIN, shard, stream)).open("wb") as file:
                file.truncate(2 * length * report.recipe.windows_per_shard)
    sizes = [(name, sha256_file(large / name), (large / name).stat().st_size) for name in (REPORT, SEGMENTS, TABLE)]
    lines = [f"{digest}  {size}  {name}" for name, digest, size in sizes]
    (large / MANIFEST).write_text("\n".join(["# casebits-mix-manifest/1", *lines, "# end", ""]))


if __name__ == "__main__":
    main()
