"""The card of a publication: facts that its records have, each statement that belongs there, and no claim beyond."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import DatasetCard
from hypothesis import given
from hypothesis import strategies as st

from casebits_dagster.publication.card import frontier_cover, mix_cover, require_clearance
from casebits_dagster.publication.consume import Frontier, open_frontier
from casebits_dagster.publication.licence import hub_licence, is_ranked, licence_url, most_restrictive
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.frontier import GatesPointer, Latest, Manifest, ManifestPointer
from casebits_dagster.records.gates import GATES, Gate, Gates
from casebits_dagster.records.layout import Home
from casebits_dagster.records.mix import MixReport, SourceUsed
from casebits_dagster.records.mix_latest import MixLatest
from casebits_dagster.records.pins import Generation, load_generation
from casebits_dagster.records.signed import Clearance
from tests.sample import mix_reports

HEX = "ab" * 32
CLIMBMIX = "climbmix-lower32k-v1"
SAMPLE_LICENCE = "CC0-1.0 AND PSF-2.0 AND LicenseRef-public-domain"


def clearance_of(generation: Generation) -> Clearance:
    source = generation.source.pin
    return Clearance(
        generation=generation.name,
        repo=source.repo,
        revision=source.revision,
        licence_spdx=source.licence_spdx,
        cleared_by="A. Person",
        cleared_on="2026-01-02",
        ground="the licence allows it",
    )


def with_source(generation: Generation, **changes: str) -> Generation:
    source = generation.source
    return replace(generation, source=replace(source, pin=replace(source.pin, **changes)))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sample(pins: Path) -> Generation:
    return load_generation(pins, "sample")


@pytest.fixture(scope="module")
def climbmix(pins: Path) -> Generation:
    return load_generation(pins, CLIMBMIX)


@pytest.fixture(scope="module")
def frontier(sample_home: Home) -> Frontier:
    return open_frontier(sample_home.root, "sample")


@pytest.fixture(scope="module")
def building(frontier: Frontier) -> tuple[Manifest, Latest]:
    """Version 1 of a frontier that holds 14 of 2,100 regions."""
    plan = replace(frontier.manifest.plan, total=2100)
    return replace(frontier.manifest, plan=plan), replace(frontier.latest, status="building", gates=None)


@pytest.fixture(scope="module")
def card(climbmix: Generation, building: tuple[Manifest, Latest]) -> str:
    """The card of the production generation while it is building, no gate declared."""
    return text_of(frontier_cover(climbmix, building[0], None, building[1], clearance_of(climbmix)))


@pytest.fixture(scope="module")
def report(sample_home: Home) -> MixReport:
    return mix_reports(sample_home)["sample_aligned"]


MIX_LATEST = MixLatest(
    mix="sample_aligned",
    version=3,
    manifest=ManifestPointer(path=f"sample_aligned/{HEX[:16]}/MANIFEST.txt", revision="0" * 40, sha256=HEX, bytes=9),
    published_at="2026-01-02T03:04:05Z",
    expires_at=None,
)


@pytest.fixture(scope="module")
def mixed(report: MixReport, sample: Generation, climbmix: Generation) -> dict[str, bytes]:
    """The files beside a mix of the sample and the production generation."""
    used = SourceUsed(
        generation=CLIMBMIX,
        manifest_version=7,
        manifest_sha256=HEX,
        vocabulary_sha256=HEX,
        licences=("CC-BY-NC-4.0",),
    )
    made = replace(report, sources=(*report.sources, used), licences=("CC-BY-NC-4.0", SAMPLE_LICENCE))
    return mix_cover(made, [climbmix, sample], MIX_LATEST, [clearance_of(climbmix), clearance_of(sample)])


def text_of(cover: dict[str, bytes]) -> str:
    return cover["README.md"].decode()


def unfolded(text: str) -> str:
    return " ".join(text.split())


def gates(state: str = "closed") -> Gates:
    closed = {
        "coverage": "14 of the 2100 planned regions are admitted",
        "stratification": "no policy is pinned",
        "packing": "no verified mix was built on this version",
        "production": "no person has signed this version",
    }
    opened = {
        "coverage": "2100 of the 2100 planned regions are admitted",
        "stratification": "every stratum is within its tolerance",
        "packing": "built on this version and verified: a | b",
        "production": "signed by A. Person on 2026-01-03:\n\n# fit for\ttraining",
    }
    why = opened if state == "open" else closed
    named = {name: Gate(state=state, why=why[name], evidence=(), numbers={}) for name in GATES}  # type: ignore[arg-type]
    return Gates(generation=CLIMBMIX, version=1, manifest_sha256=HEX, **named)


STATEMENTS = {
    "status": "Status `building`: 14 of 2100 planned regions.",
    "manifest": "Manifest `frontier/manifests/00000001.json`, SHA-256 `",
    "beyond the prefix": "Regions that lie here beyond those are in no manifest, and must not be read.",
    "nothing more": "This card claims nothing beyond these tables.",
    "source": "- source: Nemotron-ClimbMix, `nvidia/Nemotron-ClimbMix`",
    "revision": "- revision: `5eaa64b9c0c85b7f56af01d7dffdb0795816b12b`",
    "url": "- where: https://huggingface.co/datasets/nvidia/Nemotron-ClimbMix",
    "licence": "- licence: CC-BY-NC-4.0",
    "changes": "- changes: Detokenised, filtered, tokenised again with a lower-case vocabulary and masks",
    "clearance": "- cleared for publication: by A. Person on 2026-01-02; ground: the licence allows it",
    "duties": "Tokenising removes no copyright, and no duty of attribution or of redistribution",
    "new": "This generation is new. It is not bitwise equal to any earlier corpus; the storage of an earlier one is a "
    "historical reference only, from which nothing was read.",
    "filter": "The filter, `climbmix-reconstruction-1`, is a named reconstruction, pinned by hash.",
    "no affiliation": "There is no affiliation with, and no endorsement by, the owners of the source (NVIDIA).",
    "best effort": "Public storage is best effort",
    "no stream": "There is no dataset viewer, and no generic viewer or `load_dataset` stream is promised.",
    "readiness": "Corpus readiness and trainer readiness are separate",
    "how to read": 'casebits_dagster.open_frontier("hf://datasets/OWNER/NAME")',
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_of_the_card(card: str, name: str) -> None:
    assert unfolded(card).count(STATEMENTS[name]) == 1


MIX_STATEMENTS = {
    "what it is": "Windows of 2,048 tokens, strategy `aligned`: 400 for training, 16 for validation.",
    "no gates": "A mix has no gates of its own, and this card claims nothing of it beyond its report.",
    "frontier": f"- `{CLIMBMIX}`, version 7, manifest SHA-256 `{HEX}`",
    "all licences": f"- CC-BY-NC-4.0 - {SAMPLE_LICENCE}",
    "most restrictive": "The most restrictive, stated for the whole: CC-BY-NC-4.0.",
    "new": "This mix, and each generation that it is made from, is new. It is not bitwise equal to any earlier corpus;",
    "filter": "The filter, `climbmix-reconstruction-1` and `sample-1`, is a named policy, pinned by hash.",
    "no affiliation": "There is no affiliation with, and no endorsement by, the owners of the source (NVIDIA).",
    "how to read": 'casebits_dagster.open_mix("hf://datasets/OWNER/NAME")',
    **{name: STATEMENTS[name] for name in ("duties", "best effort", "no stream", "readiness", "source", "revision")},
}


@pytest.mark.parametrize("name", MIX_STATEMENTS)
def test_a_statement_of_a_mix(mixed: dict[str, bytes], name: str) -> None:
    assert unfolded(text_of(mixed)).count(MIX_STATEMENTS[name]) == 1


def test_no_card_claims_what_it_must_not(card: str, mixed: dict[str, bytes], climbmix: Generation) -> None:
    for text in (card, text_of(mixed)):
        words = unfolded(text).lower()
        forbidden = (
            "kefir",
            "frozen",
            climbmix.pin.description.lower(),
            "2,100",
            "shard",
            "per second",
            "tokens/s",
            "fast",
        )
        assert [word for word in forbidden if word in words] == []


def test_closed_gates_are_told_without_a_word_of_open_ones(
    climbmix: Generation, building: tuple[Manifest, Latest]
) -> None:
    manifest, latest = building
    latest = replace(latest, gates=GatesPointer(path=f"gates/00000001.{HEX[:16]}.json", sha256=HEX))
    closed = text_of(frontier_cover(climbmix, manifest, gates(), latest, clearance_of(climbmix)))
    for name in GATES:
        assert closed.count(f"| {name} | closed | {getattr(gates(), name).why} |") == 1
    assert closed.count(f"`gates/00000001.{HEX[:16]}.json` names the evidence, file by file.") == 1
    opened = text_of(frontier_cover(climbmix, manifest, gates("open"), latest, clearance_of(climbmix)))
    words = [
        r"\bopen\b",
        r"\bcomplete\b",
        "representative",
        "within its tolerance",
        r"\bsigned by",
        "verified: ",
        "fit for",
    ]
    words += ["production-ready", "ready for", "fully", "whole plan", "all regions"]
    assert [word for word in words if re.search(word, closed)] == []
    assert [word for word in words[:7] if re.search(word, opened)] == [r"\bopen\b", *words[3:7]]


def test_open_gates_stay_in_their_rows(climbmix: Generation, building: tuple[Manifest, Latest]) -> None:
    opened = text_of(frontier_cover(climbmix, building[0], gates("open"), building[1], clearance_of(climbmix)))
    assert opened.count("| packing | open | built on this version and verified: a \\| b |\n") == 1
    assert opened.count("| production | open | signed by A. Person on 2026-01-03: # fit for training |\n") == 1


def test_gates_that_nobody_declared(card: str) -> None:
    assert [card.count(f"| {name} | not declared | |\n") for name in GATES] == [1, 1, 1, 1]
    assert card.count("No gate is declared.") == 1


def test_too_little_data_is_told_as_that(climbmix: Generation, building: tuple[Manifest, Latest]) -> None:
    found = replace(gates(), stratification=Gate(state="not_enough_data", why="9 documents", evidence=(), numbers={}))
    told = text_of(frontier_cover(climbmix, building[0], found, building[1], clearance_of(climbmix)))
    assert told.count("| stratification | not enough data | 9 documents |") == 1


def metadata(text: str) -> dict[str, object]:
    """Return the metadata as the Hub's own client reads it."""
    found: dict[str, object] = DatasetCard(text).data.to_dict()  # type: ignore[no-untyped-call]
    return found


def test_the_metadata_while_building(card: str) -> None:
    assert metadata(card) == {
        "language": ["en"],
        "license": "cc-by-nc-4.0",
        "pretty_name": f"{CLIMBMIX}, made from Nemotron-ClimbMix",
        "task_categories": ["text-generation"],
        "tags": ["casebits", "pretraining", "tokenized-text", "work-in-progress"],
        "viewer": False,
    }


def test_the_metadata_of_a_complete_frontier(sample: Generation, frontier: Frontier) -> None:
    found = metadata(text_of(frontier_cover(sample, frontier.manifest, None, frontier.latest, clearance_of(sample))))
    assert found == {
        "language": ["en"],
        "license": "other",
        "license_name": "cc0-1.0-and-psf-2.0-and-licenseref-public-domain",
        "pretty_name": "sample, made from Public-domain and permissive sample in ClimbMix's columns",
        "task_categories": ["text-generation"],
        "tags": ["casebits", "pretraining", "tokenized-text"],
        "viewer": False,
    }


def test_a_licence_with_a_page_is_linked(climbmix: Generation, building: tuple[Manifest, Latest]) -> None:
    own = with_source(climbmix, licence_spdx="LicenseRef-Own", url="https://example.org/terms")
    found = metadata(text_of(frontier_cover(own, building[0], None, building[1], clearance_of(own))))
    assert [found[name] for name in ("license", "license_name", "license_link")] == [
        "other",
        "licenseref-own",
        "https://example.org/terms",
    ]


def test_the_metadata_of_a_mix(mixed: dict[str, bytes]) -> None:
    found = metadata(text_of(mixed))
    assert (found["license"], found["pretty_name"]) == ("cc-by-nc-4.0", "sample_aligned")


def test_text_of_a_pin_cannot_change_the_card(sample: Generation, frontier: Frontier) -> None:
    title = 'T"\n---\nlicense: mit\n---\n\u2028\x7f\x00 | `'
    own = with_source(sample, title=title, url="a\nb", changes="- x\n# y")
    text = text_of(frontier_cover(own, frontier.manifest, None, frontier.latest, clearance_of(own)))
    assert metadata(text)["pretty_name"] == 'sample, made from T" --- license: mit --- | `'
    assert (metadata(text)["license"], text.count("\n# "), text.count("- changes: - x # y\n")) == ("other", 1, 1)


def test_the_attribution_names_source_terms_changes_and_who_cleared_it(mixed: dict[str, bytes], pins: Path) -> None:
    found = mixed["ATTRIBUTION.md"].decode()
    for statement in ("source", "revision", "url", "licence", "changes", "clearance"):
        assert unfolded(found).count(STATEMENTS[statement].rstrip(";")) >= 1, statement
    assert found.count((pins / "sample" / "NOTICES.md").read_text()) == 1
    assert re.findall("^## Generation .*", found, re.MULTILINE) == [
        "## Generation `sample`",
        f"## Generation `{CLIMBMIX}`",
    ]


def test_the_same_pins_and_records_make_the_same_bytes(
    climbmix: Generation, building: tuple[Manifest, Latest], card: str
) -> None:
    again = frontier_cover(climbmix, building[0], None, building[1], clearance_of(climbmix))
    assert (text_of(again), sorted(again)) == (card, ["ATTRIBUTION.md", "README.md", "croissant.json"])


def test_the_recipe_of_the_card_works_as_it_stands(sample: Generation, frontier: Frontier, tmp_path: Path) -> None:
    text = text_of(frontier_cover(sample, frontier.manifest, None, frontier.latest, clearance_of(sample)))
    script = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    assert len(script.splitlines()) <= 10
    script = script.replace("hf://datasets/OWNER/NAME", str(frontier.folder.root))
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    region = frontier.region(0)
    line = next(line for line in region.documents() if line["split"] == "train")
    want = f"898 {line['id']} {line['cluster']}\n{region.document(line['index'], frontier.codec)}\n"
    assert (done.stderr, done.stdout) == ("", want)


# Clearance and licence.


def test_the_newest_clearance_that_fits_is_named(sample: Generation) -> None:
    pin = clearance_of(sample)
    newer = replace(pin, cleared_on="2026-02-01", ground="again")
    other = replace(newer, generation="other", cleared_on="2026-03-01")
    assert require_clearance(sample, [newer, pin, other]) == newer


Change = Callable[[Clearance], Clearance]
UNFIT: list[tuple[str, Change]] = [
    ("generation", lambda pin: replace(pin, generation="other")),
    ("repo", lambda pin: replace(pin, repo="sample/other")),
    ("revision", lambda pin: replace(pin, revision="0" * 40)),
    ("licence", lambda pin: replace(pin, licence_spdx="CC0-1.0")),
]


@pytest.mark.parametrize(("name", "change"), UNFIT)
def test_a_clearance_for_anything_else_clears_nothing(
    sample: Generation, frontier: Frontier, name: str, change: Change
) -> None:
    pin, changed = clearance_of(sample), change(clearance_of(sample))
    said = {f"{changed.repo} {changed.revision} {changed.licence_spdx}"} if name != "generation" else "no clearance"
    with pytest.raises(Refused) as caught:
        frontier_cover(sample, frontier.manifest, None, frontier.latest, changed)
    assert str(caught.value) == (
        f"CLEARANCE_MISSING clearances: sample: expected {pin.repo} {pin.revision} {pin.licence_spdx}, read {said} "
        "(a person who may do so writes clearances/<name>.toml below the pins: who, when, on what ground)"
    )


def test_no_mix_is_described_without_a_clearance_of_each_source(report: MixReport, sample: Generation) -> None:
    with pytest.raises(Refused, match=r"^CLEARANCE_MISSING clearances: sample: .* read no clearance"):
        mix_cover(report, [sample], MIX_LATEST, [])
    with pytest.raises(Refused) as caught:
        mix_cover(report, [], MIX_LATEST, [clearance_of(sample)])
    assert str(caught.value) == "SOURCE_PIN sample_aligned: sources: expected the pin of sample, read none"


@pytest.mark.parametrize("licence", ["", " ", "NONE", "NOASSERTION", "unknown", "LicenseRef-unknown"])
def test_a_source_without_a_licence_is_not_published(sample: Generation, report: MixReport, licence: str) -> None:
    own = with_source(sample, licence_spdx=licence)
    with pytest.raises(Refused) as caught:
        require_clearance(own, [clearance_of(own)])
    assert str(caught.value) == (
        f"LICENCE_MISSING generations/sample.toml: source.licence_spdx: expected an SPDX expression, read {licence!r} "
        "(find out under which terms the source is given, and pin them in a new generation)"
    )
    with pytest.raises(Refused, match=r"^LICENCE_MISSING sample_aligned: licences: expected an SPDX expression"):
        mix_cover(replace(report, licences=(licence,)), [sample], MIX_LATEST, [clearance_of(sample)])


ORDER = [
    "CC0-1.0",
    SAMPLE_LICENCE,
    "CC-BY-4.0",
    "CC-BY-SA-4.0",
    "CC-BY-NC-4.0",
    "CC-BY-NC-SA-4.0",
    "CC-BY-ND-4.0",
    "CC-BY-NC-ND-4.0",
    "LicenseRef-Own",
]


@given(st.lists(st.sampled_from(ORDER), min_size=1))
def test_the_most_restrictive_is_stated(licences: list[str]) -> None:
    assert most_restrictive(licences) == (max(licences, key=ORDER.index),)


def test_licences_alike_or_unknown_are_all_named() -> None:
    assert most_restrictive(["ODC-By-1.0", "MIT", "cc-by-4.0"]) == ("ODC-By-1.0", "cc-by-4.0")
    assert most_restrictive(["X", "CC-BY-NC-ND-4.0", "MIT OR X"]) == ("MIT OR X", "X")
    assert [is_ranked(spdx) for spdx in ("MIT AND CC0-1.0", "MIT AND X", "mit")] == [True, False, True]


def test_an_unknown_licence_is_named_as_the_most_restrictive(report: MixReport, sample: Generation) -> None:
    made = replace(report, licences=("LicenseRef-Own", "CC-BY-NC-ND-4.0"))
    text = unfolded(text_of(mix_cover(made, [sample], MIX_LATEST, [clearance_of(sample)])))
    assert text.count("The most restrictive, stated for the whole: LicenseRef-Own.") == 1
    assert text.count("In no known order, and so taken as the most restrictive: LicenseRef-Own.") == 1


def test_what_a_licence_is_called_elsewhere() -> None:
    names = ("CC-BY-NC-4.0", "cc-by-nc-4.0", "ODC-By-1.0", "PSF-2.0", "MIT AND CC0-1.0", "GPL-3.0-only")
    assert [hub_licence(name) for name in names] == [
        "cc-by-nc-4.0",
        "cc-by-nc-4.0",
        "odc-by",
        "other",
        "other",
        "other",
    ]
    urls = [licence_url(name) for name in ("cc-by-nc-4.0", "LicenseRef-public-domain", "MIT AND X")]
    assert urls == ["https://spdx.org/licenses/CC-BY-NC-4.0.html", "LicenseRef-public-domain", "MIT AND X"]
