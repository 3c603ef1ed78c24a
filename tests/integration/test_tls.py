"""The whole way over TLS: a relayer with a certificate of its own, and the plugin's command that is told to trust it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from certificates import self_signed
from processes import CLEAN, Served, ran

NOTE = "The spare key of the boathouse hangs behind the third oar."


def _gateway(
    served: Served, home: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return ran(
        [sys.executable, "-m", "gateway_plugin", *arguments, "--url", served.url, "--json"],
        env=CLEAN | {"HOME": str(home), "XDG_CONFIG_HOME": str(home)} | environment,
    )


def test_a_memory_travels_over_tls_when_the_certificate_is_trusted_and_not_otherwise(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path)
    served = serve("--tls-cert", str(certificate), "--tls-key", str(key))
    assert served.url.startswith("https://")

    refused = _gateway(served, tmp_path, "remember", NOTE)
    assert refused.returncode == 1
    assert "SSL_CERT_FILE" in refused.stderr

    trusting = {"SSL_CERT_FILE": str(certificate)}
    stored = _gateway(served, tmp_path, "remember", NOTE, **trusting)
    assert stored.returncode == 0, stored.stderr
    found = _gateway(served, tmp_path, "search", "Where is the spare key of the boathouse?", **trusting)
    assert NOTE in found.stdout, found.stderr
    assert json.loads(found.stdout)
