"""The metrics of workers as those of one relayer."""

from __future__ import annotations

import json

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families

from relayer.http.metrics import Metrics, SummedMetrics, families_of


def shown(summed: SummedMetrics) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(summed.render().decode()):
        for sample in family.samples:
            key = (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items())))
            assert key not in found, "a series stands twice"
            found[key] = sample.value
    return found


def taken(summed: SummedMetrics, worker: int, metrics: Metrics) -> None:
    # As it travels: what JSON cannot hold would be lost on the way.
    summed.take(worker, json.loads(json.dumps(families_of(metrics.registry))))


def worker(requests: int, *, ready: bool = True, free: float = 10.0) -> Metrics:
    metrics = Metrics()
    for _ in range(requests):
        metrics.observe("/v1/recall", "POST", 200, "ok", 0.004)
    metrics.observe_checks({"store": "ok" if ready else "silent"})
    metrics.gauge("connections", "Open.", lambda: requests)
    metrics.gauge("store_free_bytes", "Left.", lambda: free)
    metrics.counter("capture_total", "Counted elsewhere.", lambda: requests)
    metrics.build(version="1")
    return metrics


RECALLS = ("memrelay_http_requests_total", "code=ok", "method=POST", "route=/v1/recall", "status=200")


def test_counts_are_added_and_facts_are_not() -> None:
    summed = SummedMetrics({"memrelay_workers": ("Workers.", lambda: 2.0)})
    taken(summed, 0, worker(3, free=7.0))
    taken(summed, 1, worker(5, ready=False, free=9.0))
    page = shown(summed)
    assert page[RECALLS] == 8
    assert page["memrelay_http_request_seconds_count", "route=/v1/recall"] == 8
    assert page["memrelay_http_request_seconds_bucket", "le=0.005", "route=/v1/recall"] == 8
    assert page["memrelay_http_request_seconds_bucket", "le=0.0025", "route=/v1/recall"] == 0
    assert page["memrelay_capture_total",] == 8
    assert page["memrelay_connections",] == 8
    assert page["memrelay_store_free_bytes",] == 7, "it is one disk"
    assert page["memrelay_ready_check", "check=store"] == 0, "as well as the least well of them"
    assert page["memrelay_build_info", "version=1"] == 1
    assert page["memrelay_workers",] == 2
    assert {key[1] for key in page if key[0] == "process_open_fds"} == {"worker=0", "worker=1"}


def test_what_was_counted_stays_when_its_worker_is_gone_and_what_was_open_does_not() -> None:
    summed = SummedMetrics({})
    taken(summed, 0, worker(3))
    taken(summed, 1, worker(5))
    summed.ended(1)
    page = shown(summed)
    assert (page[RECALLS], page["memrelay_connections",]) == (8, 3)
    taken(summed, 1, worker(1))
    page = shown(summed)
    assert (page[RECALLS], page["memrelay_connections",]) == (9, 4)
    assert page["memrelay_http_request_seconds_sum", "route=/v1/recall"] > 0.03


def test_a_worker_is_counted_once_however_often_it_is_asked() -> None:
    summed = SummedMetrics({})
    for requests in (1, 2, 4):
        taken(summed, 0, worker(requests))
    assert shown(summed)[RECALLS] == 4


def test_a_worker_that_ends_unasked_leaves_nothing() -> None:
    summed = SummedMetrics({})
    summed.ended(0)
    assert shown(summed) == {}
    registry = CollectorRegistry()
    Gauge("memrelay_empty", "Without a child.", ("label",), registry=registry)
    summed.take(0, families_of(registry))
    assert shown(summed) == {}
