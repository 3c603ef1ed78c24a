"""What is installed as memrelay is imported as memrelay: the names of the plugin that others may use."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import gateway_plugin
import memrelay
from gateway_plugin import client, errors, plugin, settings, sync_client

PUBLIC = (plugin, client, sync_client, settings, errors)
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python-api.md").read_text("utf-8")


def test_every_name_is_the_one_of_the_public_module_that_has_it() -> None:
    for name in set(memrelay.__all__) - {"__version__"}:
        places = [module for module in PUBLIC if name in module.__all__]
        assert places, name
        assert all(getattr(memrelay, name) is getattr(place, name) for place in places)


def test_every_error_of_the_plugin_is_a_name() -> None:
    assert set(errors.__all__) <= set(memrelay.__all__)


def test_the_old_import_goes_on_working() -> None:
    from gateway_plugin import AsyncMemoryPlugin, MemoryPlugin

    assert (MemoryPlugin, AsyncMemoryPlugin) == (memrelay.MemoryPlugin, memrelay.AsyncMemoryPlugin)
    assert memrelay.__version__ == gateway_plugin.__version__


def test_there_are_no_other_names() -> None:
    assert dir(memrelay) == sorted(memrelay.__all__)
    with pytest.raises(AttributeError, match="no attribute 'LoopThread'"):
        memrelay.LoopThread  # noqa: B018


def test_it_is_installed_and_the_command_of_the_same_name_is_the_relayers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert "memrelay" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert (ROOT / "memrelay" / "py.typed").exists()
    assert project["project"]["scripts"]["memrelay"] == "relayer.__main__:main"


def test_every_name_stands_on_its_page() -> None:
    assert [name for name in memrelay.__all__ if f"`{name}`" not in PAGE] == []
