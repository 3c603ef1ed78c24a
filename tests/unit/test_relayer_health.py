"""`memrelay health` against a real relayer, and against what is none."""

from __future__ import annotations

import asyncio

import pytest
from border import border
from processes import run_memrelay

from relayer.errors import ConfigurationError
from relayer.health import Unhealthy, ask, own_url


async def test_a_relayer_that_answers_is_alive_and_ready() -> None:
    async with border() as at:
        assert "alive" in await asyncio.to_thread(ask, at.url, ready=False)
        assert "ready" in await asyncio.to_thread(ask, at.url, ready=True)


async def test_a_draining_relayer_is_alive_and_not_ready_and_says_why() -> None:
    async with border() as at:
        at.relayer.readiness.drain()
        assert "alive" in await asyncio.to_thread(ask, at.url, ready=False)
        with pytest.raises(Unhealthy, match="accepting: draining"):
            await asyncio.to_thread(ask, at.url, ready=True)


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, "http://127.0.0.1:8787"),
        ({"MEMRELAY_HOST": "0.0.0.0", "MEMRELAY_PORT": "9000"}, "http://127.0.0.1:9000"),
        ({"MEMRELAY_HOST": "::1"}, "http://[::1]:8787"),
        ({"MEMRELAY_HOST": "10.0.0.5", "MEMRELAY_TLS_CERT": "cert.pem"}, "https://10.0.0.5:8787"),
    ],
)
def test_the_relayer_of_this_environment_is_asked_where_it_listens(
    environment: dict[str, str], url: str
) -> None:
    assert own_url(environment) == url


@pytest.mark.parametrize("url", ["127.0.0.1:8787", "ftp://127.0.0.1", "http://127.0.0.1:port", "http://"])
def test_what_is_no_url_is_a_matter_of_settings(url: str) -> None:
    with pytest.raises(ConfigurationError, match="--url"):
        ask(url, ready=False)


def test_the_command_ends_with_1_when_nobody_answers(unused_tcp_port: int) -> None:
    ended = run_memrelay(["health"], {"MEMRELAY_PORT": str(unused_tcp_port)})
    assert ended.returncode == 1
    assert f"no relayer answers at http://127.0.0.1:{unused_tcp_port}" in ended.stderr
