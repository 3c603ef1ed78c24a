"""Objects in a bucket of an S3-compatible server, by boto3 in threads.

`client` makes one request per call and bounds its answer, `failures` says what an answer that is no success means, `store`
implements the port: time limits, threads and second attempts of reads. Outcomes are explained in
docs/adr/0008-s3-outcomes.md, the choice of client in docs/adr/0032-boto3-in-threads.md.
"""

from relayer.adapters.s3_store.client import Timeouts
from relayer.adapters.s3_store.store import S3Store

__all__ = ["S3Store", "Timeouts"]
