"""Jobs that prove again what is published: regions picked at random, and any window of a mix back to its source.

They make nothing and admit nothing; what they find is told on the pages of the partitions, and fails the run.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

# No `from __future__ import annotations` here: Dagster reads the annotations of the steps themselves.
import dagster as dg
from pydantic import Field

from casebits_dagster.admission import Admitted, admit_apart
from casebits_dagster.lineage.ask import Question, audit
from casebits_dagster.lineage.asked import asked, keep_audit
from casebits_dagster.lineage.records import Audit
from casebits_dagster.lineage.render import AnyAudit, audit_markdown
from casebits_dagster.mixing.seeds import shuffled
from casebits_dagster.orchestration.checks import admitted_layers, failure_facts, rejected_layers
from casebits_dagster.orchestration.crosscheck import differences
from casebits_dagster.orchestration.events import evaluations
from casebits_dagster.orchestration.metadata import Metadata, Row, fields, latest_event, table
from casebits_dagster.orchestration.partitions import MIXES, asset_key, plain_name
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.orchestration.stages import ADMITTED, refuse
from casebits_dagster.records.errors import CasebitsError, Rejected
from casebits_dagster.records.layout import Home, region_id
from casebits_dagster.records.pins import Generation
from casebits_dagster.records.withdrawal import load_withdrawals
from casebits_dagster.stores.local import LocalStore
from casebits_dagster.stores.regions import admitted_regions

WEEKLY = "0 3 * * 0"


class ReproveConfig(dg.Config):
    """Which regions are proven again."""

    regions: int = Field(default=8, ge=1, description="How many of the admitted regions, picked at random.")
    seed: str = Field(default="", description="What the choice follows from; empty: the id of the run.")


class AuditConfig(dg.Config):
    """What is asked: a mix (or a part of it), a region, a document, a source row, or what is withdrawn."""

    mix: str = Field(default="", description="The name of a mix, as in assets/pins/mixes.")
    window: int | None = Field(default=None, description="Of the mix: window K, tokens K * T to (K + 1) * T.")
    shard: int | None = Field(default=None, description="Of the mix: one shard of the train stream.")
    tokens: str = Field(default="", description="Of the mix: tokens A up to B of the train stream, as A:B.")
    region: str = Field(default="", description="Instead of a mix: a region, as GENERATION/INDEX (sample/00003).")
    document: str = Field(default="", description="Instead: the id of a document, 32 hex digits; where it is held.")
    source_row: list[str] = Field(
        default=[], description="Instead: generation, file, row; what became of it, and where it is used."
    )
    withdrawn: bool = Field(default=False, description="Instead: where what the pins in withdrawals/ name is held.")
    recompute: Literal["slices", "all", "none"] = Field(
        default="all", description="Hash every file on the way and the source range again, what is read, or nothing."
    )


def reprove_job_name(generation: str) -> str:
    """Return the name of the job that proves regions of a generation again."""
    return f"{plain_name(generation)}_prove_again"


def reprove_job(generation: Generation) -> dg.JobDefinition:
    """Return the job that proves some admitted regions again, in full, from the published bytes and the source."""

    @dg.op(name=f"{plain_name(generation.name)}_prove_regions_again")
    def prove_regions_again(context: dg.OpExecutionContext, config: ReproveConfig, corpus: Corpus) -> None:
        if generation.missing:
            raise refuse(generation.missing)
        admitted = admitted_regions(corpus.home, generation.name, len(generation.plan))
        order = shuffled(len(admitted), config.seed or context.run.run_id).tolist()
        picked = sorted(admitted[place] for place in order[: config.regions])
        failed = dict[int, CasebitsError]()
        for number, index in enumerate(picked, 1):
            try:
                done = _prove(generation, index, corpus.home, context.run.run_id)
                results = admitted_layers(done.admission)
            except Rejected as error:
                failed[index], results = error, [*rejected_layers(error)]
            except CasebitsError as error:
                failed[index], results = error, []
            text = str(failed.get(index, "proven again, in full: its admission stands"))
            context.log.info(f"[{number}/{len(picked)}] region {region_id(index)}: {text}")
            _tell(context, generation, index, results, text, failed.get(index))
        if failed:
            names = ", ".join(region_id(index) for index in failed)
            rows = [{"region": region_id(index), "why": str(error)} for index, error in failed.items()]
            text = f"{len(failed)} of {len(picked)} regions do not prove any more: {names}"
            raise dg.Failure(text, metadata={"failed": table(rows)}, allow_retries=False)

    @dg.job(
        name=reprove_job_name(generation.name),
        description="Picks admitted regions at random and proves them again, in full, from their published bytes and "
        "their source. Materialises nothing; a region that does not prove any more fails its checks and the run.",
    )
    def job() -> None:
        prove_regions_again()

    return job


def reprove_weekly(generation: Generation) -> dg.ScheduleDefinition:
    """Return the schedule of that job, every Sunday, each time with another choice."""

    @dg.schedule(
        name=f"{reprove_job_name(generation.name)}_weekly",
        cron_schedule=WEEKLY,
        job_name=reprove_job_name(generation.name),
        description="Every Sunday night: other regions each week, the same ones for the same week.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        week = f"{context.scheduled_execution_time:%G-W%V}"
        config = dg.RunConfig(ops={f"{plain_name(generation.name)}_prove_regions_again": ReproveConfig(seed=week)})
        return dg.RunRequest(week, run_config=config)

    return schedule


def audit_job(generations: Sequence[Generation]) -> dg.JobDefinition:
    """Return the job that answers one question of lineage, from the files alone."""
    named = {generation.name: generation for generation in generations}

    @dg.op(name="follow_window")
    def follow_window(context: dg.OpExecutionContext, config: AuditConfig, corpus: Corpus) -> None:
        try:
            question = asked(**{name: value for name, value in config.model_dump().items() if name != "recompute"})
            withdrawals = load_withdrawals(generations[0].source.pins_folder) if generations else {}
            found = audit(corpus.home, question, generations=named, recompute=config.recompute, withdrawals=withdrawals)
        except CasebitsError as error:
            raise dg.Failure(str(error), metadata=failure_facts(error), allow_retries=False) from error
        page = _audit_page(found, keep_audit(found, corpus.home), differences(context.instance, found))
        verdict = f"{len(found.failures)} do not hold" if found.failures else "all hold"
        text = f"{found.question}: {len(found.evidence)} links, {verdict}"
        context.log.info(text)
        context.add_output_metadata(page)
        for key, partition in _subjects(question):
            context.log_event(dg.AssetObservation(key, description=text, partition=partition, metadata=page))
        if found.failures:
            raise dg.Failure(text, metadata={"audit": page["audit"], "links": page["links"]}, allow_retries=False)

    @dg.job(
        name="audit",
        description="Answers one question: where a window, a shard, tokens or the whole of a mix come from; where a "
        "region, a document or a source row went, and why a row was dropped. The report lies below audits/ of the "
        "home, and on the page of the mix or region; a link that does not hold fails the run.",
    )
    def job() -> None:
        follow_window()

    return job


def _subjects(question: Question) -> list[tuple[dg.AssetKey, str | None]]:
    """Return the asset, and the partition of it, that a question is of; none when it is of everything."""
    if question.mix:
        return [(asset_key(MIXES, question.mix), None)]
    return [(asset_key(question.region[0], ADMITTED), region_id(question.region[1]))] if question.region else []


def _audit_page(found: AnyAudit, files: Sequence[Path], told: Sequence[Row]) -> Metadata:
    broken_first = sorted(found.evidence, key=lambda link: link.state != "different")
    uses = found.uses if isinstance(found, Audit) else ()
    return {
        "proven": found.proven,
        "audit": dg.MetadataValue.md(audit_markdown(found)),
        "documents": table([fields(one, "id", "region", "index", "tokens", "split") for one in found.documents]),
        "mixes": table([fields(one, "mix", "split", "documents", "tokens", "windows") for one in uses]),
        "links": table([fields(link, "link", "where", "state", "problem") for link in broken_first]),
        "event_log": table(told) if told else "no difference",
        **{f"file_{path.name.partition('.')[2]}".replace(".", "_"): path for path in files},
    }


def _prove(generation: Generation, index: int, home: Home, run_id: str) -> Admitted:
    with _published(home) as place:
        return admit_apart(generation, index, place, run_id=run_id, full=True)


@contextmanager
def _published(home: Home) -> Iterator[Home]:
    """Yield a home whose regions come from where all readers get them: from the shared store, not from a copy."""
    if not home.shared:
        yield home
        return
    with LocalStore(home.root, home.staging).staged("prove_again") as staging:
        yield Home(staging, home.shared)


def _tell(
    context: dg.OpExecutionContext,
    generation: Generation,
    index: int,
    results: Sequence[dg.AssetCheckResult],
    text: str,
    error: CasebitsError | None,
) -> None:
    key, partition = asset_key(generation.name, ADMITTED), region_id(index)
    facts: Metadata = failure_facts(error) if error else {"proven": True}
    for event in evaluations(key, partition, results, latest_event(context.instance, key, partition)):
        context.log_event(event)  # type: ignore[arg-type]
    context.log_event(dg.AssetObservation(key, description=text, partition=partition, metadata=facts))
