"""An object store in a bucket of an S3-compatible server, by boto3 in threads.

`client` makes one request per call, limits the size and time of its response, and classifies responses that are no success;
`store` implements the port with time limits, threads and retries of reads. Outcomes are explained in
docs/adr/0008-s3-outcomes.md, the choice of client in docs/adr/0032-boto3-in-threads.md.
"""

from relayer.adapters.s3_store.client import Timeouts
from relayer.adapters.s3_store.store import S3Store

__all__ = ["S3Store", "Timeouts"]
