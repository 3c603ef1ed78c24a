"""The proxy's configuration as Compose mounts it is one that nginx takes, and leads to the relayers of Compose."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import yaml
from certificates import self_signed
from infra_tools import INFRA, run, tool

from relayer.http.limits import MAX_BODY
from relayer.http.routes import ANALYZE_SECONDS

NGINX = (INFRA / "nginx/nginx.conf").read_text()


def test_nginx_takes_the_configuration_of_compose(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    shutil.copy(INFRA / "nginx/nginx.conf", tmp_path)
    shutil.copy(INFRA / "compose/nginx-upstream.conf", tmp_path / "upstream.conf")
    listen = (INFRA / "compose/nginx-listen.conf").read_text()
    listen = listen.replace("/run/secrets/tls_certificate", str(certificate))
    (tmp_path / "listen.conf").write_text(listen.replace("/run/secrets/tls_key", str(key)))
    checked = run(tool("nginx"), "-e", "stderr", "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf")
    assert checked.returncode == 0, checked.stderr


def test_the_proxy_leads_to_the_addresses_that_compose_gives_the_relayers() -> None:
    services = yaml.safe_load((INFRA / "compose/compose.yaml").read_text())["services"]
    given = {
        service["networks"]["inside"]["ipv4_address"] + ":8787"
        for name, service in services.items()
        if name.startswith("relayer-")
    }
    upstream = (INFRA / "compose/nginx-upstream.conf").read_text()
    assert set(re.findall(r"server ([\d.:]+)", upstream)) == given
    assert len(given) == 3


def test_a_body_that_a_relayer_takes_fits_into_the_proxy_s_memory() -> None:
    sizes = {int(size) * 1024 for size in re.findall(r"client_\w+_size (\d{4,})k;", NGINX)}
    assert len(sizes) == 1
    assert min(sizes) > MAX_BODY


def test_the_proxy_waits_longer_than_the_slowest_answer_takes() -> None:
    waits = [int(seconds) for seconds in re.findall(r"proxy_read_timeout (\d+)s;", NGINX)]
    assert waits
    assert min(waits) > ANALYZE_SECONDS


def test_no_proxy_sends_a_request_that_writes_a_second_time() -> None:
    ingress = yaml.safe_load((INFRA / "kubernetes/base/ingress.yaml").read_text())
    repeated = ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-next-upstream"]
    for given in [*re.findall(r"proxy_next_upstream ([a-z_ ]+);", NGINX), repeated]:
        assert given.split() == ["error", "timeout"]
