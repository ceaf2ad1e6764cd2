"""Where publications go: a resource of its own, and what a person may say of one run in the launchpad."""

from __future__ import annotations

import datetime

import dagster as dg
from pydantic import Field

from casebits_dagster.records.layout import Home


class Publisher(dg.ConfigurableResource["Publisher"]):
    """The destination of publications (`$CASEBITS_PUBLISH`): a folder, `s3://bucket/prefix` or `hf://datasets/OWNER/NAME`
    with `{name}` in it for the generation's or mix's name. Empty: `published/{name}` below the home.

    Credentials are read from the environment (HF_TOKEN, AWS_*) where they are used; none is configuration.
    """

    destination: str = ""

    def destination_of(self, name: str, home: Home) -> str:
        return (self.destination or f"{home.root}/published/{{name}}").replace("{name}", name)


class PublishConfig(dg.Config):
    """What one publication says otherwise."""

    destination: str = Field(
        default="",
        description="A folder, s3://bucket/prefix or hf://datasets/OWNER/NAME. Empty: where $CASEBITS_PUBLISH says, "
        "else published/ below the home.",
    )
    valid_days: int = Field(
        default=0, ge=0, description="Readers refuse the publication after so many days (STALE_FRONTIER). 0: never."
    )

    @property
    def valid(self) -> datetime.timedelta | None:
        return datetime.timedelta(days=self.valid_days) if self.valid_days else None
