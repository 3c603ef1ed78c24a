"""What counts as this machine, wherever it is asked: texts and keys go there in the clear."""

from __future__ import annotations

import pytest

from gateway_plugin.calls.trust import RelayerAddress
from gateway_plugin.errors import SettingsError
from gateway_plugin.settings.model import PluginSettings
from relayer.errors import ConfigurationError
from relayer.settings.config import load_settings
from relayer.wire.calls import is_loopback

HERE = (
    "127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "[::1]", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1",
    "[::ffff:127.0.0.1]", "::FFFF:7f00:1", "localhost", "LOCALHOST", "localhost.", "LocalHost.", "relayer.localhost",
    "a.b.localhost.",
)  # fmt: skip
ELSEWHERE = (
    "127.evil.example", "127.0.0.1.evil.example", "127.0.0.1.", "localhost.evil.example", "localhost.localdomain",
    "notlocalhost", "evil-localhost", "localhost..", ".localhost", "127.0.0.1@evil.example", "evil@x.localhost", "0.0.0.0",
    "::", "128.0.0.1", "126.255.255.255", "10.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "::1%eth0", "fe80::1",
    "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "127.1", "127.0.1", "127.00.0.1", "127.0.0.256", "127.0.0",
    "127", "127.", "127.0.0.1/8", "127.0.0.1 ", "[127.0.0.1]", "[[::1]]", "[::1", "::1]", "[localhost]", "",
    "127\u30020\u30020\u30021", "127\uff0e0\uff0e0\uff0e1", "\uff11\uff12\uff17.0.0.1", "\uff4cocalhost",
    "evil\u3002localhost", "lo\u00adcalhost", "localhost\n",
)  # fmt: skip


@pytest.mark.parametrize("host", HERE)
def test_a_host_that_is_this_machine_is_known_as_it(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_a_host_that_is_not_or_that_resolvers_disagree_about_is_none(host: str) -> None:
    assert not is_loopback(host)


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


@pytest.mark.parametrize(
    "host", [host for host in ELSEWHERE if host.isprintable() and not set(host) & set("/[]")]
)
def test_nothing_goes_in_the_clear_to_any_other_host(host: str) -> None:
    url = f"http://{in_url(host)}:8787"
    with pytest.raises(SettingsError):
        RelayerAddress.parse(url)
    with pytest.raises(ValueError, match="url"):
        PluginSettings(url=url)
    with pytest.raises(ConfigurationError, match="--model-url"):
        load_settings({"model_url": f"{url}/v1", "model_name": "m"}, {})
    if host:
        with pytest.raises(ConfigurationError, match="--accounts"):
            load_settings({"host": host}, {})


@pytest.mark.parametrize("host", HERE)
def test_this_machine_is_reached_in_the_clear_under_each_of_its_names(host: str) -> None:
    url = f"http://{in_url(host)}:8787"
    assert RelayerAddress.parse(url).loopback
    assert PluginSettings(url=url).url == url
    assert load_settings({"model_url": f"{url}/v1", "model_name": "m", "host": host}, {}).accounts is None
