"""Objects in a bucket of an S3-compatible server, over requests on the event loop and in threads.

`client` speaks to the server through boto3, `on_the_loop` asks for what is small; neither they nor the `DirectClient` of `store` try
again by themselves. `failures` says what an answer that is no success means, `store` holds both halves of the port: what is asked
and what it means, and the time limits, threads and second tries of reads. Which answer leads to which outcome, and why, is written in
docs/adr/0008-s3-outcomes.md; which client makes a request, in docs/adr/0009-object-client.md.
"""

from relayer.adapters.s3_store.client import Timeouts
from relayer.adapters.s3_store.store import S3Client, S3Store

__all__ = ["S3Client", "S3Store", "Timeouts"]
