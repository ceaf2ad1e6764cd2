"""One fault a test: break one thing in a built mix, seal the folder again so that every hash agrees, see that check."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from casebits_dagster.mixing import verify
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.mixing.manifest import FolderWriter
from casebits_dagster.mixing.verify import verify_mix
from casebits_dagster.records.canonical import canonical
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import KINDS, MANIFEST
from casebits_dagster.records.recipe import Aligned
from tests.mixing.corpus import control, corpus, recipe

LENGTH = 64


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("built") / "home")
    source = {"tiny": corpus(home)}
    build_mix(recipe(windows=60), source, home)
    build_mix(control(recipe(windows=60)), source, home)
    build_mix(recipe(mix="second", windows=20, exclude=("tiny_aligned",), validation_windows=0), source, home)
    build_mix(recipe(mix="floats", windows=60, aligned=Aligned(tails="float")), source, home)
    return home


@pytest.fixture
def broken(built: Home, tmp_path: Path) -> Home:
    """A copy of the home, to break."""
    shutil.copytree(built.root, tmp_path / "copy")
    return Home(tmp_path / "copy")


def test_the_verifier_imports_records_and_numpy_only() -> None:
    found = set()
    for path in sorted(Path(verify.__file__).parent.glob("verify*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                found.add(str(node.module))
    ours = {name for name in found if name.startswith("casebits_dagster")}
    assert {name for name in ours if ".records." not in name} == {
        "casebits_dagster.mixing",
        "casebits_dagster.mixing.verify_sources",
        "casebits_dagster.mixing.verify_tables",
    }


def seal(folder: Path) -> None:
    """Write MANIFEST.txt anew over the files as they are."""
    (folder / MANIFEST).unlink()
    writer = FolderWriter(folder)
    for path in sorted(folder.iterdir()):
        writer.put(path.name, path.read_bytes())
    writer.finish()


def refusal(home: Home, mix: str = "tiny_aligned", *, sealed: bool = True) -> tuple[str, str]:
    folder = home.mix(mix)
    if sealed:
        seal(folder)
    with pytest.raises(CasebitsError) as caught:
        verify_mix(folder, home)
    return caught.value.code, caught.value.where


def tokens(home: Home, name: str, change: Callable[[NDArray[Any]], Any], mix: str = "tiny_aligned") -> None:
    """Change a token file; `change` works in place or returns the new tokens."""
    path = home.mix(mix) / name
    content = np.fromfile(path, "<u2")
    changed = change(content)
    (content if changed is None else changed).astype("<u2").tofile(path)


def table(home: Home, name: str, change: Callable[[NDArray[Any]], Any], mix: str = "tiny_aligned") -> None:
    """Change a `.npy` table in place, or to what `change` returns."""
    path = home.mix(mix) / name
    rows = np.load(path)
    changed = change(rows)
    np.save(path, rows if changed is None else changed)


def report(home: Home, change: Callable[[Any], Any], mix: str = "tiny_aligned") -> None:
    path = home.mix(mix) / "mix_report.json"
    value = json.loads(path.read_bytes())
    change(value)
    path.write_bytes(canonical(value))


def segments(home: Home, mix: str = "tiny_aligned") -> NDArray[Any]:
    rows: NDArray[Any] = np.load(home.mix(mix) / "segments.npy")
    return rows


@pytest.mark.parametrize("mix", ["tiny_aligned", "tiny_aligned_control", "second", "floats"])
def test_sound_mixes_verify_and_say_what_was_examined(built: Home, mix: str) -> None:
    verified = verify_mix(built.mix(mix), built)
    examined = {check.id: check.examined for check in verified.checks}
    validation = verified.report.validation.file_tokens
    train = verified.report.train.windows * LENGTH + verified.report.conservation.rest_tokens
    assert examined["MIX_TOKENS"] == examined["MIX_CASES"] == train + validation
    assert examined["FILE_HASH"] == len(list(built.mix(mix).iterdir())) - 1


def test_ids_shuffled_inside_a_chunk(broken: Home) -> None:
    def shuffle(ids: NDArray[Any]) -> None:
        np.random.default_rng(0).shuffle(ids[5 * LENGTH : 6 * LENGTH])

    tokens(broken, "train_000001.ids.u16le", shuffle)
    code, where = refusal(broken)
    # A shuffle may move a separator first.
    assert code in ("MIX_TOKENS", "MIX_SEPARATOR")
    assert where.startswith("train_000001.ids.u16le: window 37 ")


def test_two_ids_swapped(broken: Home) -> None:
    row = next(r for r in segments(broken) if KINDS[r["kind"]] == "chunk" and r["window"] < 32)
    at = int(row["window"]) * LENGTH

    def swap(ids: NDArray[Any]) -> None:
        ids[[at, at + 1]] = ids[[at + 1, at]] if ids[at] != ids[at + 1] else ids[[at, at]] + 1

    tokens(broken, "train_000000.ids.u16le", swap)
    document = row["document"]
    assert refusal(broken) == (
        "MIX_TOKENS",
        f"train_000000.ids.u16le: window {row['window']} position 0, document {document}",
    )


def test_windows_off_by_one(broken: Home) -> None:
    for stream in ("ids", "case"):
        tokens(broken, f"train_000000.{stream}.u16le", lambda content: np.append(content[1:], 0))
    assert refusal(broken)[0] in ("MIX_TOKENS", "MIX_SEPARATOR")


def test_the_segment_table_off_by_one_window(broken: Home) -> None:
    table(broken, "segments.npy", lambda rows: rows["window"].__setitem__(slice(None), rows["window"] + 1))
    assert refusal(broken) == ("MIX_SEGMENTS", "segments.npy[0]")


def test_the_case_stream_shifted_against_ids(broken: Home) -> None:
    tokens(broken, "train_000000.case.u16le", lambda cases: np.roll(cases, 1))
    code, where = refusal(broken)
    assert code in ("MIX_CASES", "MIX_SEPARATOR")
    assert where.startswith("train_000000.case.u16le: window 0 ")


def test_a_case_mask_changed(broken: Home) -> None:
    tokens(broken, "val_000000.case.u16le", lambda cases: cases.__setitem__(0, cases[0] ^ 1))
    assert refusal(broken)[0] in ("MIX_CASES", "MIX_SEPARATOR")


def _cut_first(rows: NDArray[Any]) -> None:
    """Shorten a whole document by one token and let its neighbour in the window begin a token early."""
    two = next(k for k in range(len(rows) - 1) if _are(rows[k : k + 2], "whole", "whole") and rows[k]["length"] > 2)
    rows["length"][two] -= 1
    rows["position"][two + 1] -= 1
    rows["length"][two + 1] += 1


def _are(rows: NDArray[Any], *kinds: str) -> bool:
    return [KINDS[kind] for kind in rows["kind"]] == list(kinds) and len(set(rows["window"].tolist())) == 1


def test_a_document_cut(broken: Home) -> None:
    table(broken, "segments.npy", _cut_first)
    assert refusal(broken)[0] == "MIX_SEGMENTS"


def test_a_cut_that_the_report_does_not_list(broken: Home) -> None:
    def drop_last(rows: NDArray[Any]) -> NDArray[Any]:
        return rows[:-1]

    table(broken, "segments.npy", drop_last, "tiny_aligned_control")
    report(
        broken,
        lambda value: value["train"].__setitem__("segments", value["train"]["segments"] - 1),
        "tiny_aligned_control",
    )
    code, where = refusal(broken, "tiny_aligned_control")
    assert (code, where.startswith("documents.npy[")) == ("MIX_CUT", True)


def test_a_validation_document_in_train(broken: Home) -> None:
    validation = np.load(broken.mix("tiny_aligned") / "val_documents.npy")

    def put(rows: NDArray[Any]) -> None:
        for name in ("id", "generation", "region", "index", "tokens"):
            rows[name][0] = validation[name][0]

    table(broken, "documents.npy", put)
    assert refusal(broken) == ("MIX_SPLIT", "documents.npy[0]")


def test_a_train_document_in_validation(broken: Home) -> None:
    train = np.load(broken.mix("tiny_aligned") / "documents.npy")
    table(broken, "val_documents.npy", lambda rows: rows.__setitem__(0, train[0]))
    assert refusal(broken) == ("MIX_SPLIT", "val_documents.npy[0]")


def test_a_separator_missing(broken: Home) -> None:
    row = next(r for r in segments(broken) if KINDS[r["kind"]] == "whole" and r["window"] < 32)
    at = int(row["window"]) * LENGTH + int(row["position"]) + int(row["length"]) - 1
    tokens(broken, "train_000000.ids.u16le", lambda ids: ids.__setitem__(at, 7))
    code, where = refusal(broken)
    assert code == "MIX_SEPARATOR"
    assert where == f"train_000000.ids.u16le: window {row['window']} position {at % LENGTH}, document {row['document']}"


@pytest.mark.parametrize("shard", [0, 1])
def test_the_extra_token_of_a_shard_changed(broken: Home, shard: int) -> None:
    tokens(broken, f"train_00000{shard}.ids.u16le", lambda ids: ids.__setitem__(-1, 9_999))
    code, where = refusal(broken)
    assert code == "MIX_SEPARATOR"
    assert where.startswith(f"train_00000{shard}.ids.u16le at ")


def test_two_segments_swapped(broken: Home) -> None:
    rows = segments(broken)
    two = next(k for k in range(len(rows) - 1) if _are(rows[k : k + 2], "whole", "whole") and rows[k]["window"] < 32)
    begin = int(rows[two]["window"]) * LENGTH + int(rows[two]["position"])
    middle, end = begin + int(rows[two]["length"]), begin + int(rows["length"][two : two + 2].sum())
    for stream in ("ids", "case"):
        tokens(
            broken,
            f"train_000000.{stream}.u16le",
            lambda t: np.concatenate([t[:begin], t[middle:end], t[begin:middle], t[end:]]),
        )
    code, where = refusal(broken)
    assert code in ("MIX_TOKENS", "MIX_SEPARATOR")
    assert f"window {rows[two]['window']} " in where


def test_a_shard_truncated(broken: Home) -> None:
    tokens(broken, "train_000001.ids.u16le", lambda ids: ids[:-5])
    assert refusal(broken, sealed=False)[0] == "FILE_SIZE"
    assert refusal(broken) == ("MIX_SHARD", "train_000001.ids.u16le")


def test_a_shard_missing_from_the_numbering(broken: Home) -> None:
    folder = broken.mix("tiny_aligned")
    (folder / "train_000000.case.u16le").rename(folder / "train_000009.case.u16le")
    assert refusal(broken)[0] == "MIX_SHARD"


def test_next_tokens_changed_or_missing(broken: Home) -> None:
    tokens(broken, "next.ids.u16le", lambda ids: ids.__setitem__(3, ids[3] + 1))
    assert refusal(broken) == ("MIX_NEXT", "window 3")
    tokens(broken, "next.ids.u16le", lambda ids: ids[:-1])
    assert refusal(broken) == ("MIX_NEXT", "next.ids.u16le")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda rows: rows["generation"].__setitem__(0, 5), "MIX_DOCUMENT"),
        (lambda rows: rows["region"].__setitem__(0, 3), "REGION_MISSING"),
        (lambda rows: rows["region"].__setitem__(0, 1), "MIX_DOCUMENT"),
        (lambda rows: rows["id"].__setitem__(0, np.void(b"x" * 16)), "MIX_DOCUMENT"),
        (lambda rows: rows["tokens"].__setitem__(0, rows["tokens"][0] + 1), "MIX_DOCUMENT"),
        (lambda rows: rows["domain"].__setitem__(0, 1 - rows["domain"][0]), "MIX_DOMAIN"),
        (lambda rows: rows["bucket"].__setitem__(0, 2 - rows["bucket"][0]), "MIX_DOMAIN"),
        (lambda rows: rows.__setitem__(1, rows[0]), "MIX_EPOCHS"),
        (lambda rows: rows[["id", "region"]], "MIX_TABLE"),
        (lambda rows: rows[:-1], "MIX_TABLE"),
    ],
)
def test_document_rows_changed(broken: Home, change: Callable[[NDArray[Any]], Any], code: str) -> None:
    if "bucket" in (change.__code__.co_consts or ()):
        rows = np.load(broken.mix("tiny_aligned") / "documents.npy")
        assert rows["bucket"][0] != 1
    table(broken, "documents.npy", change)
    assert refusal(broken)[0] == code


def test_documents_counted_in_another_order_than_their_runs(broken: Home) -> None:
    table(broken, "segments.npy", lambda rows: rows["document"].__setitem__(0, len(rows) * 9))
    assert refusal(broken) == ("MIX_SEGMENTS", "segments.npy")


def test_a_run_beyond_its_document(broken: Home) -> None:
    def swap(rows: NDArray[Any]) -> None:
        whole = np.flatnonzero(rows["kind"] == KINDS.index("whole"))
        first = whole[np.argmin(rows["length"][whole])]
        last = whole[np.argmax(rows["length"][whole])]
        rows["document"][[first, last]] = rows["document"][[last, first]]

    table(broken, "segments.npy", swap)
    code, where = refusal(broken)
    assert (code, where.startswith("segments.npy: document ")) == ("MIX_SEGMENTS", True)


def test_runs_of_a_document_that_do_not_follow_one_another(broken: Home) -> None:
    def skip(rows: NDArray[Any]) -> None:
        rows["document_start"][np.flatnonzero(rows["document_start"])[0]] += LENGTH

    table(broken, "segments.npy", skip)
    code, where = refusal(broken)
    assert code == "MIX_SEGMENTS"
    assert re.fullmatch(r"segments\.npy\[\d+\]: document \d+", where)


def test_an_inserted_separator_changed(broken: Home) -> None:
    source = replace(corpus(Home(broken.root / "other")), separator_position="start")
    changed = recipe(mix="starts", windows=60, aligned=Aligned(tails="float"))
    assert verify_mix(
        build_mix(changed, {"tiny": source}, broken).folder, broken
    ).report.conservation.inserted_separators
    row = next(r for r in segments(broken, "starts") if r["inserted"] and r["window"] < 32)
    at = int(row["window"]) * LENGTH + int(row["position"])
    tokens(broken, "train_000000.ids.u16le", lambda ids: ids.__setitem__(at, 5), "starts")
    code, where = refusal(broken, "starts")
    assert (code, f"window {row['window']} position {row['position']}," in where) == ("MIX_SEPARATOR", True)


def test_windows_that_are_not_filled(broken: Home) -> None:
    def longer(value: Any) -> None:
        value["train"]["windows"] += 1

    report(broken, longer)
    assert refusal(broken) == ("MIX_SEGMENTS", "segments.npy")


def test_a_run_that_is_not_aligned(broken: Home) -> None:
    table(broken, "segments.npy", lambda rows: rows["kind"].__setitem__(0, (rows["kind"][0] + 1) % 4))
    assert refusal(broken) == ("MIX_ALIGNMENT", "segments.npy[0]")


@pytest.mark.parametrize(
    ("change", "code", "where"),
    [
        (
            lambda r: r["conservation"].__setitem__("selected_tokens", 1),
            "MIX_CONSERVATION",
            "conservation.selected_tokens",
        ),
        (lambda r: r["context"][1].__setitem__("tokens", 1), "MIX_CONTEXT", "context at 32"),
        (lambda r: r["context"][1].__setitem__("distance", 1), "MIX_CONTEXT", "context.distance"),
        (lambda r: r["selection"]["cells"][2].__setitem__("achieved_tokens", 1), "MIX_TARGETS", "selection.cells[2]"),
        (lambda r: r["selection"]["domains"][1].__setitem__("achieved_tokens", 1), "MIX_TARGETS", "selection: b"),
        (lambda r: r["tails"].__setitem__("floated", 999), "MIX_TAILS", "tails"),
        (
            lambda r: r["loss_reference"].__setitem__("unigram_nats", "1.000000"),
            "MIX_LOSS_REFERENCE",
            "loss_reference.unigram_nats",
        ),
        (lambda r: r["recipe"].__setitem__("seed", "x"), "MIX_RECIPE", "recipe.json"),
        (lambda r: r.__setitem__("unknown", 1), "JSON_INVALID", "mix_report.json: unknown"),
        (lambda r: r.__setitem__("schema", "casebits/mix/2"), "SCHEMA_UNKNOWN", "mix_report.json: schema"),
    ],
)
def test_numbers_of_the_report_changed(broken: Home, change: Callable[[Any], Any], code: str, where: str) -> None:
    report(broken, change)
    assert refusal(broken) == (code, where)


def test_a_sum_that_does_not_hold(broken: Home) -> None:
    def more_returned(value: Any) -> None:
        value["returned"].append({"generation": "tiny", "id": "00", "index": 0, "region": 0, "tokens": 5})
        value["conservation"]["returned_tokens"] += 5

    report(broken, more_returned)
    assert refusal(broken) == ("MIX_CONSERVATION", "conservation.selected_tokens")


def test_selected_keys_changed(broken: Home) -> None:
    path = broken.mix("tiny_aligned") / "selected.npz"
    with np.load(path) as found:
        arrays = dict(found)
    arrays["tokens"][0] += 1
    np.savez(path, **arrays)
    assert refusal(broken) == ("MIX_SELECTED", "selected.npz")


@pytest.mark.parametrize("name", ["segments.npy", "val_documents.npy", "selected.npz"])
def test_tables_that_cannot_be_read(broken: Home, name: str) -> None:
    (broken.mix("tiny_aligned") / name).write_bytes(b"PK\x03\x04 or not")
    assert refusal(broken) == ("MIX_TABLE", name)


def test_selected_keys_missing(broken: Home) -> None:
    np.savez(broken.mix("tiny_aligned") / "selected.npz", id=np.zeros(1, "V16"))
    assert refusal(broken) == ("MIX_SELECTED", "selected.npz")


@pytest.mark.parametrize("name", ["segments.npy", "next.case.u16le", "README.md", "recipe.json"])
def test_a_file_that_the_format_requires(broken: Home, name: str) -> None:
    path = broken.mix("tiny_aligned") / name
    path.unlink()
    assert refusal(broken) == ("FILE_MISSING", str(path))


def test_a_control_with_other_documents_or_of_another_mix(broken: Home) -> None:
    table(broken, "documents.npy", lambda rows: rows["copy"].__setitem__(0, 1), "tiny_aligned_control")
    assert refusal(broken, "tiny_aligned_control") == ("MIX_EARLIER", "documents.npy")
    (broken.mix("tiny_aligned") / MANIFEST).unlink()
    assert refusal(broken, "tiny_aligned_control")[0] == "MIX_EARLIER"


def test_an_excluded_document(broken: Home) -> None:
    used, other = broken.mix("second") / "selected.npz", broken.mix("tiny_aligned") / "selected.npz"
    shutil.copy(used, other)
    seal(broken.mix("tiny_aligned"))
    digest = sha256((broken.mix("tiny_aligned") / MANIFEST).read_bytes())
    report(broken, lambda value: value["mixes"][0].__setitem__("manifest_sha256", digest), "second")
    assert refusal(broken, "second")[0] == "MIX_EXCLUDED"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.removeprefix("# casebits-mix-manifest/1\n"),
        lambda text: re.sub(r"# end .*\n", "", text),
        lambda text: re.sub(r"# end \d+", "# end 1", text),
        lambda text: text.replace("  README.md", "  ../README.md"),
        lambda text: text.replace("  README.md", "  readme.MD\n" + "0" * 64 + "  1  README.md"),
        lambda text: "\n".join([text.split("\n")[0], *reversed(text.split("\n")[1:-2]), *text.split("\n")[-2:]]),
    ],
)
def test_a_manifest_that_is_not_whole(broken: Home, change: Callable[[str], str]) -> None:
    path = broken.mix("tiny_aligned") / MANIFEST
    path.write_text(change(path.read_text()))
    assert refusal(broken, sealed=False) == ("MIX_MANIFEST", str(path))


def test_files_changed_missing_or_extra(broken: Home) -> None:
    folder = broken.mix("tiny_aligned")
    (folder / "notes.txt").write_text("x")
    assert refusal(broken, sealed=False) == ("FILE_EXTRA", str(folder / "notes.txt"))
    (folder / "notes.txt").unlink()
    readme = (folder / "README.md").read_bytes()
    (folder / "README.md").write_bytes(readme.replace(b"a", b"b"))
    assert refusal(broken, sealed=False) == ("FILE_HASH", str(folder / "README.md"))
    (folder / "README.md").unlink()
    assert refusal(broken, sealed=False) == ("FILE_MISSING", str(folder / "README.md"))
    (folder / MANIFEST).unlink()
    assert refusal(broken, sealed=False) == ("MANIFEST_MISSING", str(folder / MANIFEST))


def test_a_source_that_is_not_the_pinned_one(broken: Home) -> None:
    folder = broken.generation("tiny")
    ids = folder.region(2) / "casebits_mixture.ids.u16le"
    content = bytearray(ids.read_bytes())
    content[0] ^= 1
    ids.write_bytes(content)
    assert refusal(broken, sealed=False) == ("FILE_HASH", str(ids))
    manifest = folder.manifest(1)
    manifest.write_bytes(manifest.read_bytes().replace(b'"version":1', b'"version":2'))
    assert refusal(broken, sealed=False) == ("MANIFEST_HASH", str(manifest))
    manifest.unlink()
    assert refusal(broken, sealed=False) == ("MANIFEST_MISSING", str(manifest))


def test_a_manifest_without_the_files_of_a_region(broken: Home) -> None:
    manifest = broken.generation("tiny").manifest(1)
    manifest.write_bytes(manifest.read_bytes().replace(b"casebits_mixture.case.u16le", b"casebits_mixture.mask.u16le"))
    digest = sha256(manifest.read_bytes())
    report(broken, lambda value: value["sources"][0].__setitem__("manifest_sha256", digest))
    assert refusal(broken) == ("FILE_MISSING", "regions/00000/casebits_mixture.case.u16le")


def test_a_manifest_of_another_generation(broken: Home) -> None:
    manifest = broken.generation("tiny").manifest(1)
    manifest.write_bytes(manifest.read_bytes().replace(b'"generation":"tiny"', b'"generation":"other"'))
    digest = sha256(manifest.read_bytes())
    report(broken, lambda value: value["sources"][0].__setitem__("manifest_sha256", digest))
    assert refusal(broken) == ("GENERATION_MISMATCH", str(manifest))


def test_a_mix_of_a_region_that_is_not_admitted_is_refused(broken: Home) -> None:
    admission = next(broken.generation("tiny").root.glob("regions/*/admission.json"))
    admission.write_bytes(b"{")
    assert refusal(broken) == ("FILE_SIZE", str(admission))
    admission.unlink()
    assert refusal(broken) == ("FILE_MISSING", str(admission))
