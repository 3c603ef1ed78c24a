"""Reads and conditional writes of single objects as plain signed requests; everything else is boto3's.

boto3 spends most of a small request's time on what is the same for all of them: rules for endpoints, checks of
parameters, hooks, parsers. It is asked once, where the bucket is and how requests are signed, and for credentials each
time; the request itself is one call of urllib3. docs/adr/0009-object-client.md tells what that saves.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.exceptions import HTTPError

from relayer.adapters.s3_store.client import Answer, Client, Patience, Route
from relayer.adapters.s3_store.failures import Failure, NoSuccess, of_answer, of_silence
from relayer.adapters.s3_store.signature import signed_headers

__all__ = ["DirectClient"]

_METHODS = {"get_object": "GET", "put_object": "PUT"}
_HEADERS = {
    "ContentMD5": "content-md5",
    "IfNoneMatch": "if-none-match",
    "IfMatch": "if-match",
    "Range": "range",
}
_KNOWN = {"Key", "Body", *_HEADERS}
# An error's body is a few hundred bytes, and its code stands near the beginning.
_CODE = re.compile(rb"<Code>\s*([A-Za-z0-9.]{1,64})\s*</Code>")
_LOOKED_AT = 4096


class DirectClient:
    """A `Requester` for one bucket, over a boto3 client; may be used by any number of threads at once.

    Where requests need more than a signature by key and token, or go through a proxy, boto3 makes all of them.
    """

    def __init__(self, boto: Client, connections: int, patience: Patience) -> None:
        self._boto = boto
        self._connections = connections
        self._timeout = Timeout(connect=patience.connect, read=patience.silence)
        self._lock = threading.Lock()
        self._route: Route | None = None
        self._pool: HTTPConnectionPool | None = None
        self._found = False

    @property
    def endpoint_url(self) -> str:
        """The URL that is asked, without credentials."""
        return self._boto.endpoint_url

    def ask(self, operation: str, **parameters: Any) -> Answer:
        """Make one request, named as boto3 names it; raises `NoSuccess`."""
        method = _METHODS.get(operation) if parameters.keys() <= _KNOWN else None
        try:
            route = None if method is None else self._find_route()
            if method is None or route is None or self._pool is None:
                return self._boto.ask(operation, **parameters)
            return self._send(self._pool, route, method, parameters)
        except ClientError as error:
            # Not the bucket's server has answered this, but the one that gives credentials.
            raise NoSuccess(of_answer(error.response)) from error
        except (BotoCoreError, HTTPError, OSError) as error:
            raise NoSuccess(of_silence(error)) from error

    def close(self) -> None:
        """Give back the connections."""
        if self._pool is not None:
            self._pool.close()
        self._boto.close()

    def _find_route(self) -> Route | None:
        if self._found:
            return self._route
        with self._lock:
            if not self._found:
                self._route = self._boto.route()
                self._pool = None if self._route is None else self._connect(self._route)
                self._found = True
            return self._route

    def _connect(self, route: Route) -> HTTPConnectionPool:
        if route.authorities is None:
            return HTTPConnectionPool(
                route.host, route.port, maxsize=self._connections, timeout=self._timeout, retries=False
            )
        return HTTPSConnectionPool(
            route.host,
            route.port,
            maxsize=self._connections,
            timeout=self._timeout,
            retries=False,
            cert_reqs="CERT_REQUIRED",
            ca_certs=route.authorities,
        )

    def _send(
        self, pool: HTTPConnectionPool, route: Route, method: str, parameters: dict[str, Any]
    ) -> Answer:
        path = route.path + parameters["Key"]
        body: bytes = parameters.get("Body", b"")
        headers = signed_headers(
            method,
            route.authority,
            path,
            body,
            {_HEADERS[name]: text for name, text in parameters.items() if name in _HEADERS},
            credentials=self._boto.credentials(),
            region=route.region,
            now=time.time(),
        )
        headers["user-agent"] = "memrelay"
        response = pool.urlopen(
            method,
            path,
            body=body if method == "PUT" else None,
            headers=headers,
            redirect=False,
            decode_content=False,
        )
        told = {name.lower(): text for name, text in response.headers.items()}
        if 200 <= response.status < 300:
            return Answer(response.status, told, {}, response.data)
        code = _CODE.search(response.data[:_LOOKED_AT])
        word = str(response.status) if code is None else code.group(1).decode()
        raise NoSuccess(Failure(response.status, word, sent=True, headers=told))
