"""One fault a test: break one thing in a built mix, seal the folder again so that every hash agrees, see that check."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from casebits_dagster.mixing import verify, verify_sources
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.mixing.packing.concatenated import in_order
from casebits_dagster.mixing.verify import verify_mix
from casebits_dagster.mixing.verify_classes import case_classes
from casebits_dagster.mixing.verify_sources import Split
from casebits_dagster.mixing.verify_tables import check_interleaved
from casebits_dagster.publication.consume import open_frontier
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import CasebitsError, RecordError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import DOCUMENT_FIELDS, KINDS, MANIFEST, MixReport, SourceUsed, SplitFiles
from casebits_dagster.records.recipe import Aligned, Bounds, Domain, Lengths
from tests.mixing import mix_mutations as mutations
from tests.mixing.corpus import control, corpus, publish, recipe
from tests.mixing.mix_mutations import LENGTH, seal
from tests.mixing.scored_corpus import scored_corpus


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
        "casebits_dagster.mixing.verify_classes",
        "casebits_dagster.mixing.verify_loss",
        "casebits_dagster.mixing.verify_sources",
        "casebits_dagster.mixing.verify_tables",
    }


def refusal(home: Home, mix: str = "tiny_aligned", *, sealed: bool = True) -> tuple[str, str]:
    folder = home.mix(mix)
    if sealed:
        seal(folder)
    with pytest.raises(CasebitsError) as caught:
        verify_mix(folder, home)
    return caught.value.code, caught.value.where


def tokens(home: Home, name: str, change: Callable[[NDArray[Any]], Any], mix: str = "tiny_aligned") -> None:
    mutations.tokens(change, name)(home, home.mix(mix))


def table(home: Home, name: str, change: Callable[[NDArray[Any]], Any], mix: str = "tiny_aligned") -> None:
    mutations.table(name, change)(home, home.mix(mix))


def report(home: Home, change: Callable[[Any], Any], mix: str = "tiny_aligned") -> None:
    mutations.report(change)(home, home.mix(mix))


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


def test_windows_that_are_not_filled(broken: Home) -> None:
    def longer(value: Any) -> None:
        value["train"]["windows"] += 1

    report(broken, longer)
    assert refusal(broken) == ("MIX_SEGMENTS", "segments.npy")


@pytest.mark.parametrize(
    ("change", "code", "where"),
    [
        (lambda r: r["context"][1].__setitem__("distance", 1), "MIX_CONTEXT", "context.distance"),
        (lambda r: r["selection"]["cells"][2].__setitem__("achieved_tokens", 1), "MIX_TARGETS", "selection.cells[2]"),
        (lambda r: r["selection"]["domains"][1].__setitem__("achieved_tokens", 1), "MIX_TARGETS", "selection: b"),
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


def test_domains_are_recounted_by_length_too(home: Home) -> None:
    parts: dict[str, dict[str, Any]] = {
        "short": {"max_tokens": 40},
        "long": {"min_tokens": 41, "epochs_by_length": (1, 1, 2)},
    }
    domains = tuple(Domain(name=n, generation="tiny", share=Decimal("0.5"), **more) for n, more in parts.items())
    lengths = Lengths(edges=(16, 64), profile=(Decimal("0.1"), Decimal("0.4"), Decimal("0.5")))
    made = recipe(windows=20, domains=domains, lengths=lengths, when_infeasible="keep_domains")
    folder = build_mix(made, {"tiny": corpus(home)}, home).folder
    verify_mix(folder, home)
    table(home, "documents.npy", lambda rows: rows["domain"].__setitem__(0, 1 - rows["domain"][0]))
    assert refusal(home) == ("MIX_DOMAIN", "documents.npy[0]")
    table(home, "documents.npy", lambda rows: rows["domain"].__setitem__(0, 7))
    assert refusal(home) == ("MIX_DOMAIN", "documents.npy[0]")


def test_a_merge_keeps_the_order_of_each_source() -> None:
    documents = np.zeros(4, DOCUMENT_FIELDS)
    documents["tokens"], documents["domain"] = 3, [0, 0, 1, 1]

    def merged(order: list[int]) -> Split:
        rows = in_order(documents["tokens"].astype(np.int64), np.array(order), 4).segments
        files = SplitFiles(windows=2, shards=1, documents=4, segments=len(rows), file_tokens=12)
        return Split(
            name="train",
            files=files,
            length=4,
            per_shard=2,
            separator=0,
            codec="plain-1",
            rows=rows,
            documents=documents,
            frontiers=[],
        )

    check_interleaved(merged([0, 2, 1, 3]))
    with pytest.raises(CasebitsError) as caught:
        check_interleaved(merged([1, 2, 0, 3]))
    assert str(caught.value) == "MIX_ORDER segments.npy: document 0: expected a document after 1, read 0"


def test_a_merge_of_texts_that_stand_twice_is_sound(home: Home) -> None:
    source = publish(home, "tiny", [[(5, 0), (6, 1), (7, 2), (5, 100)] * 4, [], [(8, 1), (9, 0), (5, 101)] * 30])
    one = mutations.merge_recipe()
    build_mix(one, {"tiny": source}, home)
    verified = verify_mix(home.mix(one.mix), home)
    examined = {check.id: check.examined for check in verified.checks}
    assert examined["MIX_COMPLETE"] == verified.report.train.documents
    assert examined["MIX_SUPPLY"] == len(source.index)


def test_the_supply_of_repeats_and_epochs_is_recounted(home: Home) -> None:
    source = publish(home, "tiny", [[(5, 0), (6, 1), (7, 2), (5, 100)] * 4, [], [(8, 1), (9, 0), (5, 101)] * 30])
    domains = (
        Domain(name="a", generation="tiny", clusters=(0,), share=Decimal("0.4"), epochs=2),
        Domain(name="b", generation="tiny", clusters=(1, 2), share=Decimal("0.6")),
    )
    one = recipe(windows=2, domains=domains, lengths=Lengths(edges=(), profile=(Decimal(1),)), validation_windows=0)
    build_mix(one, {"tiny": source}, home)
    said = verify_mix(home.mix(one.mix), home).report.selection
    # Clusters of 100 and more repeat the first text: 4 of them in region 0, 30 in region 2.
    assert said.duplicate_documents == 34
    assert said.domains[0].supply_tokens == 2 * sum(
        int(row["tokens"]) for row in _firsts(source.index) if row["cluster"] == 0 and not row["split"]
    )


def _firsts(rows: NDArray[Any]) -> NDArray[Any]:
    return rows[np.sort(np.unique(rows["id"], return_index=True)[1])]


def test_case_classes_are_those_of_the_index(sample_home: Home) -> None:
    frontier = open_frontier(sample_home.root, "sample")
    regions = [frontier.region(number) for number in range(frontier.manifest.count)]
    codec = sample_home.generation("sample").codec
    found = [
        case_classes(one.receipt.pins.codec, codec, {"ids": one.ids, "cases": one.cases}, one.offsets.astype("<i8"))
        for one in regions
    ]
    listed = np.concatenate([frontier.rows(number)["case_class"] for number in range(frontier.manifest.count)])
    assert np.concatenate(found).tolist() == listed.tolist()
    assert len(set(listed.tolist())) > 1


def test_case_classes_need_the_pinned_codec(built_scored: Home) -> None:
    (built_scored.generation("scored").codec / "mixture.npz").write_bytes(b"another")
    with pytest.raises(CasebitsError, match=r"FILE_HASH .*codec/mixture.npz"):
        verify_mix(built_scored.mix(mutations.SCORED), built_scored)


@pytest.fixture
def built_scored(home: Home) -> Home:
    build_mix(mutations.scored_recipe(), {"scored": scored_corpus(home)}, home)
    return home


def test_a_mix_by_score_and_case_class_verifies(built_scored: Home) -> None:
    verified = verify_mix(built_scored.mix(mutations.SCORED), built_scored)
    assert {check.id: check.examined for check in verified.checks}["MIX_SUPPLY"] == 240
    domains = np.load(built_scored.mix(mutations.SCORED) / "documents.npy")["domain"]
    assert set(domains.tolist()) == {0, 1, 2}


def test_a_line_without_the_score_is_told(built_scored: Home) -> None:
    """The manifest is that of the region, so its lines were admitted as they are."""
    frontier = verify_sources.PinnedFrontier(
        *_pinned(built_scored, Domain(name="a", generation="scored", share=Decimal(1), scores={"absent": Bounds()})),
        built_scored,
    )
    with pytest.raises(RecordError, match=r"scored 00000/documents.jsonl: line 0: scores.absent: field is missing"):
        frontier.documents_of(0)


def _pinned(home: Home, domain: Domain) -> tuple[MixReport, SourceUsed]:
    """Return the report of the mix by score, with another domain, and its source."""
    found = MixReport.parse((home.mix(mutations.SCORED) / "mix_report.json").read_bytes(), "mix_report.json")
    return replace(found, recipe=recipe(domains=(domain,))), found.sources[0]
