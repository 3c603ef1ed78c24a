from bench.http_load import Load
from bench.http_servers import Sample
from bench.store_committer import CommitSample
from bench.store_raw import RawClient, RawSample
from bench.store_run import Rounds
from bench.store_tables import sections


def _http(rate: float, latency: float) -> Sample:
    load = Load(seconds=1 / rate, latencies=[latency])
    load.statuses[200] = 1
    return Sample(load, 1e-3)


def _rounds(*, http_rate: float, alone: float, recall: float) -> Rounds:
    rounds = Rounds()
    for _ in range(3):
        rounds.creates.append(RawSample([2e-3] * 4, 5e-4))
        rounds.absent.append(RawSample([1e-3] * 4, 5e-4))
        rounds.together.append(_http(http_rate, 0.02))
        rounds.alone.append(_http(100, alone))
        rounds.recalls.append(_http(100, recall))
        for samples in rounds.commits.values():
            samples.append(CommitSample(1.0, [3e-3] * 10_000, 100))
    return rounds


def _table(title: str, rounds: Rounds) -> list[tuple[str, ...]]:
    found = sections({"boto3": rounds}, [_http(5_000, 1e-3)] * 3, 1_637)
    [section] = [section for section in found if section.title.startswith(title)]
    return list(section.rows)


def test_a_rate_is_a_multiple_of_the_same_client_s_raw_creates_and_a_share_of_the_bare_handler_s():
    [row] = _table("Acknowledged", _rounds(http_rate=2_500, alone=3e-3, recall=3e-3))
    assert row[:4] == ("boto3", "5.00x (5.00..5.00)", "5x, met", "50% (50%..50%)")


def test_a_missed_goal_is_called_missed():
    [row] = _table("Acknowledged", _rounds(http_rate=2_400, alone=3e-3, recall=3e-3))
    assert row[2] == "5x, missed"
    alone = _table("Latency", _rounds(http_rate=2_400, alone=3.6e-3, recall=4.1e-3))
    assert [row[-1] for row in alone] == ["1.5, met", "1.5, missed", "3.0, missed"]


def test_a_writer_is_compared_with_a_create_and_a_recall_with_a_read_of_what_is_absent():
    rows = _table("Latency", _rounds(http_rate=2_400, alone=3.5e-3, recall=4e-3))
    assert [row[3].split()[0] for row in rows] == ["1.00", "1.50", "3.00"]


def test_appends_that_share_an_entry_are_counted_by_entry():
    rows = _table("Appends", _rounds(http_rate=2_400, alone=3e-3, recall=3e-3))
    assert [(row[1].split("x")[0], row[4]) for row in rows] == [("20.00", "100")] * 2


def test_a_client_that_a_relayer_cannot_use_is_in_the_first_table_alone():
    reference = Rounds(creates=[RawSample([1e-3], 1e-4)] * 3, absent=[RawSample([1e-3], 1e-4)] * 3)
    ours = _rounds(http_rate=2_400, alone=3e-3, recall=3e-3)
    found = sections({"boto3": ours, "obstore": reference}, [_http(5_000, 1e-3)] * 3, 1_637)
    named = ["obstore" in str(list(section.rows)) for section in found]
    assert named == [True, False, False, False]


def test_raw_creates_are_of_the_size_asked_for_and_never_of_one_name():
    made: dict[str, bytes] = {}
    raw = RawClient(made.__setitem__, lambda _: None, lambda: None)
    assert len(raw.creates(7, 5).latencies) == 5
    raw.creates(7, 5)
    assert [len(data) for data in made.values()] == [7] * 10
