"""A small pins folder is declared, then each of its files is edited in turn: what is pinned is what is built."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from casebits_dagster.records import pins as pins_module
from casebits_dagster.records.canonical import Json, canonical
from casebits_dagster.records.codec import CodecFiles
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, CasebitsError, RecordError
from casebits_dagster.records.pins import (
    Generation,
    SourceFile,
    SourceVocabulary,
    default_pins_folder,
    generation_names,
    load_codec,
    load_generation,
)
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.records.policy import FilterPolicy, Rule, WeightsPin
from casebits_dagster.records.vocabulary import gpt2_file

FILE: dict[str, Json] = {"path": "a.parquet", "bytes": 3, "sha256": "0" * 64, "rows": 10}
REVISION = sha256(canonical([FILE]))[:40]
POLICY = FilterPolicy(
    policy_id="none-1",
    description="keeps everything but repeats",
    metrics=("characters",),
    rules=(Rule(reason="duplicate", kind="duplicate"),),
)
POLICY_SHA256 = sha256(POLICY.to_bytes())
OTHER_POLICY_SHA256 = sha256(replace(POLICY, description="keeps all but repeats").to_bytes())
GENERATION = f"""\
generation = "tiny"
description = "ten rows"
codec = "small"

[filter]
policy_id = "none-1"
sha256 = "{POLICY_SHA256}"

[source]
repo = "local/tiny"
repo_type = "folder"
location = "tiny"
format = "parquet_tokens"
revision = "{REVISION}"
licence_spdx = "CC0-1.0"
title = "Tiny"
url = "https://example.org/tiny"
changes = "none"

[[source.files]]
path = "a.parquet"
bytes = 3
sha256 = "{"0" * 64}"
rows = 10

[split]
rule = "sha256-salt-id"
salt = "tiny"
share = 0.05

[[regions]]
path = "a.parquet"
cuts = [0, 4, 10]
"""
DUPLICATE = """
[[rules]]
reason = "duplicate"
kind = "duplicate"
"""
RULE = """
[[rules]]
reason = "r"
"""
THRESHOLD = "a threshold needs a metric and at_least or at_most"
FILTER = f"""\
policy_id = "none-1"
description = "keeps everything but repeats"
metrics = ["characters"]
{DUPLICATE}"""
CODEC = f"""\
codec = "small"
format = "casebits-1"
vocabulary_sha256 = "{sha256(b"vocabulary")}"
mixture_sha256 = "{sha256(b"mixture")}"
vocabulary_size = 300
command = "none"
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    files = {
        "generations/tiny.toml": GENERATION,
        "filters/none-1.toml": FILTER,
        "codecs/small/codec.toml": CODEC,
        "codecs/small/vocabulary.json": "vocabulary",
        "codecs/small/mixture.npz": "mixture",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_generation_resolves_everything_that_it_pins(tiny: Path) -> None:
    generation = load_generation(tiny, "tiny")
    assert generation.name == "tiny"
    assert generation.plan == (
        RegionSpec(0, "a.parquet", "rows", 0, 4),
        RegionSpec(1, "a.parquet", "rows", 4, 10),
    )
    assert generation.plan_sha256 == sha256(b'[[0,"a.parquet","rows",0,4],[1,"a.parquet","rows",4,10]]\n')
    assert generation.vocabulary.read_text() == "vocabulary"
    assert generation.mixture is not None
    assert generation.mixture.read_text() == "mixture"
    assert generation.source.folder == tiny / "tiny"
    assert generation.source.file("a.parquet").rows == 10
    assert generation.pins.filter.sha256 == sha256(generation.policy.to_bytes())
    assert generation.pins.codec.vocab_sha256 == sha256(b"vocabulary")


def _replace(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return edit


def _rename(name: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).rename(folder / new)

    return edit


WRITTEN_ONCE = "(pins are written once: declare a change as a new file)"


@pytest.mark.parametrize(
    ("edit", "kind", "message"),
    [
        (
            _replace("generations/tiny.toml", "bytes = 3", "bytes = 4"),
            RecordError,
            "PIN_INVALID generations/tiny.toml: line 14: source.revision: "
            f"expected {sha256(canonical([FILE | {'bytes': 4}]))[:40]}, read {REVISION} {WRITTEN_ONCE}",
        ),
        (
            _replace("generations/tiny.toml", REVISION, "main"),
            RecordError,
            "JSON_INVALID generations/tiny.toml: line 14: source.revision: expected a full revision of 40 lower-case "
            "hex digits, not a branch or tag, read str 'main'",
        ),
        (
            _replace("generations/tiny.toml", '"tiny"\ndesc', '"other"\ndesc'),
            RecordError,
            f"PIN_INVALID generations/tiny.toml: line 1: generation: expected tiny, read other {WRITTEN_ONCE}",
        ),
        (
            _replace("filters/none-1.toml", '"none-1"', '"none-2"'),
            RecordError,
            f"PIN_INVALID filters/none-1.toml: line 1: policy_id: expected none-1, read none-2 {WRITTEN_ONCE}",
        ),
        (
            _replace("generations/tiny.toml", "share = 0.05", "share = 1"),
            RecordError,
            "PIN_INVALID generations/tiny.toml: line 29: split.share: expected 0 or more, below 1, read 1",
        ),
        (
            _replace(
                "generations/tiny.toml",
                "cuts = [0, 4, 10]",
                "cuts = [0, 4]\n[[regions]]\npath = 'a.parquet'\ncuts = [3, 9]",
            ),
            RecordError,
            "PIN_INVALID generations/tiny.toml: line 35: regions[1].path: a.parquet stands twice: "
            "its regions could overlap",
        ),
        (
            _replace("filters/none-1.toml", "keeps everything", "keeps all"),
            RecordError,
            "PIN_INVALID generations/tiny.toml: line 7: filter.sha256: "
            "the policy in filters/none-1.toml has another hash (over its canonical form), "
            f"expected {OTHER_POLICY_SHA256}, read {POLICY_SHA256} "
            "(write the computed hash into a new generation; a pin that was used is never edited)",
        ),
        (
            _replace("filters/none-1.toml", '["characters"]', '["characters", "characters"]'),
            RecordError,
            "PIN_INVALID filters/none-1.toml: line 3: metrics: one metric or more, each named once",
        ),
        (
            _replace("generations/tiny.toml", "[filter]", "[filters]"),
            RecordError,
            "JSON_INVALID generations/tiny.toml: line 5: filters: unknown field "
            "(known here: codec, description, filter, generation, plan, regions, source, split)",
        ),
        (
            _replace("generations/tiny.toml", '[[regions]]\npath = "a', '[[regions]]\npath = "b'),
            RecordError,
            "PIN_INVALID generations/tiny.toml: line 32: regions[0].path: expected ['a.parquet'], read b.parquet",
        ),
        *(
            (
                _replace("generations/tiny.toml", "[0, 4, 10]", str(cuts)),
                RecordError,
                "PIN_INVALID generations/tiny.toml: line 33: regions[0].cuts: "
                f"expected rising cuts up to 10 rows, read {cuts}",
            )
            for cuts in ([], [0], [0, 4, 4], [0, 4, 11], [4, 0])
        ),
        *(
            (
                _replace("filters/none-1.toml", DUPLICATE, rule + DUPLICATE),
                RecordError,
                f"PIN_INVALID filters/none-1.toml: line 5: rules[0]: {problem}",
            )
            for rule, problem in (
                (RULE + 'kind = "threshold"\nat_least = 1\n', THRESHOLD),
                (RULE + 'kind = "threshold"\nmetric = "characters"\n', THRESHOLD),
                (RULE + 'kind = "threshold"\nmetric = "characters"\nat_most = 1\naccept = [1]\n', THRESHOLD),
                (RULE + 'kind = "clusters"\nmetric = "characters"\n', "a clusters rule takes no metric and no bound"),
                (RULE + 'kind = "clusters"\nat_most = 1\n', "a clusters rule takes no metric and no bound"),
                (RULE + 'kind = "clusters"\n', "a clusters rule, and no other, lists what it accepts"),
            )
        ),
        (
            _replace(
                "filters/none-1.toml", DUPLICATE, f'{RULE}kind = "threshold"\nmetric = "x"\nat_least = 1\n{DUPLICATE}'
            ),
            RecordError,
            "PIN_INVALID filters/none-1.toml: line 8: rules[0].metric: "
            "expected one of the metrics that the policy records, read x",
        ),
        (
            _replace("generations/tiny.toml", "bytes = 3", f"bytes = {2**53}"),
            RecordError,
            "JSON_INVALID generations/tiny.toml: line 22: source.files[0].bytes: "
            f"expected an integer within +-(2^53-1), read int {2**53}",
        ),
        *(
            (
                _replace("filters/none-1.toml", DUPLICATE, rules),
                RecordError,
                "PIN_INVALID filters/none-1.toml: line 5: rules: "
                "a policy needs one duplicate rule, the last: document ids are unique in a region",
            )
            for rules in (DUPLICATE * 2, RULE + 'kind = "clusters"\naccept = [1]\n')
        ),
        (
            _rename("filters/none-1.toml", "filters/none-2.toml"),
            Absent,
            "PIN_MISSING filters/none-1.toml: there is no such pin file",
        ),
    ],
)
def test_an_edited_pin_is_refused(
    tiny: Path, edit: Callable[[Path], None], kind: type[CasebitsError], message: str
) -> None:
    edit(tiny)
    with pytest.raises(kind) as caught:
        load_generation(tiny, "tiny")
    assert str(caught.value).replace(f"{tiny}/", "") == message


DATASET = GENERATION.replace('"folder"\nlocation = "tiny"', '"dataset"').replace("parquet_tokens", "climbmix_jsonl")
DATASET = DATASET.replace("local/tiny", "nobody/texts").replace("[0, 4, 10]", "[0, 1, 3]")
FILES = DATASET[DATASET.index("[[source.files]]") : DATASET.index("[split]")]
REGIONS = DATASET[DATASET.index("[[regions]]") :]
PLAN = """\
[plan]
region_bytes = 2
order_salt = "salt"
regions = 2
selected = 1
selected_bytes = 2
"""
LISTED = b"a.jsonl\t3\n"
TABLE = f"""\
[source.file_table]
path = "sources/tiny.tsv"
sha256 = "{sha256(LISTED)}"

"""


def _dataset(*changes: tuple[str, str]) -> str:
    """Return the pin of a dataset of the Hub, changed."""
    text = DATASET
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def _load(folder: Path, text: str) -> Generation:
    (folder / "generations/tiny.toml").write_text(text)
    return load_generation(folder, "tiny")


def test_a_dataset_needs_no_hash_of_its_files_and_its_plan_may_be_computed(tiny: Path) -> None:
    assert _load(tiny, DATASET).plan == (
        RegionSpec(0, "a.parquet", "bytes", 0, 1),
        RegionSpec(1, "a.parquet", "bytes", 1, 3),
    )
    computed = _load(tiny, _dataset((REGIONS, PLAN), ((f'sha256 = "{"0" * 64}"\n'), "")))
    assert (computed.plan, computed.source.file("a.parquet").sha256) == (
        (RegionSpec(0, "a.parquet", "bytes", 0, 2),),
        None,
    )
    (tiny / "sources").mkdir()
    (tiny / "sources/tiny.tsv").write_bytes(LISTED)
    listed = _load(tiny, _dataset((REGIONS, PLAN), (FILES, TABLE)))
    assert listed.source.files == (SourceFile(path="a.jsonl", bytes=3),)


ONE_OF_TWO = "regions are spelled out or computed: one of the two"
FILES_ONCE = "name the files here or in a file_table: one of the two"
PLAIN = "plain-1 names a separator and no mixture, casebits-1 no separator"
NAMED_HUB = "expected owner/name of a dataset, read"
COLUMNS = "expected a path, a tab and a number of bytes, read"
RELATIVE = "expected a relative path without . or .. parts or control characters, read str"
CLIMBMIX = "5eaa64b9c0c85b7f56af01d7dffdb0795816b12b"
HISTORY = "small-llm-corpus-100b-v2 is provenance only: it is never read (name the source itself)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(
            ([("nobody/texts", repo)], f"REVISION_NOT_PINNED line 10: source.repo: {HISTORY}")
            for repo in ("small-llm-corpus-100b-v2", "nobody/Small-LLM-Corpus-100B-v2-part")
        ),
        (
            [('"dataset"', '"folder"\nlocation = "/data/small-llm-corpus-100b-v2"')],
            f"REVISION_NOT_PINNED line 10: source.repo: {HISTORY}",
        ),
        *(
            (
                [("nobody/texts", repo)],
                f"REVISION_NOT_PINNED line 13: source.revision: expected {repo}@{CLIMBMIX}, read {repo}@{REVISION} "
                "(a source that is known is read at its one pinned revision)",
            )
            for repo in ("nvidia/Nemotron-ClimbMix", "NVIDIA/nemotron-climbmix")
        ),
        (
            [(REVISION, "refs/convert/parquet")],
            "JSON_INVALID line 13: source.revision: expected a full revision of 40 lower-case hex digits, not a branch "
            "or tag, read str 'refs/convert/parquet'",
        ),
        *(
            ([("nobody/texts", repo)], f"PIN_INVALID line 10: source.repo: {NAMED_HUB} {repo}")
            for repo in (
                "texts",
                "a/b/c",
                "a--b/c",
                "a/b.git",
                "a/b..c",
                "a b/c",
                "../a",
                "a/.b",
                "a/b.",
                "a-/b",
                "a/" + "b" * 95,
            )
        ),
        (
            [('"dataset"', '"folder"')],
            "PIN_INVALID line 9: source.location: a folder, and no other source, names it",
        ),
        (
            [('"dataset"', '"dataset"\nlocation = "tiny"')],
            "PIN_INVALID line 12: source.location: a folder, and no other source, names it",
        ),
        ([(FILES, "")], f"PIN_INVALID line 9: source.files: {FILES_ONCE}"),
        ([(FILES, FILES + TABLE)], f"PIN_INVALID line 19: source.files: {FILES_ONCE}"),
        (
            [(FILES, FILES * 2)],
            "PIN_INVALID line 26: source.files[1].path: a.parquet stands twice",
        ),
        (
            [('"climbmix_jsonl"', '"flat_u16"')],
            "PIN_INVALID line 9: source.separator_at: flat_u16, and no other format, names it",
        ),
        (
            [('"climbmix_jsonl"', '"climbmix_jsonl"\nseparator_at = "end"')],
            "PIN_INVALID line 13: source.separator_at: flat_u16, and no other format, names it",
        ),
        *(
            (
                [('"climbmix_jsonl"', f'"{kind}"\nvocabulary = "small"')],
                f"PIN_INVALID line 13: source.vocabulary: {kind} has text, no ids",
            )
            for kind in ("parquet_text", "jsonl_text")
        ),
        ([(REGIONS, REGIONS + PLAN)], f"PIN_INVALID line 33: plan: {ONE_OF_TWO}"),
        ([(REGIONS, "")], f"PIN_INVALID plan: {ONE_OF_TWO}"),
        (
            [(REGIONS, PLAN), ('"climbmix_jsonl"', '"parquet_text"')],
            "PIN_INVALID line 30: plan: expected files that are cut in bytes, read a.parquet",
        ),
        (
            [(REGIONS, PLAN), ('"climbmix_jsonl"', '"jsonl_text"'), ("a.parquet", "a.jsonl.zst")],
            "PIN_INVALID line 30: plan: expected files that are cut in bytes, read a.jsonl.zst",
        ),
        (
            [
                (REGIONS, PLAN),
                ('"climbmix_jsonl"', '"flat_u16"\nseparator_at = "end"'),
                ("region_bytes = 2", "region_bytes = 1"),
            ],
            "PIN_INVALID line 32: plan.region_bytes: expected even bytes, read 1",
        ),
        (
            [(REGIONS, PLAN.replace("regions = 2", "regions = 3"))],
            f"PIN_INVALID line 33: plan.regions: expected 2, read 3 {WRITTEN_ONCE}",
        ),
        (
            [(REGIONS, PLAN.replace("selected = 1", "selected = 3"))],
            f"PIN_INVALID line 34: plan.selected: expected 2, read 3 {WRITTEN_ONCE}",
        ),
        (
            [(REGIONS, PLAN.replace("selected_bytes = 2", "selected_bytes = 3"))],
            f"PIN_INVALID line 35: plan.selected_bytes: expected 2, read 3 {WRITTEN_ONCE}",
        ),
        (
            [(REGIONS, PLAN.replace('"salt"', '" "'))],
            "JSON_INVALID line 32: plan.order_salt: expected text that is not empty, read str ' '",
        ),
        (
            [("climbmix_jsonl", "parquet_text"), ("rows = 10\n", "")],
            "PIN_INVALID line 30: regions[0].path: a.parquet is cut in rows: state its rows in source.files",
        ),
        (
            [('"climbmix_jsonl"', '"flat_u16"\nseparator_at = "start"')],
            "PIN_INVALID line 33: regions[0].cuts: expected even bytes, read [0, 1, 3]",
        ),
    ],
)
def test_a_source_or_plan_that_is_not_sound_is_refused_with_its_line(
    tiny: Path, changes: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(CasebitsError) as caught:
        _load(tiny, _dataset(*changes))
    assert str(caught.value).replace(f"{tiny}/generations/tiny.toml: ", "") == message


def test_a_file_of_a_folder_is_pinned_by_its_hash(tiny: Path) -> None:
    unnamed = sha256(canonical([FILE | {"sha256": None}]))[:40]
    with pytest.raises(RecordError) as caught:
        _load(tiny, GENERATION.replace(f'sha256 = "{"0" * 64}"\n', "").replace(REVISION, unnamed))
    place = f"{tiny}/generations/tiny.toml: line 20: source.files[0]"
    assert str(caught.value) == f"PIN_INVALID {place}: a file of a folder is pinned by its sha256"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (b"a.jsonl 3\n", f"line 1: {COLUMNS} 'a.jsonl 3'"),
        (b"a\t3\nb\t-3\n", f"line 2: {COLUMNS} 'b\\t-3'"),
        (b"a\t3\t4\n", f"line 1: {COLUMNS} 'a\\t3\\t4'"),
        (b"a\t\xd9\xa3\n", f"line 1: {COLUMNS} 'a\\t٣'"),
        (b"a\t0\n", "line 1: file.bytes: expected at least 1, read int 0"),
        (b"../a\t3\n", f"line 1: file.path: {RELATIVE} '../a'"),
        (b"\xff\t3\n", f"line 1: file.path: {RELATIVE} '\\\\xff'"),
    ],
)
def test_a_table_of_files_is_refused_with_its_line(tiny: Path, table: bytes, message: str) -> None:
    (tiny / "sources").mkdir()
    (tiny / "sources/tiny.tsv").write_bytes(table)
    with pytest.raises(RecordError) as caught:
        _load(tiny, _dataset((FILES, TABLE.replace(sha256(LISTED), sha256(table)))))
    assert str(caught.value).split(" ", 1)[1] == f"{tiny}/sources/tiny.tsv: {message}"


def test_a_table_of_files_is_pinned_and_names_each_once(tiny: Path) -> None:
    (tiny / "sources").mkdir()
    with pytest.raises(Absent) as absent:
        _load(tiny, _dataset((FILES, TABLE)))
    assert absent.value.where == f"{tiny}/sources/tiny.tsv"
    (tiny / "sources/tiny.tsv").write_bytes(LISTED * 2)
    with pytest.raises(CasebitsError) as other:
        _load(tiny, _dataset((FILES, TABLE)))
    assert (other.value.code, other.value.read) == ("PIN_HASH", sha256(LISTED * 2))
    with pytest.raises(RecordError) as twice:
        _load(tiny, _dataset((FILES, TABLE.replace(sha256(LISTED), sha256(LISTED * 2)))))
    place = f"{tiny}/generations/tiny.toml: line 19: source.file_table"
    assert str(twice.value) == f"PIN_INVALID {place}: a.jsonl stands twice"


VOCABULARY = "codecs/small/vocabulary.json"
MIXTURE = "codecs/small/mixture.npz"


@pytest.mark.parametrize(
    ("edit", "kind", "message"),
    [
        (
            _replace(VOCABULARY, "v", "w"),
            CasebitsError,
            f"PIN_HASH {VOCABULARY}: expected sha256 {sha256(b'vocabulary')}, read {sha256(b'wocabulary')} "
            "(put the file that is expected there; any other is refused)",
        ),
        (
            _replace(MIXTURE, "m", "n"),
            CasebitsError,
            f"PIN_HASH {MIXTURE}: expected sha256 {sha256(b'mixture')}, read {sha256(b'nixture')} "
            "(put the file that is expected there; any other is refused)",
        ),
        (
            _rename(VOCABULARY, "codecs/small/other.json"),
            Absent,
            f"PIN_MISSING {VOCABULARY}: the pinned file cannot be read: No such file or directory "
            f"(put the file whose sha256 is {sha256(b'vocabulary')} there; any other is refused)",
        ),
    ],
)
def test_a_generation_without_its_codec_is_loaded_and_says_what_it_waits_for(
    tiny: Path, edit: Callable[[Path], None], kind: type[CasebitsError], message: str
) -> None:
    edit(tiny)
    generation = load_generation(tiny, "tiny")
    assert (len(generation.plan), str(generation.missing).replace(f"{tiny}/", "")) == (2, message)
    for ask in (
        generation.require_runnable,
        lambda: generation.vocabulary,
        lambda: generation.mixture,
        lambda: load_codec(tiny / "codecs/small"),
    ):
        with pytest.raises(kind) as caught:
            ask()
        assert str(caught.value).replace(f"{tiny}/", "") == message


def test_a_vocabulary_that_was_supplied_is_used(tiny: Path) -> None:
    content = (tiny / VOCABULARY).read_bytes()
    (tiny / VOCABULARY).unlink()
    assert type(load_generation(tiny, "tiny").missing) is Absent
    (tiny / VOCABULARY).write_bytes(content)
    generation = load_generation(tiny, "tiny")
    assert (generation.missing, generation.vocabulary) == (None, tiny / VOCABULARY)


def test_a_codec_may_have_no_mixture(tiny: Path) -> None:
    _replace("codecs/small/codec.toml", f'mixture_sha256 = "{sha256(b"mixture")}"\n', "")(tiny)
    generation = load_generation(tiny, "tiny")
    assert (generation.mixture, generation.pins.codec.mixture_sha256) == (None, None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"small"', '"large"', f"line 1: codec: expected small, read large {WRITTEN_ONCE}"),
        ('"casebits-1"', '"plain-1"', f"line 2: format: {PLAIN}"),
        ('"none"', '"none"\nseparator = {id = 0, at = "end"}', f"line 2: format: {PLAIN}"),
    ],
)
def test_a_codec_pin_that_contradicts_itself_is_refused(tiny: Path, old: str, new: str, message: str) -> None:
    _replace("codecs/small/codec.toml", old, new)(tiny)
    with pytest.raises(RecordError) as caught:
        load_generation(tiny, "tiny")
    assert str(caught.value) == f"PIN_INVALID {tiny}/codecs/small/codec.toml: {message}"


def test_a_source_of_tokens_is_spelled_by_gpt2_or_by_a_plain_codec(tiny: Path) -> None:
    gpt2 = load_generation(tiny, "tiny").source.vocabulary()
    assert (gpt2.path, gpt2.separator) == (gpt2_file("encoder.json"), 50_256)
    named = GENERATION.replace('"parquet_tokens"', '"parquet_tokens"\nvocabulary = "small"')
    with pytest.raises(RecordError) as caught:
        _load(tiny, named).source.vocabulary()
    why = f"PIN_INVALID {tiny}/codecs/small: expected a plain codec, read casebits-1"
    assert str(caught.value) == f"PIN_INVALID {tiny}/generations/tiny.toml: line 14: source.vocabulary: {why}"

    plain = CODEC.replace("casebits-1", "plain-1").replace(f'mixture_sha256 = "{sha256(b"mixture")}"\n', "")
    (tiny / "codecs/small/codec.toml").write_text(plain + 'separator = {id = 7, at = "start"}\n')
    found = _load(tiny, named).source.vocabulary()
    assert found == SourceVocabulary(tiny / VOCABULARY, 7, sha256(b"vocabulary"))


def test_pins_that_exclude_each_other_are_refused(tiny: Path) -> None:
    named = GENERATION.replace('"parquet_tokens"', '"parquet_tokens"\nvocabulary = "small"')
    plain = CODEC.replace("casebits-1", "plain-1").replace(f'mixture_sha256 = "{sha256(b"mixture")}"\n', "")
    (tiny / "codecs/small/codec.toml").write_text(plain + 'separator = {id = 7, at = "start"}\n')
    weights = WeightsPin(path="weights.npz", sha256=sha256(b"weights"))
    (tiny / "filters/weights.npz").write_text("weights")
    _replace(
        "filters/none-1.toml",
        DUPLICATE,
        f'weights = {{path = "weights.npz", sha256 = "{weights.sha256}"}}\n{DUPLICATE}',
    )(tiny)
    named = named.replace(POLICY_SHA256, sha256(replace(POLICY, weights=weights).to_bytes()))
    with pytest.raises(
        RecordError, match=r"line 14: source.vocabulary: the token weights of none-1 are for GPT-2's ids"
    ):
        _load(tiny, named)
    codec = (default_pins_folder() / "codecs/gpt2/codec.toml").read_text()
    (tiny / "codecs/gpt2").mkdir()
    (tiny / "codecs/gpt2/codec.toml").write_text(codec)
    _replace("filters/none-1.toml", f'weights = {{path = "weights.npz", sha256 = "{weights.sha256}"}}\n', "")(tiny)
    text = GENERATION.replace('codec = "small"', 'codec = "gpt2"')
    assert _load(tiny, text).keeps_ids is True
    with pytest.raises(RecordError, match=r"line 3: codec: gpt2 spells ids and cannot encode text"):
        _load(tiny, text.replace('"parquet_tokens"', '"parquet_text"'))


def test_a_source_may_be_read_from_a_copy(tiny: Path) -> None:
    source = _load(tiny, DATASET).source
    copy = source.at(tiny / "copy")
    assert (copy.pin.repo_type, copy.folder, copy.files) == ("folder", tiny / "copy", source.files)
    other = SourceFile(path="b.jsonl", bytes=4)
    assert source.at(tiny / "copy", other).files == (other,)


def test_the_weights_of_a_policy_are_pinned(tiny: Path) -> None:
    weights = WeightsPin(path="weights.npz", sha256=sha256(b"weights"))
    named = f'weights = {{path = "weights.npz", sha256 = "{weights.sha256}"}}\n{DUPLICATE}'
    _replace("filters/none-1.toml", DUPLICATE, named)(tiny)
    text = GENERATION.replace(POLICY_SHA256, sha256(replace(POLICY, weights=weights).to_bytes()))
    with pytest.raises(Absent) as caught:
        _load(tiny, text)
    assert caught.value.where == f"{tiny}/filters/weights.npz"
    (tiny / "filters/weights.npz").write_bytes(b"weights")
    assert _load(tiny, text).policy.weights == weights


def test_generation_names_are_sorted(tiny: Path) -> None:
    shutil.copy(tiny / "generations/tiny.toml", tiny / "generations/a.toml")
    assert generation_names(tiny) == ["a", "tiny"]


def test_gpt2_files_are_the_published_ones() -> None:
    assert [gpt2_file(name).name for name in ("encoder.json", "vocab.bpe")] == ["encoder.json", "vocab.bpe"]


def test_without_a_checkout_there_are_no_pins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pins_module, "__file__", str(tmp_path / "site-packages/casebits_dagster/records/pins.py"))
    with pytest.raises(Absent) as caught:
        default_pins_folder()
    assert str(caught.value) == (
        "PIN_MISSING assets/pins: this installation has no pins "
        "(clone the project and install it with `pip install -e .`, or name a pins folder with --pins)"
    )


def test_the_committed_pins_resolve(pins: Path) -> None:
    """Every pin file in the checkout loads, with its hashes; what has to be supplied is named."""
    loaded = [load_generation(pins, name) for name in generation_names(pins)]
    assert [generation.name for generation in loaded] == generation_names(pins)
    waiting = {generation.name: generation.missing.where for generation in loaded if generation.missing}
    published = pins / "codecs/nvidia5eaa64/vocabulary.json"
    assert waiting == ({} if published.exists() else {"casebits-nvidia5eaa64-v1": str(published)})
    for folder in sorted((pins / "codecs").iterdir()):
        assert CodecFiles.from_toml(folder / "codec.toml").codec == folder.name


def test_the_environment_may_name_another_folder_of_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASEBITS_PINS", str(tmp_path))
    assert default_pins_folder() == tmp_path
