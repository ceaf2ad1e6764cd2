from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from casebits_dagster.mixing.build import BuiltMix, build_mix
from casebits_dagster.mixing.verify import verify_mix
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import MANIFEST, MixReport
from casebits_dagster.records.recipe import Aligned, Domain, Interleaved, Lengths, Slice
from tests.mixing.corpus import control, corpus, publish, recipe


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def ids(built: BuiltMix) -> set[bytes]:
    with np.load(built.folder / "selected.npz") as selected:
        return set(map(bytes, selected["id"]))


def test_an_aligned_mix_and_its_control_verify(home: Home) -> None:
    source = {"tiny": corpus(home)}
    mix = build_mix(recipe(), source, home)
    other = build_mix(control(recipe()), source, home)
    verified = [verify_mix(built.folder, home) for built in (mix, other)]
    assert [one.manifest_sha256 for one in verified] == [mix.manifest_sha256, other.manifest_sha256]
    assert [one.report for one in verified] == [mix.report, other.report]
    assert mix.report.conservation.holds
    assert ids(mix) == ids(other)
    assert other.report.selection == mix.report.selection
    for aligned, plain in zip(mix.report.context, other.report.context, strict=True):
        assert aligned.share >= plain.share
        assert aligned.bound_tokens == plain.bound_tokens
    val = [{k: v for k, v in contents(one.folder).items() if k.startswith("val_")} for one in (mix, other)]
    assert val[0] == val[1]
    assert len(val[0]) == 4


def test_the_files_are_exactly_those_of_the_format(home: Home) -> None:
    built = build_mix(recipe(), {"tiny": corpus(home)}, home)
    windows, shards = built.report.train.windows, built.report.train.shards
    assert (windows, shards) == (80, 3)
    files = contents(built.folder)
    streams = ("ids.u16le", "case.u16le")
    assert set(files) == {
        *(f"train_{shard:06d}.{stream}" for shard in range(3) for stream in streams),
        *(f"val_000000.{stream}" for stream in streams),
        *(f"next.{stream}" for stream in streams),
        *("segments.npy", "documents.npy", "val_segments.npy", "val_documents.npy", "selected.npz"),
        *("mix_report.json", "recipe.json", "README.md", MANIFEST),
    }
    sizes = [len(files[f"train_{shard:06d}.ids.u16le"]) for shard in range(3)]
    assert sizes == [(32 * 64 + 1) * 2, (32 * 64 + 1) * 2, (16 * 64 + 1) * 2]
    assert len(files["val_000000.ids.u16le"]) == (4 * 64 + 1) * 2
    lines = files[MANIFEST].decode().splitlines()
    assert lines[0] == "# casebits-mix-manifest/1"
    assert lines[1:-1] == sorted(lines[1:-1])
    assert lines[-1] == f"# end {len(files) - 1} {sum(map(len, files.values())) - len(files[MANIFEST])}"


def test_two_builds_are_equal_byte_for_byte_and_a_rerun_changes_nothing(tmp_path: Path) -> None:
    homes = [Home(tmp_path / name) for name in "ab"]
    built = [build_mix(recipe(), {"tiny": corpus(home)}, home) for home in homes]
    assert contents(built[0].folder) == contents(built[1].folder)
    before = {path: path.stat().st_mtime_ns for path in built[0].folder.iterdir()}
    again = build_mix(recipe(), {"tiny": corpus(Home(tmp_path / "c"))}, homes[0])
    assert (built[0].published, again.published, again.report) == (True, False, built[0].report)
    assert {path: path.stat().st_mtime_ns for path in built[0].folder.iterdir()} == before


@pytest.mark.parametrize("per_shard", [1, 7, 1_000])
def test_tokens_do_not_depend_on_the_size_of_shards(home: Home, per_shard: int) -> None:
    source = {"tiny": corpus(home)}

    def tokens(name: str, size: int) -> list[int]:
        built = build_mix(recipe(mix=name, windows_per_shard=size), source, home)
        verify_mix(built.folder, home)
        shards = [np.fromfile(path, "<u2") for path in sorted(built.folder.glob("train_*.ids.u16le"))]
        assert all(int(shard[-1]) == int(after[0]) for shard, after in itertools.pairwise(shards))
        return np.concatenate([*(shard[:-1] for shard in shards), [0]]).tolist()  # type: ignore[no-any-return]

    assert tokens("one", per_shard) == tokens("other", 32)


def test_another_recipe_or_frontier_under_a_published_name_is_refused(home: Home) -> None:
    source = corpus(home)
    build_mix(recipe(), {"tiny": source}, home)
    for code, changed, sources in (
        ("MIX_RECIPE", recipe(seed="other"), {"tiny": source}),
        ("MIX_FRONTIER", recipe(), {"tiny": replace(source, manifest_version=2)}),
    ):
        with pytest.raises(CasebitsError, match="a published mix is never overwritten") as caught:
            build_mix(changed, sources, home)
        assert caught.value.code == code


def test_excluded_mixes_share_no_document(home: Home) -> None:
    source = {"tiny": corpus(home)}
    first = build_mix(recipe(windows=30), source, home)
    second = build_mix(recipe(mix="second", windows=30, exclude=("tiny_aligned",), seed="2"), source, home)
    verify_mix(second.folder, home)
    assert not ids(first) & ids(second)
    assert [(one.mix, one.role) for one in second.report.mixes] == [("tiny_aligned", "exclude")]
    assert second.report.selection.excluded_documents == len(ids(first))


def test_growing_a_mix_keeps_its_documents(home: Home) -> None:
    source = {"tiny": corpus(home, documents=400)}
    small = build_mix(recipe(mix="small", windows=40), source, home)
    large = build_mix(recipe(mix="large", windows=80), source, home)
    assert len(ids(small) - ids(large)) <= 2 * 6


def test_a_length_profile_is_copied_from_an_earlier_mix(home: Home) -> None:
    source = {"tiny": corpus(home)}
    first = build_mix(recipe(), source, home)
    copied = build_mix(recipe(mix="second", lengths=Lengths(edges=(16, 64), from_mix="tiny_aligned")), source, home)
    asked = [column.asked_share for column in copied.report.selection.lengths]
    assert asked == [column.achieved_share for column in first.report.selection.lengths]
    with pytest.raises(CasebitsError, match="MIX_PROFILE"):
        build_mix(recipe(mix="third", lengths=Lengths(edges=(16,), from_mix="tiny_aligned")), source, home)


def test_epochs_repeat_documents_only_when_all_others_are_in(home: Home) -> None:
    domain = Domain(name="a", generation="tiny", share=Decimal(1), epochs=3)
    lengths = Lengths(edges=(), profile=(Decimal(1),))
    source = {"tiny": corpus(home, documents=60)}
    built = build_mix(recipe(domains=(domain,), lengths=lengths, windows=70, validation_windows=1), source, home)
    verify_mix(built.folder, home)
    table = np.load(built.folder / "documents.npy")
    train = int((source["tiny"].index["split"] == 0).sum()) - built.report.selection.unfit_documents
    assert len(table) > train
    assert len(ids(built)) == train
    # One document may change places with another copy, so that the residue closes.
    first, third = (int((table["copy"] == copy).sum()) for copy in (0, 2))
    assert (train - first, third) in ((0, 0), (0, 1), (1, 0))


def test_a_text_in_two_regions_is_used_once(home: Home) -> None:
    documents = [(20, 0)] * 40
    source = publish(home, "tiny", [documents, [(20, 100), (20, 101), *documents]])
    domains = (Domain(name="a", generation="tiny", share=Decimal(1)),)
    lengths = Lengths(edges=(), profile=(Decimal(1),))
    changes = {"domains": domains, "lengths": lengths, "validation_windows": 0, "sequence_length": 40}
    built = build_mix(recipe(windows=30, **changes), {"tiny": source}, home)
    verify_mix(built.folder, home)
    assert built.report.selection.duplicate_documents == 2
    assert built.report.validation.windows == 0


def test_two_generations_share_one_mix_and_must_share_one_vocabulary(home: Home) -> None:
    sources = {"tiny": corpus(home), "other": corpus(home, "other", seed=2)}
    domains = tuple(Domain(name=name, generation=name, share=Decimal("0.5")) for name in sources)
    built = build_mix(recipe(domains=domains), sources, home)
    assert [source.generation for source in verify_mix(built.folder, home).report.sources] == ["tiny", "other"]
    sources["other"] = replace(sources["other"], vocabulary_sha256="cd" * 32)
    with pytest.raises(CasebitsError, match="VOCAB_MISMATCH generations tiny and other: one mix, one codec"):
        build_mix(recipe(mix="second", domains=domains), sources, home)


def test_what_is_missing_is_named(home: Home) -> None:
    source = {"tiny": corpus(home)}
    with pytest.raises(CasebitsError, match="materialise the frontier of 'tiny' first"):
        build_mix(recipe(), {}, home)
    with pytest.raises(CasebitsError, match="materialise the mix 'absent' first"):
        build_mix(recipe(exclude=("absent",)), source, home)
    with pytest.raises(CasebitsError, match="MIX_INFEASIBLE"):
        build_mix(recipe(windows=500), source, home)


def test_a_mix_without_a_window_is_refused(home: Home) -> None:
    source = publish(home, "tiny", [[(3, 0)] * 40])
    domains = (Domain(name="a", generation="tiny", share=Decimal(1)),)
    lengths = Lengths(edges=(), profile=(Decimal(1),))
    changed = recipe(windows=1, sequence_length=4, domains=domains, lengths=lengths, validation_windows=0)
    with pytest.raises(CasebitsError, match="MIX_EMPTY mix tiny_aligned: the documents fill no window"):
        build_mix(changed, {"tiny": source}, home)


def test_an_earlier_mix_that_was_changed_is_refused(home: Home) -> None:
    source = {"tiny": corpus(home)}
    built = build_mix(recipe(), source, home)
    (built.folder / "documents.npy").write_bytes(b"other")
    with pytest.raises(CasebitsError, match=r"FILE_HASH mixes/tiny_aligned/documents\.npy"):
        build_mix(control(recipe()), source, home)


def test_an_earlier_mix_that_is_not_whole_is_refused(home: Home) -> None:
    source = {"tiny": corpus(home)}
    (build_mix(recipe(), source, home).folder / "val_documents.npy").unlink()
    with pytest.raises(CasebitsError, match=r"FILE_MISSING mixes/tiny_aligned/val_documents\.npy"):
        build_mix(control(recipe()), source, home)


def test_a_source_that_disagrees_with_its_index_is_refused(home: Home) -> None:
    source = corpus(home)
    source.index["tokens"][0] += 1
    with pytest.raises(CasebitsError, match="MIX_DOCUMENT tiny region 00000: documents have other lengths"):
        build_mix(recipe(windows=130, when_infeasible="shrink"), {"tiny": source}, home)


def test_nothing_is_published_when_a_build_fails(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr("casebits_dagster.mixing.build.next_runs", broken)
    with pytest.raises(RuntimeError, match="power cut"):
        build_mix(recipe(), {"tiny": corpus(home)}, home)
    assert not home.mix("tiny_aligned").exists()
    assert not home.staging.exists()


def test_the_report_of_a_mix_with_tails_inside_its_windows(home: Home) -> None:
    built = build_mix(recipe(aligned=Aligned(tails="float", spread=False)), {"tiny": corpus(home)}, home)
    report = verify_mix(built.folder, home).report
    assert isinstance(report, MixReport)
    assert report.tails is not None
    assert report.tails.at_start == 0
    assert report.tails.floated > 0


def test_a_stratified_order_is_more_even_than_a_shuffled_one(home: Home) -> None:
    built = build_mix(recipe(order="stratified", windows_per_step=8), {"tiny": corpus(home)}, home)
    stratified, shuffled = verify_mix(built.folder, home).report.orders or ()
    assert (stratified.order, shuffled.order) == ("stratified", "shuffled")
    assert stratified.prefix_tokens < shuffled.prefix_tokens
    # A few windows, whatever the length of the prefix.
    assert stratified.prefix_tokens <= 2 * 64


def test_a_merge_holds_every_train_document_of_its_sources_in_their_order(home: Home) -> None:
    source = {"tiny": corpus(home)}
    sources = (Slice(name="a", generation="tiny", clusters=(0,)), Slice(name="b", generation="tiny", clusters=(1, 2)))
    merge = Interleaved(chunk_tokens=500, sources=sources)
    made = recipe(mix="merge", strategy="interleaved", selection=None, aligned=None, interleaved=merge)
    built = build_mix(made, source, home)
    verified = verify_mix(built.folder, home)
    index = source["tiny"].index
    assert len(ids(built)) == int((index["split"] == 0).sum())
    assert verified.report.train.file_tokens == int(index["tokens"][index["split"] == 0].sum())
    assert (verified.report.validation.windows, verified.report.conservation.cut_tokens) == (0, 0)
