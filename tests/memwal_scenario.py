"""Run with MemWal's own Python client, whichever version is on the path: calls everything that it has, and prints what came of it.

Nothing but the relayer can be reached from here. It is a program of its own, because each version of the client is an environment.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import socket
import sys
import time
from dataclasses import asdict, is_dataclass
from types import SimpleNamespace
from typing import Any

_connect = socket.socket.connect


def _loopback_only(self: socket.socket, address: Any) -> Any:
    if self.family != socket.AF_UNIX and address[0] not in {"127.0.0.1", "::1"}:
        raise AssertionError(f"a connection leaves for {address}")
    return _connect(self, address)


socket.socket.connect = _loopback_only  # type: ignore[method-assign]
socket.getaddrinfo = lambda host, port, *_, **__: [  # type: ignore[assignment,misc]
    (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host if host == "127.0.0.1" else "203.0.113.1", port))
]

import memwal  # noqa: E402 - after the doors are closed
from memwal import MemWal, MemWalSync  # noqa: E402


def shown(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


async def every_call(client: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "health": shown(await client.health()),
        "compatibility": await client.compatibility(),
    }
    accepted = await client.remember("I am allergic to peanuts.")
    told["waited"] = shown(await client.wait_for_remember_job(accepted.job_id))
    started = time.perf_counter()
    told["remembered"] = shown(await client.remember_and_wait("My sister Mai lives in Hanoi."))
    told["seconds"] = time.perf_counter() - started
    items = [
        memwal.RememberBulkItem(text="The car is red."),
        memwal.RememberBulkItem(text="The cat is Tom.", namespace="pets"),
    ]
    told["bulk"] = shown(await client.remember_bulk_and_wait(items))
    told["recall"] = shown(await client.recall("What am I allergic to?"))
    told["pets"] = shown(await client.recall("cat", 5, "pets"))
    if "max_distance" in str(inspect.signature(memwal.RecallParams)):
        near = memwal.RecallParams(
            query="What am I allergic to?",
            limit=5,
            max_distance=told["recall"]["results"][0]["distance"] + 0.001,
        )
        told["near"] = shown(await client.recall(near))
    told["analyzed"] = shown(
        await client.analyze_and_wait("We moved to Porto.", "trip", occurred_at="2026-05-08T10:00:00Z")
    )
    told["asked"] = shown(await client.ask("What am I allergic to?"))
    told["restored"] = shown(await client.restore("default"))
    told["embedded"] = len((await client.embed("a text")).vector)
    sealed = base64.b64encode(b"sealed by the client").decode()
    names = inspect.signature(memwal.RememberManualOptions).parameters
    given = {"encrypted_data": sealed} if "encrypted_data" in names else {"blob_id": "kept-elsewhere"}
    told["manual"] = shown(
        await client.remember_manual(memwal.RememberManualOptions(vector=[0.6, 0.8], **given))
    )
    told["found"] = shown(await client.recall_manual(memwal.RecallManualOptions(vector=[0.6, 0.8])))
    if hasattr(client, "list_namespaces"):
        told["namespaces"] = shown(await client.list_namespaces())
        told["recent"] = shown(
            await client.recall(memwal.RecallParams(query="where do I live?", sort="recent", limit=2))
        )
        weights = memwal.ScoringWeights(semantic=0.5, recency=0.5)
        told["weighted"] = shown(
            await client.recall(memwal.RecallParams(query="car", scoring_weights=weights))
        )
        told["unknown"] = shown(await client.get_remember_status("no-such-job"))
    at_once = await asyncio.gather(
        *(client.remember_and_wait(f"Note {n}.", namespace="many") for n in range(20))
    )
    told["at_once"] = len({one.id for one in at_once})
    return told


async def refused(url: str, key: str, account: str) -> dict[str, str]:
    """What an intruder with a key of his own, and a clock that is wrong, are told."""
    told: dict[str, str] = {}
    other = MemWal.create(key="22" * 32, account_id=account, server_url=url)
    try:
        await other.recall("allergic")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
        told["intruder"] = f"{type(error).__name__} {error}"
    late = MemWal.create(key=key, account_id=account, server_url=url)
    await late.compatibility()
    right = time.time
    try:
        time.time = lambda: right() - 900  # type: ignore[method-assign]
        await late.recall("allergic")
    except Exception as error:  # noqa: BLE001 - as above
        told["late"] = f"{type(error).__name__} {error}"
    finally:
        time.time = right
    await other.close()
    await late.close()
    return told


async def limited(url: str, key: str, account: str) -> dict[str, Any]:
    """What a client in a loop is told, and what somebody is who heard a request and sends it once more."""
    from httpx import AsyncClient

    told: dict[str, Any] = {}
    heard: list[Any] = []
    right = AsyncClient.send

    async def listening(self: Any, request: Any, **more: Any) -> Any:
        answer = await right(self, request, **more)
        heard.append((request, answer.status_code))
        return answer

    AsyncClient.send = listening  # type: ignore[method-assign]
    client = MemWal.create(key=key, account_id=account, server_url=url)
    try:
        for number in range(1, 100):
            await client.recall("anything")
            told["passed"] = number
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
        told["error"] = f"{type(error).__name__} {error}"
    await client.close()
    last = next(
        request for request, status in reversed(heard) if status == 200 and "recall" in str(request.url)
    )
    async with AsyncClient() as http:
        again = await right(
            http, http.build_request("POST", last.url, content=last.content, headers=last.headers)
        )
    told["again"] = again.status_code
    return told


async def middleware(url: str, key: str, account: str) -> dict[str, Any]:
    """An OpenAI client, and one of LangChain where that is installed, each of a model that repeats what it was sent."""
    seen: list[Any] = []

    class Completions:
        async def create(self, **kwargs: Any) -> Any:
            seen.append(kwargs["messages"])
            return SimpleNamespace(
                choices=[SimpleNamespace(message=SimpleNamespace(content="fine", role="assistant"))]
            )

    class AsyncOpenAI:
        def __init__(self) -> None:
            self.chat = SimpleNamespace(completions=Completions())

    told: dict[str, Any] = {}
    of = {"key": key, "account_id": account, "server_url": url}
    client: Any = memwal.with_memwal_openai(AsyncOpenAI(), **of)
    await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "What am I allergic to?"}]
    )
    told["openai"] = json.dumps(seen[-1])
    said = "I always drink oolong tea in the morning."
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": said}])
    if hasattr(client, "memwal_flush"):
        await client.memwal_flush()
    else:
        await asyncio.sleep(2)
    reader = MemWal.create(**of)
    told["saved"] = [one.text for one in (await reader.recall("tea in the morning")).results]
    await reader.close()
    try:
        from langchain_core.language_models import GenericFakeChatModel
    except ImportError:
        return told
    from langchain_core.messages import AIMessage

    class Model(GenericFakeChatModel):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append([str(one.content) for one in messages])
            return super()._generate(messages, *args, **kwargs)

    model = memwal.with_memwal_langchain(Model(messages=iter([AIMessage("fine")])), **of, auto_save=False)
    await model.ainvoke("What am I allergic to?")
    told["langchain"] = json.dumps(seen[-1])
    return told


async def main() -> None:
    url, key, account = sys.argv[1:4]
    client = MemWal.create(key=key, account_id=account, server_url=url)
    told = await every_call(client)
    await client.close()
    told["refused"] = await refused(url, key, account)
    told["middleware"] = await middleware(url, key, account)
    print(json.dumps(told, default=str))


def in_sync() -> None:
    url, key, account = sys.argv[1:4]
    with MemWalSync.create(key=key, account_id=account, server_url=url) as client:
        client.remember_and_wait("The sync client wrote this.", namespace="sync")
        found = client.recall("sync client", 5, "sync")
    print(json.dumps([one.text for one in found.results]))


if sys.argv[-1] == "sync":
    in_sync()
elif sys.argv[-1] == "limited":
    print(json.dumps(asyncio.run(limited(*sys.argv[1:4]))))
else:
    asyncio.run(main())
