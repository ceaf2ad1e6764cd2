"""What a publication says of itself: the card (README.md), ATTRIBUTION.md and croissant.json.

Nothing is claimed here. Status, gates and counts are copied from records that a consumer checks; source, licence and
clearance from pins. What a generation's own description says of its size is left out: it tells of the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from casebits_dagster.publication.croissant import frontier_croissant, mix_croissant
from casebits_dagster.publication.licence import (
    hub_licence,
    hub_licence_name,
    is_ranked,
    most_restrictive,
    require_licence,
)
from casebits_dagster.records.errors import Refused
from casebits_dagster.records.frontier import Latest, Manifest
from casebits_dagster.records.gates import GATES, Gate, Gates
from casebits_dagster.records.mix import MixReport
from casebits_dagster.records.mix_latest import MixLatest
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.signed import Clearance

CARD, ATTRIBUTION, CROISSANT = "README.md", "ATTRIBUTION.md", "croissant.json"
NOTICES = "NOTICES.md"
_OWNERS = {"nvidia": "NVIDIA"}

_FRONTIER = """# `{name}`: documents of {title}, version {version}

Filtered, and encoded as arrays of token ids{masks}. Every region that the manifest lists was proven against the pinned
source by a verifier apart from its producer.

## Status

Status `{status}`: {count} of {total} planned regions. Manifest `{path}`, SHA-256 `{sha256}`.
Regions that lie here beyond those are in no manifest, and must not be read.

| gate | state | what it rests on |
|---|---|---|
{gates}

{gates_file}

| split | documents | tokens | bytes of text |
|---|---|---|---|
{splits}

Counts are those of the manifest. This card claims nothing beyond these tables.

## Source, licence, changes

{sources}

## How to read it

Put this location, or a folder that holds a copy of it, in the place of OWNER/NAME.

```python
import casebits_dagster

frontier = casebits_dagster.open_frontier("hf://datasets/OWNER/NAME")
documents = frontier.documents(split="train")
print(len(documents), documents[0].id, documents[0].cluster)
print(documents[0].text)
```

What does not hash as listed is refused, with one code that says what is wrong.

## Terms and limits

{terms}
"""
_MIX = """# `{name}`: a packed mix, version {version}

Windows of {length:,} tokens, strategy `{strategy}`: {train:,} for training, {validation:,} for validation.
Manifest `{path}`, SHA-256 `{sha256}`; beside it
`mix_report.json` has every number, and another README how a loader reads the arrays.

## Status

A mix has no gates of its own, and this card claims nothing of it beyond its report. It was made from these frontiers,
whose gates are told where they are published:

{frontiers}

## Sources, licences, changes

{licences}

{sources}

## How to read it

Put this location, or a folder that holds a copy of it, in the place of OWNER/NAME.

```python
import casebits_dagster

mix = casebits_dagster.open_mix("hf://datasets/OWNER/NAME")
print(mix.report.train.windows, mix.file("{shard}"))
```

What does not hash as listed is refused, with one code that says what is wrong.

## Terms and limits

{terms}
"""
_SOURCE = """\
- source: {title}, `{repo}`
- revision: `{revision}`
- where: {url}
- licence: {licence}
- changes: {changes}
- filter: `{policy}`, SHA-256 `{policy_sha256}`
- cleared for publication: by {by} on {on}; ground: {ground}"""
_TERMS = """\
- Tokenising removes no copyright, and no duty of attribution or of redistribution: the arrays decode to the exact
  text. Whoever passes them on passes on the source's terms; [ATTRIBUTION.md](ATTRIBUTION.md) goes with every copy.
- {new} It is not bitwise equal to any earlier corpus; the storage of an earlier one is a historical reference only,
  from which nothing was read.
- {filters} It is not the rules of any earlier corpus, and is not said to be.
- There is no affiliation with, and no endorsement by, the owners of the source{owners}.
- Public storage is best effort: it may be slow, limited or gone. Keep a copy of what a run rests on.
- There is no dataset viewer, and no generic viewer or `load_dataset` stream is promised.
- Corpus readiness and trainer readiness are separate: nothing here says that any trainer reads this rightly, or that a
  model should be trained on it."""


def require_clearance(generation: Generation, clearances: Iterable[Clearance]) -> Clearance:
    """Return the newest clearance that is for this generation's source at its revision, under its licence.

    Raises Refused LICENCE_MISSING when the pin names no licence, CLEARANCE_MISSING when nobody cleared just that.
    """
    source, where = generation.source.pin, f"clearances: {generation.name}"
    require_licence(source.licence_spdx, f"generations/{generation.name}.toml: source.licence_spdx")
    wanted = (source.repo, source.revision, source.licence_spdx)
    signed = {
        (pin.repo, pin.revision, pin.licence_spdx): pin
        for pin in sorted(clearances, key=lambda pin: pin.cleared_on)
        if pin.generation == generation.name
    }
    if wanted not in signed:
        remedy = "a person who may do so writes clearances/<name>.toml below the pins: who, when, on what ground"
        said = {" ".join(pin) for pin in signed} or "no clearance"
        raise Refused("CLEARANCE_MISSING", where, expected=" ".join(wanted), read=said, remedy=remedy)
    return signed[wanted]


def frontier_cover(
    generation: Generation, manifest: Manifest, gates: Gates | None, latest: Latest, clearance: Clearance
) -> dict[str, bytes]:
    """Return the files beside LATEST.json of a frontier, by name. Raises as `require_clearance`."""
    cleared = {generation.name: require_clearance(generation, [clearance])}
    source, used = generation.source.pin, [generation]
    splits = [(name, getattr(manifest.splits, name)) for name in ("train", "validation")]
    named = (
        f"`{latest.gates.path}` names the evidence, file by file." if latest.gates and gates else "No gate is declared."
    )
    tags = ["work-in-progress"] if latest.status == "building" else []
    text = _FRONTIER.format(
        title=_line(source.title),
        name=generation.name,
        masks=" and of masks of their capitals" if generation.pins.codec.format == "casebits-1" else "",
        version=latest.version,
        status=latest.status,
        count=manifest.count,
        total=manifest.plan.total,
        path=latest.manifest.path,
        sha256=latest.manifest.sha256,
        gates="\n".join(_gate(name, gates.named[name] if gates else None) for name in GATES),
        gates_file=named,
        splits="\n".join(f"| {name} | {n.documents:,} | {n.tokens:,} | {n.raw_bytes:,} |" for name, n in splits),
        sources=_source(generation, cleared),
        terms=_terms(used, "This generation is new."),
    )
    return {
        CARD: (
            _metadata(f"{generation.name}, made from {source.title}", (source.licence_spdx,), source.url, tags) + text
        ).encode(),
        ATTRIBUTION: _attribution(used, cleared),
        CROISSANT: frontier_croissant(generation, manifest, latest),
    }


def mix_cover(
    report: MixReport, generations: Sequence[Generation], latest: MixLatest, clearances: Iterable[Clearance]
) -> dict[str, bytes]:
    """Return the files beside LATEST.json of a mix, by name. Raises as `require_clearance`, of any of its sources."""
    pins, clearances = {one.name: one for one in generations}, list(clearances)
    if lacking := sorted({source.generation for source in report.sources} - set(pins)):
        raise Refused("SOURCE_PIN", f"{report.recipe.mix}: sources", expected=f"the pin of {lacking[0]}", read="none")
    used = [pins[source.generation] for source in report.sources]
    cleared = {one.name: require_clearance(one, clearances) for one in used}
    stated = {require_licence(spdx, f"{report.recipe.mix}: licences") for spdx in report.licences}
    licences = sorted(stated | {one.source.pin.licence_spdx for one in used})
    strictest = most_restrictive(licences)
    frontiers = [
        f"- `{one.generation}`, version {one.manifest_version}, manifest SHA-256 `{one.manifest_sha256}`"
        for one in report.sources
    ]
    text = _MIX.format(
        name=latest.mix,
        version=latest.version,
        length=report.recipe.sequence_length,
        strategy=report.recipe.strategy,
        train=report.train.windows,
        validation=report.validation.windows,
        path=latest.manifest.path,
        sha256=latest.manifest.sha256,
        frontiers="\n".join(frontiers),
        licences=_licences(licences, strictest),
        sources="\n\n".join(f"### `{one.name}`\n\n{_source(one, cleared)}" for one in used),
        shard="train_000000.ids.u16le" if report.codec == "casebits-1" else "train_000000.bin",
        terms=_terms(used, "This mix, and each generation that it is made from, is new."),
    )
    return {
        CARD: (_metadata(latest.mix, strictest, used[0].source.pin.url if len(used) == 1 else "", []) + text).encode(),
        ATTRIBUTION: _attribution(used, cleared),
        CROISSANT: mix_croissant(report, latest, strictest),
    }


def _metadata(title: str, licences: Sequence[str], url: str, tags: Sequence[str]) -> str:
    """Return the card's YAML: a licence that the Hub does not have, or more than one, is `other` with its name."""
    name = hub_licence(licences[0]) if len(licences) == 1 else "other"
    lines = [f"license: {name}"]
    if name == "other":
        lines.append(f"license_name: {json.dumps(hub_licence_name(licences))}")
        lines += [f"license_link: {json.dumps(_line(url))}"] if url.startswith("https://") else []
    tagged = "".join(f"- {tag}\n" for tag in ("casebits", "pretraining", "tokenized-text", *tags))
    return (
        "---\nlanguage:\n- en\n" + "\n".join(lines) + f"\npretty_name: {json.dumps(_line(title), ensure_ascii=False)}\n"
        f"task_categories:\n- text-generation\ntags:\n{tagged}viewer: false\n---\n\n"
    )


def _gate(name: str, gate: Gate | None) -> str:
    if gate is None:
        return f"| {name} | not declared | |"
    return f"| {name} | {gate.state.replace('_', ' ')} | {_line(gate.why).replace('|', chr(92) + '|')} |"


def _source(generation: Generation, cleared: dict[str, Clearance]) -> str:
    source, clearance = generation.source.pin, cleared[generation.name]
    return _SOURCE.format(
        title=_line(source.title),
        repo=_line(source.repo),
        revision=source.revision,
        url=_line(source.url),
        licence=_line(source.licence_spdx),
        changes=_line(source.changes),
        policy=generation.policy.policy_id,
        policy_sha256=generation.pins.filter.sha256,
        by=_line(clearance.cleared_by),
        on=clearance.cleared_on,
        ground=_line(clearance.ground),
    )


def _licences(licences: Sequence[str], strictest: Sequence[str]) -> str:
    unknown = [spdx for spdx in licences if not is_ranked(spdx)]
    lines = [
        "Each source's terms go on holding for what came from it:",
        "",
        *(f"- {_line(spdx)}" for spdx in licences),
        "",
        f"The most restrictive, stated for the whole: {_line(', '.join(strictest))}.",
    ]
    if unknown:
        lines.append(f"In no known order, and so taken as the most restrictive: {_line(', '.join(unknown))}.")
    return "\n".join(lines)


def _terms(generations: Sequence[Generation], new: str) -> str:
    policies = sorted({generation.policy.policy_id for generation in generations})
    named = " and ".join(f"`{policy}`" for policy in policies)
    kind = "a named reconstruction" if all("reconstruction" in policy for policy in policies) else "a named policy"
    return _TERMS.format(
        new=new, filters=f"The filter, {named}, is {kind}, pinned by hash.", owners=_owners(generations)
    )


def _owners(generations: Sequence[Generation]) -> str:
    """Name the owners of the sources, where they are known: those of datasets of the Hub."""
    pins = (generation.source.pin for generation in generations)
    owners = sorted({pin.repo.split("/")[0] for pin in pins if pin.repo_type == "dataset"})
    named = ", ".join(_OWNERS.get(owner.lower(), _line(owner)) for owner in owners)
    return f" ({named})" if named else ""


def _attribution(generations: Sequence[Generation], cleared: dict[str, Clearance]) -> bytes:
    """Return ATTRIBUTION.md: each source, and the notices that lie beside one whose files come with the pins."""
    parts = ["# Attribution\n"]
    for generation in generations:
        parts.append(f"## Generation `{generation.name}`\n\n{_source(generation, cleared)}\n")
        notices = generation.source.folder / NOTICES
        if generation.source.pin.repo_type == "folder" and notices.is_file():
            parts.append(notices.read_text(encoding="utf-8"))
    return "\n".join(parts).encode()


def _line(text: str) -> str:
    """Return text on one line, without characters that are not printed: it may come from anyone's pin."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
