"""Settings: which source wins, and what a mistake is told."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from relayer.access.quotas import Quota
from relayer.errors import ConfigurationError
from relayer.settings.config import RelayerSettings, load_settings, read_quotas
from relayer.settings.keys import find_model_key, find_relayer_key, make_relayer_key
from relayer.wire.calls import is_loopback

ACCOUNT = "0x" + "ab" * 32


@pytest.fixture(autouse=True)
def clean(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MEMRELAY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of settings that a test writes."""
    return tmp_path / "relayer.toml"


def _load(**flags) -> RelayerSettings:
    return load_settings(flags, os.environ)


def _mistake(**flags) -> str:
    with pytest.raises(ConfigurationError) as caught:
        _load(**flags)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_command_line_wins_over_the_environment_over_the_file_over_the_default(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('port = 1\nlog-level = "debug"\nrate_limits = "off"\nready-file = "from-file"\n')
    monkeypatch.setenv("MEMRELAY_PORT", "2")
    monkeypatch.setenv("MEMRELAY_LOG_LEVEL", "error")
    settings = _load(port=3, config=file, host=None)
    assert (settings.port, settings.log_level, settings.rate_limits) == (3, "error", "off")
    assert settings.ready_file == Path("from-file")
    assert settings.host == "127.0.0.1"
    assert _load(config=file).port == 2


def test_the_file_can_be_named_by_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("port = 4\n")
    monkeypatch.setenv("MEMRELAY_CONFIG", str(file))
    assert _load().port == 4


class TestTheUsualFile:
    def _written(self, folder: Path, text: str) -> Path:
        file = folder / "memrelay" / "relayer.toml"
        file.parent.mkdir(parents=True)
        file.write_text(text)
        return file

    def test_it_is_read_when_no_other_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = self._written(Path(os.environ["XDG_CONFIG_HOME"]), "port = 5\n")
        assert (_load().port, _load().config) == (5, file)
        other = tmp_path / "other.toml"
        other.write_text("connections = 9\n")
        assert (_load(config=other).port, _load(config=other).connections) == (8787, 9)
        monkeypatch.setenv("MEMRELAY_CONFIG", str(other))
        assert _load().port == 8787

    def test_without_the_variable_it_is_below_the_home(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("XDG_CONFIG_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        self._written(tmp_path / ".config", "port = 6\n")
        assert _load().port == 6

    def test_who_has_no_home_or_may_not_look_there_has_no_such_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def homeless() -> Path:
            raise RuntimeError("no home")

        monkeypatch.delenv("XDG_CONFIG_HOME")
        monkeypatch.setattr(Path, "home", homeless)
        assert _load(data=tmp_path).config is None


class TestAMistakeIsToldAsItWasWritten:
    def test_by_its_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MEMRELAY_PORT", "many")
        assert _mistake().startswith("MEMRELAY_PORT: ")

    def test_by_its_key_of_the_file(self, file: Path) -> None:
        file.write_text('log-level = "loud"\n')
        assert _mistake(config=file).startswith(f"log-level in {file}: ")

    def test_as_an_option_where_that_is_what_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MEMRELAY_PORT", "many")
        assert _mistake(port=70_000).startswith("--port (MEMRELAY_PORT): ")

    def test_also_when_it_does_not_go_with_the_others(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file.write_text('region = "eu-west-3"\n')
        assert _mistake(config=file) == f"region in {file}: only with --store s3://BUCKET"
        monkeypatch.setenv("MEMRELAY_REGION", "eu-west-3")
        assert _mistake() == "MEMRELAY_REGION: only with --store s3://BUCKET"
        assert _mistake(region="eu-west-3") == "--region: only with --store s3://BUCKET"

    def test_no_value_is_repeated(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file.write_text('store = "s3://user:hunter2@memories"\n')
        assert "hunter2" not in _mistake(config=file)
        monkeypatch.setenv("MEMRELAY_ENDPOINT_URL", "https://u:hunter2@s3.example.org")
        assert "hunter2" not in _mistake(store="s3://memories")


class TestMisspeltVariables:
    @pytest.mark.parametrize(
        ("written", "meant"),
        [
            ("MEMRELAY_ACOUNTS", "MEMRELAY_ACCOUNTS"),
            ("MEMRELAY_LOGLEVEL", "MEMRELAY_LOG_LEVEL"),
            ("memrelay_rate_limit", "MEMRELAY_RATE_LIMITS"),
            ("MEMRELAY_RELAYER_KEYFILE", "MEMRELAY_RELAYER_KEY_FILE"),
        ],
    )
    def test_one_is_told_its_nearest_name(self, written: str, meant: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            load_settings({}, {written: "5e5e"})
        assert str(caught.value) == f"{written} is not a setting: did you mean {meant}?"
        load_settings({}, {written: ""})

    def test_those_of_others_are_left_alone(self) -> None:
        plugin = Path(__file__).resolve().parents[2] / "gateway_plugin"
        named = {
            name
            for file in plugin.rglob("*.*")
            if file.suffix in {".py", ".js"}
            for name in re.findall(r"MEMRELAY_[A-Z_]+[A-Z]", file.read_text(encoding="utf-8"))
        }
        others = named - {"MEMRELAY_SECRET", "MEMRELAY_AGENT_SECRET"}
        assert len(others) > 8
        # What Kubernetes tells of a service by our name.
        links = {"MEMRELAY_SERVICE_HOST", "MEMRELAY_SERVICE_PORT", "MEMRELAY_PORT_8787_TCP_ADDR"}
        load_settings({}, dict.fromkeys(others | links, "1"))


def test_a_misspelt_key_of_the_file_is_told_its_nearest_name(file: Path) -> None:
    file.write_text('acounts = "open"\n')
    assert "did you mean accounts?" in _mistake(config=file)
    file.write_text("qqqq = 1\n")
    assert "known are" in _mistake(config=file)


def test_a_key_does_not_belong_in_the_file(file: Path) -> None:
    file.write_text(f'relayer_key = "{"cd" * 32}"\n')
    said = _mistake(config=file)
    assert "MEMRELAY_RELAYER_KEY_FILE" in said
    assert "cdcd" not in said


@pytest.mark.parametrize("content", [None, "port = ", b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(file: Path, content: str | bytes | None) -> None:
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    assert str(file) in _mistake(config=file)


def test_the_data_directory_follows_the_desktop_s_convention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert _load().data == tmp_path / "memrelay"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert _load().data == Path.home() / ".local" / "share" / "memrelay"


@pytest.mark.parametrize("name", ["MEMRELAY_SECRET", "MEMRELAY_AGENT_SECRET"])
def test_a_gateway_s_secret_stops_the_start_and_is_not_shown(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings({}, {name: "5e" * 32})
    assert name in str(caught.value)
    assert "5e5e" not in str(caught.value)


class TestOffLoopback:
    def test_who_is_served_must_be_said_behind_a_proxy_of_this_machine_too(self) -> None:
        assert "--accounts" in _mistake(public_url="https://m.example")
        assert _load(accounts="open", public_url="https://m.example").served is None

    def test_a_proxy_that_speaks_plain_http_will_not_do(self) -> None:
        assert "--tls-cert" in _mistake(host="192.0.2.1", accounts="open", public_url="http://m.example")

    def test_a_proxy_or_a_certificate_will_do(self) -> None:
        assert _load(host="::", accounts="open", public_url="https://m.example").served is None
        files = {"tls_cert": Path("c"), "tls_key": Path("k")}
        assert _load(host="192.0.2.1", accounts=ACCOUNT, **files).scheme == "https"

    def test_on_loopback_everybody_is_served_unless_said_otherwise(self) -> None:
        assert _load().served is None
        assert _load(host="127.1.2.3").served is None
        assert _load(accounts=f"{ACCOUNT}, {ACCOUNT}").served == {ACCOUNT}


@pytest.mark.parametrize(
    ("flags", "setting"),
    [
        ({"port": 70_000}, "--port (MEMRELAY_PORT)"),
        ({"accounts": "0x12"}, "--accounts (MEMRELAY_ACCOUNTS)"),
        ({"accounts": ""}, "--accounts (MEMRELAY_ACCOUNTS)"),
        ({"rate_limits": "maybe"}, "--rate-limits (MEMRELAY_RATE_LIMITS)"),
        ({"log_format": "xml"}, "--log-format (MEMRELAY_LOG_FORMAT)"),
        ({"public_url": "m.example"}, "--public-url"),
        ({"public_url": "https://m.example/path"}, "--public-url"),
        ({"public_url": "https://u:p@m.example"}, "--public-url"),
        ({"tls_cert": Path("c")}, "--tls-cert and --tls-key"),
    ],
)
def test_a_wrong_value_is_told_by_its_setting(flags: dict[str, object], setting: str) -> None:
    assert setting in _mistake(**flags)


class TestTheStore:
    @pytest.mark.parametrize(
        ("url", "bucket", "prefix"),
        [
            ("s3://memories", "memories", ""),
            ("s3://memories/", "memories", ""),
            ("s3://my.bucket-1/team/a", "my.bucket-1", "team/a"),
            ("s3://my.bucket-1/team/a/", "my.bucket-1", "team/a"),
        ],
    )
    def test_it_is_a_bucket_and_a_prefix(self, url: str, bucket: str, prefix: str) -> None:
        address = _load(store=url).bucket
        assert address is not None
        assert (address.bucket, address.prefix) == (bucket, prefix)

    def test_without_one_the_objects_are_in_the_data_directory(self) -> None:
        assert _load().bucket is None
        assert (_load().probe, _load().single_relayer) == ("cached", False)

    @pytest.mark.parametrize(
        "url",
        [
            "memories",
            "https://s3.example.org/memories",
            "s3://",
            "s3:///prefix",
            "s3://ab",
            "s3://Upper",
            "s3://memories/Upper",
            "s3://memories//a",
            "s3://memories/a b",
            "s3://memories/" + "a/" * 300,
            "s3://user:secret@memories",
        ],
    )
    def test_what_is_none_is_refused_by_name(self, url: str) -> None:
        said = _mistake(store=url)
        assert "--store (MEMRELAY_STORE)" in said
        assert "secret" not in said

    @pytest.mark.parametrize(
        "url",
        [
            "s3.example.org",
            "ftp://s3.example.org",
            "https://",
            "https://u:secret@s3.example.org",
            "http://h/?a=b",
        ],
    )
    def test_an_endpoint_is_a_url_without_credentials(self, url: str) -> None:
        said = _mistake(store="s3://memories", endpoint_url=url)
        assert "--endpoint-url (MEMRELAY_ENDPOINT_URL)" in said
        assert "secret" not in said

    def test_endpoint_and_region_need_a_bucket(self) -> None:
        assert "--store" in _mistake(endpoint_url="http://127.0.0.1:1")
        assert "--store" in _mistake(region="eu-west-3")

    def test_the_environment_can_name_it_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MEMRELAY_STORE", "s3://memories")
        monkeypatch.setenv("MEMRELAY_ENDPOINT_URL", "http://127.0.0.1:8333")
        monkeypatch.setenv("MEMRELAY_REGION", "eu-west-3")
        monkeypatch.setenv("MEMRELAY_PROBE", "always")
        monkeypatch.setenv("MEMRELAY_SINGLE_RELAYER", "true")
        settings = _load()
        assert (settings.store, settings.endpoint_url) == ("s3://memories", "http://127.0.0.1:8333")
        assert (settings.region, settings.probe, settings.single_relayer) == ("eu-west-3", "always", True)

    def test_the_key_of_a_data_directory_is_not_a_bucket_s(self, tmp_path: Path) -> None:
        make_relayer_key(tmp_path)
        assert find_relayer_key(_load(data=tmp_path)) is not None
        assert find_relayer_key(_load(data=tmp_path, store="s3://memories")) is None


class TestTheRelayerKey:
    def test_it_is_taken_from_the_environment_or_a_file_and_not_from_both(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "key"
        file.write_text("ab" * 32 + "\n")
        file.chmod(0o600)
        monkeypatch.setenv("MEMRELAY_RELAYER_KEY", "cd" * 32)
        assert find_relayer_key(_load(data=tmp_path)) == b"\xcd" * 32
        monkeypatch.setenv("MEMRELAY_RELAYER_KEY_FILE", str(file))
        assert "one of them" in _mistake(data=tmp_path)
        monkeypatch.delenv("MEMRELAY_RELAYER_KEY")
        assert find_relayer_key(_load(data=tmp_path)) == b"\xab" * 32

    def test_no_representation_of_the_settings_shows_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MEMRELAY_RELAYER_KEY", "cd" * 32)
        settings = _load()
        assert "cdcd" not in repr(settings) + str(settings) + settings.model_dump_json()

    def test_what_is_no_key_is_refused_without_being_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MEMRELAY_RELAYER_KEY", "nearly-a-key")
        with pytest.raises(ConfigurationError, match="32 bytes") as caught:
            find_relayer_key(_load(data=tmp_path))
        assert "nearly" not in str(caught.value)

    def test_it_is_made_once_and_two_makers_agree(self, tmp_path: Path) -> None:
        assert find_relayer_key(_load(data=tmp_path)) is None
        key = make_relayer_key(tmp_path)
        assert make_relayer_key(tmp_path) == key
        assert find_relayer_key(_load(data=tmp_path)) == key
        assert [path.name for path in tmp_path.iterdir()] == ["relayer.key"]

    def test_a_key_that_others_can_read_is_refused_with_the_fix(self, tmp_path: Path) -> None:
        make_relayer_key(tmp_path)
        (tmp_path / "relayer.key").chmod(0o640)
        with pytest.raises(ConfigurationError, match="chmod 600"):
            find_relayer_key(_load(data=tmp_path))


def test_a_short_wait_before_deleting_needs_every_answer_to_be_checked() -> None:
    assert "--commit-check always" in _mistake(collect_after=1199)
    assert _load(collect_after=1200).collect_after == 1200
    assert _load(collect_after=5, commit_check="always").collect_after == 5
    assert "--compact-entries" in _mistake(compact_entries=0)


def test_a_second_model_is_given_whole() -> None:
    said = _mistake(fallback_model_name="b")
    assert "--fallback-model-name: only valid with --model-url and --model-name" in said
    said = _mistake(fallback_model_url="https://b.example/v1")
    assert "--fallback-model-url: only with --fallback-model-name" in said


def test_a_fallback_model_takes_the_key_of_the_model_at_the_same_url_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMRELAY_MODEL_API_KEY", "one")
    given = {"model_url": "https://a.example/v1", "model_name": "big", "fallback_model_name": "small"}
    elsewhere = {**given, "fallback_model_url": "https://b.example/v1"}
    file = tmp_path / "key"
    file.write_text("two\n")
    assert find_model_key(_load(**given), "fallback_model") == "one"
    assert find_model_key(_load(**elsewhere), "fallback_model") == ""
    settings = _load(**elsewhere, fallback_model_api_key_file=file)
    assert find_model_key(settings, "fallback_model") == "two"


@pytest.mark.row("MW-49")
def test_without_a_word_a_relayer_serves_this_machine_alone_and_sends_no_text_anywhere() -> None:
    settings = _load()
    assert is_loopback(settings.host)
    assert (settings.embedder, settings.extractor, settings.model_url) == ("multilingual", "statements", None)
    assert (settings.store, settings.public_url) == (None, None)


@pytest.mark.row("MW-49")
def test_off_this_machine_a_relayer_is_told_whom_it_serves_and_keeps_keys_off_the_network() -> None:
    assert "--accounts" in _mistake(host="192.0.2.1")
    assert "--tls-cert" in _mistake(host="192.0.2.1", accounts="open")


class TestQuotas:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[0x12]\nbytes = 1\n", "tables such as"),
            (f'["{ACCOUNT}"]\nbytes = -1\n', "whole numbers"),
            (f'["{ACCOUNT}"]\nbites = 1\n', "bites"),
            (f'["{ACCOUNT}"]\nbytes = true\n', "whole numbers"),
            (f'"{ACCOUNT}" = 5\n', "tables such as"),
            ("= 5\n", "not TOML"),
        ],
    )
    def test_a_file_that_says_something_else_is_refused(self, tmp_path, text, said) -> None:
        file = tmp_path / "quotas.toml"
        file.write_text(text)
        with pytest.raises(ConfigurationError, match=said):
            read_quotas(file)

    def test_an_account_s_table_counts_and_a_missing_file_is_named(self, tmp_path) -> None:
        file = tmp_path / "quotas.toml"
        file.write_text(f'["{ACCOUNT}"]\nbytes = 5\nnamespaces = 0\n')
        assert read_quotas(file) == {ACCOUNT: Quota(bytes=5)}
        with pytest.raises(ConfigurationError, match="--quotas"):
            read_quotas(tmp_path / "none.toml")


def test_origins_of_pages_are_written_as_browsers_send_them(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _load().page_origins == ()
    given = "HTTPS://App.example.org:443, http://localhost:5173,http://[::1]:80"
    expected = ("https://app.example.org", "http://localhost:5173", "http://[::1]")
    assert _load(page_origins=given).page_origins == expected
    file.write_text('page-origins = ["https://app.example.org"]\n')
    assert _load(config=file).page_origins == expected[:1]
    monkeypatch.setenv("MEMRELAY_PAGE_ORIGINS", "https://app.example.org")
    assert _load().page_origins == expected[:1]


@pytest.mark.parametrize(
    "wrong",
    [
        "*",
        "null",
        "app.example.org",
        "https://",
        "https://app.example.org/",
        "https://app.example.org/page",
        "https://*.example.org",
        "https://user@app.example.org",
        "https://app.example.org:port",
        "https://app.example.org?x",
        "https://app.example.org https://b.example.org",
        "https://bücher.example",
        "ftp://app.example.org",
        "https://app.example.org,",
    ],
)
def test_a_malformed_origin_names_the_setting_and_the_form(wrong: str) -> None:
    assert _mistake(page_origins=wrong).startswith("--page-origins")
    assert "such as https://app.example.org" in _mistake(page_origins=wrong)


def test_a_trusted_proxy_is_an_address_or_a_network() -> None:
    assert len(_load(trusted_proxy="10.0.0.0/8, 2001:db8::1").trusted_proxy) == 2
    for wrong in ("10.0.0.0/33", "proxy.example.org", "10.0.0.1/8"):
        assert "--trusted-proxy" in _mistake(trusted_proxy=wrong)


def test_a_size_and_a_span_are_written_with_units_wherever_a_setting_is(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('cache_bytes = "2GiB"\nquota_bytes = 1048576\njob_takeover = "2m"\n')
    monkeypatch.setenv("MEMRELAY_COLLECT_AFTER", "12h")
    settings = _load(config=file, model_timeout="90s")
    assert (settings.cache_bytes, settings.quota_bytes) == (2 * 1024**3, 1024**2)
    assert (settings.job_takeover, settings.collect_after, settings.model_timeout) == (120, 43_200, 90)
    assert _mistake(cache_bytes="much").startswith("--cache-bytes (MEMRELAY_CACHE_BYTES): give a number")


@pytest.mark.parametrize(("given", "wanted"), [("3", 3), (2, 2), ("auto", "auto")])
def test_workers_are_a_number_or_auto(tmp_path: Path, given: object, wanted: object) -> None:
    assert load_settings({"data": tmp_path, "workers": given}, {}).workers == wanted


@pytest.mark.parametrize("given", ["0", "65", "all", "1.5", ""])
def test_other_workers_are_refused_by_the_name_of_the_setting(tmp_path: Path, given: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--workers"):
        load_settings({"data": tmp_path, "workers": given}, {})
