"""Options that several commands take: where the store is, and the file of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["ConfigOption", "DataOption", "EndpointOption", "RegionOption", "S3ClientOption", "StoreOption"]

DataOption = Annotated[Path | None, typer.Option(help="Data directory, when no bucket is given.")]
StoreOption = Annotated[str | None, typer.Option(help="Bucket instead of a directory: s3://BUCKET/PREFIX.")]
EndpointOption = Annotated[str | None, typer.Option(help="URL of the S3 server, when it is not Amazon's.")]
RegionOption = Annotated[str | None, typer.Option(help="Region of the bucket.")]
S3ClientOption = Annotated[
    str | None, typer.Option(help="What asks the S3 server: direct, or boto3 for every request.")
]
ConfigOption = Annotated[Path | None, typer.Option(help="TOML file with the same names.")]
