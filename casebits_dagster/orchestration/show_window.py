"""A job that puts one window of a mix, as a person reads it, on the page of the mix."""

from typing import Literal

# No `from __future__ import annotations` here: Dagster reads the annotations of the steps themselves.
import dagster as dg
from pydantic import Field

from casebits_dagster.lineage.show import show_markdown, show_window
from casebits_dagster.orchestration.checks import failure_facts
from casebits_dagster.orchestration.metadata import Metadata, fields, table
from casebits_dagster.orchestration.partitions import asset_key
from casebits_dagster.orchestration.resources import Corpus
from casebits_dagster.records.errors import CasebitsError

_COLUMNS = ("number", "position", "length", "kind", "domain", "generation", "region", "index", "source_position")


class ShowConfig(dg.Config):
    """Which window is shown."""

    mix: str = Field(description="The name of a mix, as in assets/pins/mixes.")
    window: int = Field(ge=0, description="The number of a window: its tokens are window * T to (window + 1) * T.")
    split: Literal["train", "val"] = Field(default="train", description="Windows of training, or of validation.")


def show_window_job() -> dg.JobDefinition:
    """Return the job that shows one window of a mix."""

    @dg.op(name="read_window")
    def read_window(context: dg.OpExecutionContext, config: ShowConfig, corpus: Corpus) -> None:
        try:
            shown = show_window(corpus.home, config.mix, config.window, config.split)
        except CasebitsError as error:
            raise dg.Failure(str(error), metadata=failure_facts(error), allow_retries=False) from error
        page: Metadata = {
            "window": dg.MetadataValue.md(show_markdown(shown)),
            "segments": table([fields(segment, *_COLUMNS) for segment in shown.segments]),
        }
        text = f"{config.split} window {config.window} of {config.mix}, {len(shown.segments)} segments, to be read"
        context.log_event(dg.AssetObservation(asset_key("mixes", config.mix), description=text, metadata=page))

    @dg.job(
        name="show_window",
        description="Shows one window as a person reads it: text, where documents begin, end and are cut, domains, "
        "regions and source rows. The result is an observation on the page of the mix.",
    )
    def job() -> None:
        read_window()

    return job
