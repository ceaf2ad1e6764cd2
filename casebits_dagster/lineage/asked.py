"""A question as a person writes it, on the command line or in Dagster's launchpad; and where its answer is kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from casebits_dagster.lineage.ask import Question
from casebits_dagster.lineage.prov import audit_prov
from casebits_dagster.lineage.render import AnyAudit, audit_html, audit_markdown
from casebits_dagster.records.errors import RecordError
from casebits_dagster.records.layout import Home
from casebits_dagster.records.withdrawal import SourceRow
from casebits_dagster.stores.local import LocalStore


def asked(
    *,
    mix: str = "",
    window: int | None = None,
    shard: int | None = None,
    tokens: str = "",
    region: str = "",
    document: str = "",
    source_row: Sequence[str] = (),
    withdrawn: bool = False,
) -> Question:
    """Return the question of these texts: `tokens` as A:B, `region` as GENERATION/INDEX, `document` as 32 hex digits,
    `source_row` as generation, file and row. Raises RecordError on a text of another form, or several questions."""
    range_, place = _matched("tokens", r"([0-9]+):([0-9]+)", tokens), _matched("region", r"(.+)/([0-9]{1,9})", region)
    _matched("document", r"([0-9a-f]{32})", document)
    row = None
    if source_row:
        _matched("source row", r"(.+) (.+) ([0-9]+)", " ".join(source_row))
        generation, path, position = source_row
        fields = {"generation": generation, "path": path, "position": int(position)}
        row = SourceRow.from_dict(fields, "source row")
    question = Question(
        mix=mix,
        window=window,
        shard=shard,
        tokens=(int(range_[0]), int(range_[1])) if range_ else None,
        region=(place[0], int(place[1])) if place else None,
        document=document,
        source_row=row,
        withdrawn=withdrawn,
    )
    question.check()
    return question


def _matched(what: str, expression: str, text: str) -> tuple[str, ...]:
    found = re.fullmatch(expression, text)
    if text and not found:
        raise RecordError("QUESTION_INVALID", what, expected=f"text that matches {expression}", read=repr(text))
    return found.groups() if found else ()


def keep_audit(audit: AnyAudit, home: Home) -> list[Path]:
    """Write the audit below `audits/` of the home in every format, named by its question; return the files."""
    name, store = re.sub(r"[^a-z0-9_.]+", "-", audit.question.lower()), LocalStore(home.root, home.staging)
    contents = {
        "json": audit.to_bytes(),
        "md": audit_markdown(audit).encode(),
        "html": audit_html(audit).encode(),
        "prov.json": audit_prov(audit).encode(),
    }
    paths = []
    for suffix, content in contents.items():
        path = home.root / "audits" / f"{name}.{suffix}"
        store.replace(home.name(path), path.read_bytes() if path.exists() else None, content)
        paths.append(path)
    return paths
