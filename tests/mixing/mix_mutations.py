"""What can be done to a mix: one function a mutation, each on the files of a built mix.

`MARKED` and its concatenated `CONTROL` have masks and a separator at the end of each document, `PLAIN` has ids alone
and a separator at the start, `SECOND` excludes the documents of `MARKED`. `SCORED` has domains by case class and score,
`MERGE` is interleaved.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from casebits_dagster.mixing.build import build_mix
from casebits_dagster.mixing.manifest import FolderWriter
from casebits_dagster.records.canonical import canonical
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import KINDS, MANIFEST
from casebits_dagster.records.recipe import Aligned, Bounds, Domain, Interleaved, Lengths, Recipe, Slice
from tests.mixing.corpus import control, corpus, recipe
from tests.mixing.plain_corpus import plain_corpus
from tests.mixing.scored_corpus import METRIC, scored_corpus

LENGTH, PER_SHARD = 64, 32
MARKED, CONTROL, PLAIN, SECOND = "tiny_aligned", "tiny_aligned_control", "plain", "second"
SCORED, MERGE = "by_score", "merge"
IDS, CASES, BIN = "train_000000.ids.u16le", "train_000000.case.u16le", "train_000000.bin"
Change = Callable[[Home, Path], None]


def build_all(home: Home) -> None:
    """Build the mixes that are broken."""
    source = {"tiny": corpus(home)}
    marked = recipe(windows_per_step=8)
    build_mix(marked, source, home)
    build_mix(control(marked), source, home)
    build_mix(recipe(mix=SECOND, windows=20, exclude=(MARKED,), validation_windows=0), source, home)
    domains = (Domain(name="all", generation="other", share=Decimal(1)),)
    floats = recipe(mix=PLAIN, domains=domains, aligned=Aligned(tails="float"))
    build_mix(floats, {"other": plain_corpus(home, "other")}, home)
    build_mix(scored_recipe(), {"scored": scored_corpus(home)}, home)
    build_mix(merge_recipe(), source, home)


def scored_recipe() -> Recipe:
    """Return a recipe of small letters, well and badly scored, and of all other documents."""
    half = {"at_least": Bounds(at_least=Decimal("0.5")), "below": Bounds(at_most=Decimal("0.499999"))}
    lower: dict[str, Any] = {"generation": "scored", "case_classes": ("lower",), "share": Decimal("0.25")}
    others: tuple[Any, ...] = ("capitalised", "upper", "mixed", "no letters")
    domains = (
        *(Domain(name=name, scores={METRIC: bounds}, **lower) for name, bounds in half.items()),
        Domain(name="others", generation="scored", case_classes=others, share=Decimal("0.5")),
    )
    lengths = Lengths(edges=(), profile=(Decimal(1),))
    return recipe(mix=SCORED, windows=20, domains=domains, lengths=lengths, validation_windows=0)


def merge_recipe() -> Recipe:
    parts = (
        Slice(name="zero", generation="tiny", clusters=(0,)),
        Slice(name="others", generation="tiny", clusters=(1, 2)),
    )
    merge = Interleaved(chunk_tokens=50, sources=parts)
    return recipe(mix=MERGE, strategy="interleaved", selection=None, aligned=None, interleaved=merge)


def seal(folder: Path) -> None:
    """Write MANIFEST.txt anew over the files as they are."""
    (folder / MANIFEST).unlink(missing_ok=True)
    writer = FolderWriter(folder)
    for path in sorted(folder.iterdir()):
        writer.put(path.name, path.read_bytes())
    writer.finish()


# --- tools --------------------------------------------------------------------------------------------------------


def tokens(change: Callable[[NDArray[Any]], Any], *names: str) -> Change:
    """Change token files; `change` works in place or returns the new tokens."""

    def mutate(home: Home, folder: Path) -> None:
        for name in names:
            content = np.fromfile(folder / name, "<u2")
            changed = change(content)
            (content if changed is None else changed).astype("<u2").tofile(folder / name)

    return mutate


def table(name: str, change: Callable[[NDArray[Any]], Any]) -> Change:
    """Change a `.npy` table in place, or to what `change` returns."""

    def mutate(home: Home, folder: Path) -> None:
        rows = np.load(folder / name)
        changed = change(rows)
        np.save(folder / name, rows if changed is None else changed)

    return mutate


def report(change: Callable[[Any], Any]) -> Change:
    def mutate(home: Home, folder: Path) -> None:
        path = folder / "mix_report.json"
        value = json.loads(path.read_bytes())
        change(value)
        path.write_bytes(canonical(value))

    return mutate


def number(*path: str | int) -> Change:
    """Raise a number of the report by 1, or move a share."""

    def change(value: Any) -> None:
        for key in path[:-1]:
            value = value[key]
        old = value[path[-1]]
        value[path[-1]] = old + 1 if isinstance(old, int) else f"{Decimal(old) + Decimal('0.000100'):.6f}"

    return report(change)


def segments(folder: Path) -> NDArray[Any]:
    rows: NDArray[Any] = np.load(folder / "segments.npy")
    return rows


def begin_of(row: Any) -> int:
    return int(row["window"]) * LENGTH + int(row["position"])


def of_kind(folder: Path, kind: str, least: int = 2) -> Any:
    """Return the first run of a kind in shard 0 with that many tokens."""
    return next(
        row
        for row in segments(folder)
        if KINDS[row["kind"]] == kind and row["window"] < PER_SHARD and row["length"] >= least
    )


def neighbours(rows: NDArray[Any]) -> int:
    """Return the first of two whole documents that stand side by side in a window of shard 0 and differ in length."""
    return next(
        k
        for k in range(len(rows) - 1)
        if [KINDS[kind] for kind in rows["kind"][k : k + 2]] == ["whole", "whole"]
        and rows["window"][k] == rows["window"][k + 1] < PER_SHARD
        and rows["length"][k] != rows["length"][k + 1]
        and rows["length"][k] > 2
    )


# --- token files --------------------------------------------------------------------------------------------------


def shuffle_chunk(name: str) -> Change:
    def mutate(home: Home, folder: Path) -> None:
        begin = begin_of(of_kind(folder, "chunk"))
        draw = np.random.default_rng(0)
        tokens(lambda ids: draw.shuffle(ids[begin : begin + LENGTH]), name)(home, folder)

    return mutate


def shuffle_all(home: Home, folder: Path) -> None:
    draw = np.random.default_rng(0)
    tokens(lambda ids: draw.shuffle(ids), IDS)(home, folder)


def lose_separator(name: str, at: str) -> Change:
    def mutate(home: Home, folder: Path) -> None:
        row = of_kind(folder, "whole")
        place = begin_of(row) + (int(row["length"]) - 1 if at == "end" else 0)
        tokens(lambda ids: ids.__setitem__(place, 7), name)(home, folder)

    return mutate


def overwrite_inserted(home: Home, folder: Path) -> None:
    row = next(row for row in segments(folder) if row["inserted"] and row["window"] < PER_SHARD)
    tokens(lambda ids: ids.__setitem__(begin_of(row), 7), BIN)(home, folder)


def swap_segments(home: Home, folder: Path) -> None:
    rows = segments(folder)
    first = neighbours(rows)
    begin, middle, end = (begin_of(rows[first]), begin_of(rows[first + 1]), 0)
    end = middle + int(rows["length"][first + 1])
    tokens(lambda t: np.concatenate([t[:begin], t[middle:end], t[begin:middle], t[end:]]), IDS, CASES)(home, folder)


def swap_windows(content: NDArray[Any]) -> None:
    content[: 2 * LENGTH] = np.roll(content[: 2 * LENGTH], LENGTH)


def swap_shards(home: Home, folder: Path) -> None:
    for stream in ("ids", "case"):
        names = [folder / f"train_00000{shard}.{stream}.u16le" for shard in (0, 1)]
        first, second = (name.read_bytes() for name in names)
        names[0].write_bytes(second)
        names[1].write_bytes(first)


def rename_shard(home: Home, folder: Path) -> None:
    (folder / CASES).rename(folder / CASES.replace("000000", "000009"))


# --- tables -------------------------------------------------------------------------------------------------------


def cut_document(home: Home, folder: Path) -> None:
    """Take the last token of a document; its neighbour in the window begins with a separator in that place."""

    def cut(rows: NDArray[Any]) -> None:
        first = neighbours(rows)
        rows["length"][first] -= 1
        rows["position"][first + 1] -= 1
        rows["length"][first + 1] += 1
        rows["inserted"][first + 1] = 1

    table("segments.npy", cut)(home, folder)


def lengthen_document(rows: NDArray[Any]) -> None:
    first = neighbours(rows)
    rows["length"][first] -= 1
    rows["position"][first + 1] -= 1
    rows["length"][first + 1] += 1


def drop_last_run(home: Home, folder: Path) -> None:
    table("segments.npy", lambda rows: rows[:-1])(home, folder)
    report(lambda value: value["train"].__setitem__("segments", value["train"]["segments"] - 1))(home, folder)


def skip_a_chunk(rows: NDArray[Any]) -> None:
    rows["document_start"][np.flatnonzero(rows["document_start"])[0]] += LENGTH


def other_kind(rows: NDArray[Any]) -> None:
    rows["kind"][np.flatnonzero(rows["kind"] == 0)[0]] = 1


def next_window(rows: NDArray[Any]) -> None:
    rows["window"] += 1


def validation_in_train(home: Home, folder: Path) -> None:
    held = np.load(folder / "val_documents.npy")

    def put(rows: NDArray[Any]) -> None:
        for name in ("id", "generation", "region", "index", "tokens"):
            rows[name][0] = held[name][0]

    table("documents.npy", put)(home, folder)


def train_in_validation(home: Home, folder: Path) -> None:
    train = np.load(folder / "documents.npy")
    table("val_documents.npy", lambda rows: rows.__setitem__(0, train[0]))(home, folder)


def lose_window(*adapted: str) -> Change:
    """Drop the documents that fill a window, and the window, from every file, and adapt that much of the report."""

    def mutate(home: Home, folder: Path) -> None:
        rows, documents = segments(folder), np.load(folder / "documents.npy")
        window = min(set(range(PER_SHARD)) - set(rows["window"][rows["kind"] != 0].tolist()))
        lost = np.flatnonzero(rows["window"] == window)
        gone = rows["document"][lost]
        _drop_window(folder, rows, documents, lost)

        def adapt(value: Any) -> None:
            for key, count in (
                ("documents", len(lost)),
                ("segments", len(lost)),
                ("windows", 1),
                ("file_tokens", LENGTH),
            ):
                value["train"][key] -= count
            value["conservation"]["window_tokens"] -= LENGTH
            if "conservation" in adapted:
                value["conservation"]["selected_tokens"] -= LENGTH
            for row in documents[gone] if "cells" in adapted else ():
                cell = value["selection"]["cells"][int(row["domain"]) * 3 + int(row["bucket"])]
                cell["selected_tokens"] -= int(row["tokens"])

        report(adapt)(home, folder)

    return mutate


def _drop_window(folder: Path, rows: NDArray[Any], documents: NDArray[Any], lost: NDArray[Any]) -> None:
    window, gone = int(rows["window"][lost[0]]), rows["document"][lost]
    for stream in ("ids", "case"):
        paths = sorted(folder.glob(f"train_*.{stream}.u16le"))
        parts = [np.fromfile(path, "<u2") for path in paths]
        whole = np.concatenate([*(part[:-1] for part in parts[:-1]), parts[-1]])
        whole = np.delete(whole, np.s_[window * LENGTH : (window + 1) * LENGTH])
        for shard, path in enumerate(paths):
            whole[shard * PER_SHARD * LENGTH : (shard + 1) * PER_SHARD * LENGTH + 1].tofile(path)
        following = np.fromfile(folder / f"next.{stream}.u16le", "<u2")
        np.delete(following, window).tofile(folder / f"next.{stream}.u16le")
    kept = np.ones(len(documents), bool)
    kept[gone] = False
    rows = np.delete(rows, lost)
    rows["window"][lost[0] :] -= 1
    rows["document"] = (np.cumsum(kept) - 1)[rows["document"]]
    np.save(folder / "segments.npy", rows)
    np.save(folder / "documents.npy", documents[kept])
    names = ("id", "generation", "region", "index", "tokens")
    arrays: dict[str, Any] = {name: documents[kept][name] for name in names}
    np.savez(folder / "selected.npz", **arrays)


def change_selected(home: Home, folder: Path) -> None:
    with np.load(folder / "selected.npz") as found:
        arrays = dict(found)
    arrays["tokens"][0] += 1
    np.savez(folder / "selected.npz", **arrays)


def exclude_itself(home: Home, folder: Path) -> None:
    earlier = home.mix(MARKED)
    shutil.copy(folder / "selected.npz", earlier / "selected.npz")
    seal(earlier)
    digest = sha256((earlier / MANIFEST).read_bytes())
    report(lambda value: value["mixes"][0].__setitem__("manifest_sha256", digest))(home, folder)


def withdrawn(held: bool) -> Change:
    """Let the report say that a document was withdrawn: one that the mix holds, or one that no source has."""

    def mutate(home: Home, folder: Path) -> None:
        document = np.load(folder / "val_documents.npy")["id"][0].tobytes().hex() if held else "00" * 16
        pin = {"name": "letter", "sha256": "ab" * 32}
        left_out = {"withdrawals": [pin], "documents": 1, "ids": [document]}
        report(lambda value: value.__setitem__("withdrawn", left_out))(home, folder)

    return mutate


def other_domain(domain: int, wrong: int) -> Change:
    """Put the first document of a domain into another one."""
    return table("documents.npy", lambda rows: rows["domain"].__setitem__(np.argmax(rows["domain"] == domain), wrong))


def rebuilt(made: Callable[[], Recipe], change: Callable[[NDArray[Any]], NDArray[Any]]) -> Change:
    """Build the mix again, soundly, out of other index rows than the frontier has."""

    def mutate(home: Home, folder: Path) -> None:
        shutil.rmtree(folder)
        with tempfile.TemporaryDirectory() as elsewhere:
            source = corpus(Home(Path(elsewhere)))
        other = replace(source, documents=2 * source.documents, rows=lambda number: change(source.rows(number)))
        build_mix(made(), {"tiny": other}, home)

    return mutate


def hide(rows: NDArray[Any]) -> NDArray[Any]:
    """Leave out the first train document of every region."""
    return np.delete(rows, np.flatnonzero(rows["split"] == 0)[:1])


def repeat(rows: NDArray[Any]) -> NDArray[Any]:
    return np.insert(rows, 0, rows[:1]) if len(rows) else rows


# --- the manifest and the sources ---------------------------------------------------------------------------------


def forget_a_file(home: Home, folder: Path) -> None:
    seal(folder)
    text = (folder / MANIFEST).read_text()
    line = next(line for line in text.splitlines() if line.endswith("  next.ids.u16le"))
    count, size = re.findall(r"# end (\d+) (\d+)", text)[0]
    end = f"# end {int(count) - 1} {int(size) - int(line.split('  ')[1])}"
    (folder / MANIFEST).write_text(re.sub(r"# end .*", end, text.replace(f"{line}\n", "")))


def forget_a_line(home: Home, folder: Path) -> None:
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(re.sub(r".*  next\.ids\.u16le\n", "", text))


def other_readme(home: Home, folder: Path) -> None:
    (folder / "README.md").write_bytes((folder / "README.md").read_bytes().swapcase())


def extra_file(home: Home, folder: Path) -> None:
    (folder / "notes.txt").write_text("x")


def foreign_frontier(value: Any) -> None:
    value["sources"][0]["manifest_sha256"] = "0" * 64


def change_region(home: Home, folder: Path) -> None:
    path = home.generation("tiny").region(0) / "casebits_mixture.ids.u16le"
    tokens(lambda ids: ids.__setitem__(0, ids[0] ^ 1), path.name)(home, path.parent)


def withdraw_admission(home: Home, folder: Path) -> None:
    (home.generation("tiny").region(0) / "admission.json").unlink()


def roll(content: NDArray[Any]) -> NDArray[Any]:
    return np.roll(content, 1)


def first_up(content: NDArray[Any]) -> None:
    content[0] ^= 1
