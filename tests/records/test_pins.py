"""A small pins folder is declared, then each of its files is edited in turn: what is pinned is what is built."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from casebits_dagster.records import pins as pins_module
from casebits_dagster.records.canonical import Json, canonical
from casebits_dagster.records.digests import sha256
from casebits_dagster.records.errors import Absent, CasebitsError, RecordError
from casebits_dagster.records.pins import default_pins_folder, generation_names, gpt2_file, load_codec, load_generation
from casebits_dagster.records.plan import RegionSpec
from casebits_dagster.records.policy import FilterPolicy, Rule

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
THRESHOLD = "a threshold needs a recorded metric and at_least or at_most"
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
            _replace("codecs/small/vocabulary.json", "v", "w"),
            CasebitsError,
            f"PIN_HASH codecs/small/vocabulary.json: expected sha256 {sha256(b'vocabulary')}, "
            f"read {sha256(b'wocabulary')}",
        ),
        (
            _replace("codecs/small/mixture.npz", "m", "n"),
            CasebitsError,
            f"PIN_HASH codecs/small/mixture.npz: expected sha256 {sha256(b'mixture')}, read {sha256(b'nixture')}",
        ),
        (
            _replace("generations/tiny.toml", "bytes = 3", "bytes = 4"),
            RecordError,
            "PIN_INVALID generations/tiny.toml: source.revision: "
            f"expected {sha256(canonical([FILE | {'bytes': 4}]))[:40]}, read {REVISION} {WRITTEN_ONCE}",
        ),
        (
            _replace("generations/tiny.toml", REVISION, "main"),
            RecordError,
            "JSON_INVALID generations/tiny.toml: source.revision: expected a full revision of 40 lower-case hex "
            "digits, not a branch or tag, read str 'main'",
        ),
        (
            _replace("generations/tiny.toml", '"tiny"\ndesc', '"other"\ndesc'),
            RecordError,
            f"PIN_INVALID generations/tiny.toml: generation: expected tiny, read other {WRITTEN_ONCE}",
        ),
        (
            _replace("filters/none-1.toml", '"none-1"', '"none-2"'),
            RecordError,
            f"PIN_INVALID filters/none-1.toml: policy_id: expected none-1, read none-2 {WRITTEN_ONCE}",
        ),
        (
            _replace("generations/tiny.toml", "share = 0.05", "share = 1"),
            RecordError,
            "PIN_INVALID generations/tiny.toml: split.share: expected 0 or more, below 1, read 1",
        ),
        (
            _replace(
                "generations/tiny.toml",
                "cuts = [0, 4, 10]",
                "cuts = [0, 4]\n[[regions]]\npath = 'a.parquet'\ncuts = [3, 9]",
            ),
            RecordError,
            "PIN_INVALID generations/tiny.toml: regions.path: a file stands twice: its regions could overlap",
        ),
        (
            _replace("filters/none-1.toml", "keeps everything", "keeps all"),
            RecordError,
            "PIN_INVALID generations/tiny.toml: filter.sha256: "
            f"expected {POLICY_SHA256}, read {OTHER_POLICY_SHA256} {WRITTEN_ONCE}",
        ),
        (
            _replace("filters/none-1.toml", '["characters"]', '["characters", "characters"]'),
            RecordError,
            "PIN_INVALID filters/none-1.toml: metrics: one metric or more, each named once",
        ),
        (
            _replace("generations/tiny.toml", "[filter]", "[filters]"),
            RecordError,
            "JSON_INVALID generations/tiny.toml: filters: unknown field "
            "(known here: codec, description, filter, generation, regions, source, split)",
        ),
        (
            _replace("generations/tiny.toml", '[[regions]]\npath = "a', '[[regions]]\npath = "b'),
            RecordError,
            "PIN_INVALID generations/tiny.toml: regions.path: expected ['a.parquet'], read b.parquet",
        ),
        *(
            (
                _replace("generations/tiny.toml", "[0, 4, 10]", str(cuts)),
                RecordError,
                f"PIN_INVALID generations/tiny.toml: regions.cuts: expected rising cuts up to 10 rows, read {cuts}",
            )
            for cuts in ([], [0], [0, 4, 4], [0, 4, 11], [4, 0])
        ),
        *(
            (
                _replace("filters/none-1.toml", DUPLICATE, rule + DUPLICATE),
                RecordError,
                f"PIN_INVALID filters/none-1.toml: rules[0] r: {problem}",
            )
            for rule, problem in (
                (RULE + 'kind = "threshold"\nat_least = 1\n', THRESHOLD),
                (RULE + 'kind = "threshold"\nmetric = "unknown"\nat_least = 1\n', THRESHOLD),
                (RULE + 'kind = "threshold"\nmetric = "characters"\n', THRESHOLD),
                (RULE + 'kind = "threshold"\nmetric = "characters"\nat_most = 1\naccept = [1]\n', THRESHOLD),
                (RULE + 'kind = "clusters"\nmetric = "characters"\n', "a clusters rule takes no metric and no bound"),
                (RULE + 'kind = "clusters"\nat_most = 1\n', "a clusters rule takes no metric and no bound"),
            )
        ),
        *(
            (
                _replace("filters/none-1.toml", DUPLICATE, rules),
                RecordError,
                "PIN_INVALID filters/none-1.toml: rules: "
                "a policy needs one duplicate rule, the last: document ids are unique in a region",
            )
            for rules in (DUPLICATE * 2, RULE + 'kind = "clusters"\naccept = [1]\n')
        ),
        (
            _rename("filters/none-1.toml", "filters/none-2.toml"),
            Absent,
            "PIN_MISSING filters/none-1.toml: there is no such pin file",
        ),
        (
            _rename("codecs/small/mixture.npz", "codecs/small/other.npz"),
            Absent,
            "PIN_MISSING codecs/small/mixture.npz: [Errno 2] No such file or directory: 'codecs/small/mixture.npz' "
            f"(supply the file of sha256 {sha256(b'mixture')})",
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
    """Every pin file in the checkout loads, with its hashes."""
    names = generation_names(pins)
    assert [load_generation(pins, name).name for name in names] == names
    folders = sorted((pins / "codecs").iterdir())
    assert [load_codec(folder).codec for folder in folders] == [folder.name for folder in folders]
