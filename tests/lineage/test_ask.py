"""Every question form, over one generation and over a mix of two."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from casebits_dagster.admission import admit_region
from casebits_dagster.filters.region import filter_region
from casebits_dagster.lineage.ask import FOLLOWED, Question, answer, audit
from casebits_dagster.lineage.asked import asked, keep_audit
from casebits_dagster.lineage.audited_mix import open_mix
from casebits_dagster.lineage.ledger import Ledger
from casebits_dagster.lineage.locate import in_force
from casebits_dagster.lineage.records import Audit, Holding, Searched, WindowAudit
from casebits_dagster.lineage.render import audit_html, audit_markdown, audit_text
from casebits_dagster.mixing.build import build_mix
from casebits_dagster.mixing.verify import verify_mix
from casebits_dagster.publication.frontier import advance_frontier
from casebits_dagster.publication.mix_sources import mix_sources
from casebits_dagster.records.errors import Absent, RecordError
from casebits_dagster.records.layout import DOCUMENTS, Home
from casebits_dagster.records.mix import SEGMENTS, TABLE
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.recipe import Interleaved, Recipe, Slice
from casebits_dagster.records.withdrawal import SourceRow, Withdrawal
from casebits_dagster.regions.encode import encode_region
from tests.admission.test_plain import declare
from tests.sample import NOW

BOTH = Recipe(
    mix="both",
    description="Two generations, of which the second has texts of the first.",
    strategy="interleaved",
    sequence_length=2048,
    windows_per_shard=128,
    seed="both",
    interleaved=Interleaved(
        chunk_tokens=4096,
        sources=(Slice(name="first", generation="sample"), Slice(name="second", generation="second")),
    ),
)
Two = tuple[Home, dict[str, Generation]]


@pytest.fixture(scope="session")
def two(sample_home: Home, pins: Path, tmp_path_factory: pytest.TempPathFactory) -> Two:
    """The sample home with a second generation, whose one region repeats rows of the sample, and a mix of both."""
    folder = tmp_path_factory.mktemp("two")
    own, home = shutil.copytree(pins, folder / "pins"), Home(folder / "home")
    shutil.copytree(sample_home.root, home.root)
    file = load_generation(own, "sample").source.files[0]
    second = declare(own, "second", "sample-lower-8192", "parquet_tokens", own / "sample", file, [0, 60])
    filter_region(second, 0, home)
    encode_region(second, 0, home)
    admit_region(second, 0, home, run_id="second")
    advance_frontier(second, home, now=NOW)
    build_mix(BOTH, mix_sources(["sample", "second"], home), home)
    return home, {"sample": load_generation(own, "sample"), "second": second}


def asks(two: Two, question: Question, **more: object) -> Audit:
    home, generations = two
    found = answer(home, question, generations, **more)  # type: ignore[arg-type]
    assert Audit.parse(found.to_bytes(), "audit") == found
    return found


def row(position: int, generation: str = "sample") -> Question:
    return Question(source_row=SourceRow(generation=generation, path="pd_mix.parquet", position=position))


def documents(home: Home, generation: str, region: int) -> list[dict[str, object]]:
    lines = (home.generation(generation).region(region) / DOCUMENTS).read_bytes().splitlines()
    return [json.loads(line) for line in lines]


FORMS = {
    "mix": Question(mix="both"),
    "shard": Question(mix="both", shard=1),
    "tokens": Question(mix="both", tokens=(1000, 9000)),
    "region": Question(region=("second", 0)),
    "kept row": row(2),
    "dropped row": row(0),
    "window": Question(mix="both", window=3),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_proven_and_written_in_every_format(two: Two, form: str) -> None:
    home, generations = two
    for recompute in ("slices", "all"):
        found = audit(home, FORMS[form], generations=generations, recompute=recompute)
        assert (found.failures, found.proven) == ((), True)
        layout = " (interleaved)" * isinstance(found, WindowAudit)
        assert audit_text(found).splitlines()[0] == f"{FORMS[form]}{layout}: proven."
    told = str(FORMS[form])
    assert audit_markdown(found).splitlines()[0] == f"# {told[0].upper()}{told[1:]}"
    assert f"<h1>{told[0].upper()}{told[1:]}</h1>" in audit_html(found)
    assert [one.state for one in found.evidence if one.state != "equal"] == []
    nothing = audit(home, FORMS[form], generations=generations, recompute="none")
    assert (nothing.failures, nothing.proven) == ((), False)
    assert [one.id for one in nothing.documents] == [one.id for one in found.documents]


def test_the_shares_of_a_mix_are_those_of_its_tables(two: Two) -> None:
    found = asks(two, Question(mix="both"))
    mix = open_mix(two[0].mix("both"), Ledger())
    inside = mix.segments[mix.segments["window"] < mix.report.train.windows]
    tokens = np.bincount(inside["document"], inside["length"] - inside["inserted"].astype(np.int64))
    for by in ("source", "licence", "domain", "cluster", "region"):
        shares = [share for share in found.shares if share.by == by]
        assert sum(share.tokens for share in shares) == int(tokens.sum())
        assert sum(share.documents for share in shares) == int((tokens > 0).sum())
    domains = mix.documents["domain"][: len(tokens)]
    expected = {name: int(tokens[domains == number].sum()) for number, name in enumerate(("first", "second"))}
    assert {share.name: share.tokens for share in found.shares if share.by == "domain"} == expected
    assert (found.windows_asked, len(found.windows)) == (mix.report.train.windows, FOLLOWED)
    assert found.tokens_asked == mix.report.train.windows * 2048
    assert f"8 of {mix.report.train.windows:,} windows, chosen by the mix's hash" in found.limits[-1]


def test_parts_of_a_mix_add_up_to_it(two: Two) -> None:
    whole = asks(two, Question(mix="both"))
    report = open_mix(two[0].mix("both"), Ledger()).report
    shards = [asks(two, Question(mix="both", shard=number)) for number in range(report.train.shards)]
    cuts = [0, 5, 2048, 100_000, whole.tokens_asked]
    ranges = [asks(two, Question(mix="both", tokens=pair)) for pair in itertools.pairwise(cuts)]
    for parts in (shards, ranges):
        assert sum(part.tokens_asked for part in parts) == whole.tokens_asked
        for by in ("region", "cluster"):
            sums = [sum(one.tokens for one in part.shares if one.by == by) for part in (*parts, whole)]
            assert sum(sums[:-1]) == sums[-1]
    assert [one.window for one in ranges[1].windows] == [0]


def test_a_text_is_found_in_every_generation_and_mix(two: Two) -> None:
    home, _ = two
    first = documents(home, "second", 0)[0]
    found = asks(two, Question(document=str(first["id"])))
    assert [(one.generation, one.region, one.index, one.first, one.newest) for one in found.held] == [
        ("sample", "00000", 0, 1, 1),
        ("second", "00000", 0, 1, 1),
    ]
    assert {one.source_position for one in found.documents} == {first["source_position"]}
    assert [(one.generation, one.regions, one.indexed) for one in found.searched] == [
        ("sample", 14, 14),
        ("second", 1, 1),
    ]
    for use in found.uses:
        table, segments = (np.load(home.mix(use.mix) / name) for name in (TABLE, SEGMENTS))
        if use.split == "train":
            rows = np.flatnonzero(table["id"] == np.void(bytes.fromhex(str(first["id"]))))
            assert use.documents == len(rows)
            windows = segments["window"][np.isin(segments["document"], rows)]
            assert list(use.first_windows) == sorted({*windows.tolist()})
    assert {use.mix for use in found.uses} >= {"both", "sample_aligned"}
    assert {one.document for window in found.windows for one in window.segments} == {first["id"]}


def test_a_region_without_its_index_is_searched_by_its_lines(two: Two, tmp_path: Path) -> None:
    home = Home(tmp_path / "copy")
    shutil.copytree(two[0].root, home.root)
    identity = str(documents(home, "sample", 3)[5]["id"])
    before = answer(home, Question(document=identity), two[1])
    shutil.rmtree(home.generation("sample").root / "index")
    after = answer(home, Question(document=identity), two[1])
    assert after.searched[0] == Searched(generation="sample", regions=14, indexed=0, documents=933)
    assert (after.held, after.uses, after.documents) == (before.held, before.uses, before.documents)


def test_a_row_is_told_where_it_is_used(two: Two) -> None:
    line = documents(two[0], "sample", 0)[0]
    found = asks(two, row(int(str(line["source_position"]))))
    (told,) = found.rows
    assert (told.verdict, told.document, told.index, told.scores) == ("keep", line["id"], 0, line["scores"])
    assert found.held[0] == Holding(
        document=told.document, generation="sample", region="00000", index=0, first=1, newest=1
    )
    assert "The quality scores are those" not in " ".join(found.limits)


def test_every_row_of_a_region_is_decided_as_its_verdict_says(two: Two) -> None:
    home, _ = two
    table = pq.read_table(home.generation("sample").verdicts(8))
    for said in table.to_pylist():
        found = asks(two, row(said["position"]))
        assert (found.rows[0].verdict, found.proven) == (said["verdict"], True)


def test_why_a_row_was_dropped(two: Two) -> None:
    found = asks(two, row(0))
    text = audit_text(found)
    assert found.rows[0].verdict == "dropped:too_many_digits"
    assert "    too_many_digits  digit_share  0.331412  at most 0.33  broken: dropped\n" in text
    assert "    too_many_symbols  symbol_share  0.118155  at most 0.35  not reached\n" in text
    assert "Mixes that hold it\n  none\n" in text
    assert (found.held, found.uses) == ((), ())


def test_a_row_without_its_verdict_table_is_decided_by_its_source(two: Two, tmp_path: Path) -> None:
    home, generations = Home(tmp_path / "copy"), two[1]
    shutil.copytree(two[0].root, home.root)
    before = answer(home, row(0), generations)
    shutil.rmtree(home.generation("sample").root / "verdicts")
    after = answer(home, row(0), generations)
    assert (after.rows, after.proven) == (before.rows, True)
    with pytest.raises(Absent) as caught:
        answer(home, row(0), {})
    assert str(caught.value) == (
        "NO_SUCH_ROW sample/00000 row 0: it is no document, and nothing says why (the verdict table is a working file: "
        "filter the region again, or have its source at hand)"
    )


def test_a_row_that_no_region_covers_is_absent(two: Two) -> None:
    for generations in (two[1], {}):
        with pytest.raises(Absent) as caught:
            answer(two[0], row(1358), generations)
        assert str(caught.value) == "NO_SUCH_ROW sample: pd_mix.parquet at 1358: no region of sample covers it"


def test_without_pins_the_answer_is_the_same_and_says_what_is_missing(two: Two) -> None:
    home, _ = two
    found, bare = asks(two, row(2)), answer(home, row(2), {})
    assert (bare.rows, bare.held, bare.uses, bare.proven) == (found.rows, found.held, found.uses, True)
    assert [region.policy for region in bare.regions] == [None, None]
    assert bare.limits[-1] == (
        "The pins of a generation are not at hand: of its filter policy the hash is told, and no threshold."
    )


def test_a_region_that_no_frontier_holds_is_unproven(two: Two, tmp_path: Path) -> None:
    home = Home(tmp_path / "copy")
    shutil.copytree(two[0].root, home.root)
    found = answer(home, Question(region=("second", 1)), two[1])
    assert [(one.link, one.where, one.problem) for one in found.failures] == [
        ("region in the frontier", "second/00001", "GAP second/00001: expected a region below 1, read 1")
    ]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (Question(mix="both", shard=99), "NO_SUCH_SHARD both: shard 99: the mix has shards 0 to "),
        (Question(mix="both", tokens=(5, 5)), "NO_SUCH_TOKENS both: tokens 5 to 5: the mix has tokens 0 to "),
        (Question(mix="both", tokens=(0, 1 << 40)), f"NO_SUCH_TOKENS both: tokens 0 to {1 << 40}: the mix has tokens"),
        (Question(mix="none"), "FILE_MISSING "),
        (Question(region=("none", 0)), "LATEST_MISSING none: there is no such generation"),
        (Question(document="0" * 32), f"NO_SUCH_DOCUMENT {'0' * 32}: none of "),
    ],
)
def test_what_is_not_there_is_absent(two: Two, question: Question, said: str) -> None:
    with pytest.raises(Absent) as caught:
        asks(two, question)
    assert str(caught.value)[: len(said)] == said


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mix": "a", "document": "0" * 32},
        {"window": 3},
        {"mix": "a", "window": 1, "shard": 2},
        {"region": "sample/1", "withdrawn": True},
    ],
)
def test_one_question_is_asked(fields: dict[str, object]) -> None:
    with pytest.raises(RecordError, match=r"^QUESTION_INVALID audit: expected one of: a mix"):
        asked(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"mix": "a", "tokens": "5"}, "tokens"),
        ({"region": "5"}, "region"),
        ({"document": "5"}, "document"),
        ({"source_row": ["sample", "file", "x"]}, "source row"),
    ],
)
def test_a_text_of_another_form_is_refused(fields: dict[str, object], what: str) -> None:
    with pytest.raises(RecordError, match=rf"^QUESTION_INVALID {what}: expected text that matches"):
        asked(**fields)  # type: ignore[arg-type]


def test_texts_become_questions() -> None:
    assert asked(mix="a", tokens="5:9") == Question(mix="a", tokens=(5, 9))
    assert asked(region="sample/00003") == Question(region=("sample", 3))
    assert asked(source_row=("sample", "pd_mix.parquet", "2")) == row(2)


def test_what_is_withdrawn_is_listed_and_in_no_later_mix(two: Two, tmp_path: Path) -> None:
    home, generations = Home(tmp_path / "copy"), two[1]
    shutil.copytree(two[0].root, home.root)
    folder = tmp_path / "pins/withdrawals"
    folder.mkdir(parents=True)
    identity = str(documents(home, "sample", 3)[5]["id"])
    (folder / "letter.toml").write_text(
        'withdrawn_by = "A Person"\nwithdrawn_on = "2026-03-04"\nreason = "The author asked."\n'
        f'documents = ["{identity}"]\n'
        + "".join(f'[[rows]]\ngeneration = "sample"\npath = "pd_mix.parquet"\nposition = {at}\n' for at in (0, 2))
    )
    pin = Withdrawal.from_toml(folder / "letter.toml")
    found = answer(home, Question(withdrawn=True), generations, withdrawals={"letter": pin})
    by_row = str(documents(home, "sample", 0)[0]["id"])
    assert {one.document for one in found.held} == {identity, by_row}
    assert found.proven is True
    assert {use.mix for use in found.uses} >= {"both", "sample_aligned"}
    withdrawn = in_force(tmp_path / "pins", home, generations)
    assert {text.hex() for text in withdrawn.ids.tolist()} == {identity, by_row}
    sources = mix_sources(["sample", "second"], home, withdrawn)
    later = build_mix(replace(BOTH, mix="later"), sources, home)
    assert later.report.withdrawn is not None
    assert (later.report.withdrawn.documents, len(later.report.withdrawn.ids)) == (3, 2)
    assert verify_mix(later.folder, home).manifest_sha256 == later.manifest_sha256
    again = answer(home, Question(withdrawn=True), generations, withdrawals={"letter": pin})
    assert {use.mix for use in again.uses} == {use.mix for use in found.uses}


def test_nothing_is_withdrawn(two: Two) -> None:
    found = asks(two, Question(withdrawn=True))
    assert (found.held, found.uses, found.limits[-1]) == (
        (),
        (),
        "No document is asked for: nothing was searched for.",
    )


def test_a_mix_that_cannot_be_read_does_not_hide_the_others(two: Two, tmp_path: Path) -> None:
    home = Home(tmp_path / "copy")
    shutil.copytree(two[0].root, home.root)
    (home.mix("both") / TABLE).write_bytes(b"x")
    found = answer(home, Question(document=str(documents(home, "sample", 0)[0]["id"])), two[1])
    assert "sample_aligned" in {use.mix for use in found.uses}
    assert {(one.link, one.where) for one in found.failures} == {
        ("file of the mix", "both/documents.npy"),
        ("mix", "both"),
    }


def test_an_audit_is_kept_in_every_format(two: Two, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    found = asks(two, row(0))
    name = "row-0-of-pd_mix.parquet-source-of-sample"
    suffixes = ("json", "md", "html", "prov.json")
    for _ in range(2):
        assert keep_audit(found, home) == [home.root / "audits" / f"{name}.{suffix}" for suffix in suffixes]
    assert Audit.parse((home.root / f"audits/{name}.json").read_bytes(), "audit") == found


def test_a_region_that_cannot_be_searched_is_a_link_that_fails(two: Two, tmp_path: Path) -> None:
    home = Home(tmp_path / "copy")
    shutil.copytree(two[0].root, home.root)
    shutil.rmtree(home.generation("second").root / "index")
    lines = home.generation("second").region(0) / DOCUMENTS
    lines.write_bytes(lines.read_bytes().replace(b'{"byte_offset"', b'["byte_offset"'))
    for question in (Question(document=str(documents(home, "sample", 0)[0]["id"])), row(2)):
        found = answer(home, question, two[1])
        assert "sample_aligned" in {use.mix for use in found.uses}
        assert ("search of the region", "second/00000") in {(one.link, one.where) for one in found.failures}
    found = answer(home, row(2, "second"), two[1])
    assert ("verdict of the row", "second/00000 row 2") in {(one.link, one.where) for one in found.failures}
