"""The tables of `bench.store_run`: rates as multiples, latencies as differences, each beside its goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bench.http_servers import Sample
from bench.report import Section
from bench.stats import Spread, percentile, ratio, spread
from bench.store_committer import CommitSample
from bench.store_raw import OBSTORE, RawSample

__all__ = ["Measured", "sections"]

HTTP_GOAL = 5.0
COMMITTER_GOAL = 20.0
ALONE_GOAL = 1.5e-3
RECALL_GOAL = 3e-3


class Measured(Protocol):
    """What `sections` reads of a client's rounds."""

    creates: list[RawSample]
    absent: list[RawSample]
    together: list[Sample]
    alone: list[Sample]
    recalls: list[Sample]
    commits: dict[int, list[CommitSample]]


def sections(measured: Mapping[str, Measured], bare: Sequence[Sample], size: int) -> list[Section]:
    """Return every table of one run; entry i of every list is of round i."""
    ours = {name: rounds for name, rounds in measured.items() if rounds.together}
    return [
        _raw(measured, size),
        _together(ours, bare),
        _committer(ours),
        _latency(ours),
    ]


def _raw(measured: Mapping[str, Measured], size: int) -> Section:
    rows, data = [], {}
    for name, rounds in measured.items():
        row = [name]
        for samples in (rounds.creates, rounds.absent):
            p50 = spread([sample.p50 for sample in samples])
            row += [f"{_ms(p50)}", f"{spread([sample.cpu for sample in samples]).median * 1e6:.0f}"]
        rows.append((*row, f"{spread([sample.rate for sample in rounds.creates]).median:.0f}"))
        data[name] = {
            "create_p50_seconds": [sample.p50 for sample in rounds.creates],
            "create_rate": [sample.rate for sample in rounds.creates],
            "create_cpu_seconds": [sample.cpu for sample in rounds.creates],
            "absent_p50_seconds": [sample.p50 for sample in rounds.absent],
            "absent_cpu_seconds": [sample.cpu for sample in rounds.absent],
        }
    missing = () if OBSTORE in measured else ("obstore is not installed: pip install '.[bench]'",)
    return Section(
        "Raw requests, one after the other, by client library",
        ("client", "create p50 ms", "CPU us", "absent read p50 ms", "CPU us ", "creates/s"),
        rows,
        {"entry_bytes": size, **data},
        (
            f"conditional creates of {size:,} bytes, what one memory comes to in the bucket; reads of an absent key;",
            "CPU of the client's process; a relayer cannot use obstore (docs/adr/0032-boto3-in-threads.md)",
            *missing,
        ),
    )


def _together(ours: Mapping[str, Measured], bare: Sequence[Sample]) -> Section:
    rows, data = [], {}
    bare_rates = [sample.rate for sample in bare]
    for name, rounds in ours.items():
        rates, raw = [s.rate for s in rounds.together], [s.rate for s in rounds.creates]
        multiple, share = ratio(rates, raw), ratio(rates, bare_rates)
        latencies = [value for sample in rounds.together for value in sample.load.latencies]
        rows.append(
            (
                name,
                str(multiple),
                _verdict(multiple.median >= HTTP_GOAL, f"{HTTP_GOAL:.0f}x"),
                f"{share.median:.0%} ({share.low:.0%}..{share.high:.0%})",
                f"{spread(rates).median:.0f}",
                f"{spread([sample.cpu for sample in rounds.together]).median * 1e6:.0f}",
                *(f"{percentile(latencies, at) * 1e3:.0f}" for at in (0.5, 0.95, 0.99)),
            )
        )
        data[name] = {
            "relayer_rate": rates,
            "relayer_cpu_seconds": [sample.cpu for sample in rounds.together],
            "raw_rate": raw,
        }
    return Section(
        "Acknowledged writes through HTTP into one namespace, one signed item a request, 64 connections",
        (
            "client",
            "of raw creates",
            "goal",
            "of the bare handler",
            "relayer/s",
            "CPU us",
            "p50 ms",
            "p95",
            "p99",
        ),
        rows,
        {"bare_rate": bare_rates, **data},
        (
            f"the bare handler: {spread(bare_rates).median:.0f}/s ({min(bare_rates):.0f}..{max(bare_rates):.0f});",
            "it checks the signature and stores nothing",
        ),
    )


def _committer(ours: Mapping[str, Measured]) -> Section:
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    for name, rounds in ours.items():
        raw = [sample.rate for sample in rounds.creates]
        for writers, samples in rounds.commits.items():
            if writers == 1:
                continue
            rates = [sample.rate for sample in samples]
            multiple = ratio(rates, raw)
            shared = spread([len(sample.latencies) / sample.entries for sample in samples]).median
            rows.append(
                (
                    f"{name}, {writers} writers",
                    str(multiple),
                    _verdict(multiple.median >= COMMITTER_GOAL, f"{COMMITTER_GOAL:.0f}x"),
                    f"{spread(rates).median:.0f}",
                    f"{shared:.0f}",
                    _ms(spread([sample.p50 for sample in samples])),
                )
            )
            data[f"{name}, {writers}"] = {"rate": rates, "entries": [sample.entries for sample in samples]}
    return Section(
        "Appends at the committer, in process, records sealed",
        ("client", "of raw creates", "goal", "records/s", "records an entry", "p50 ms"),
        rows,
        data,
    )


def _latency(ours: Mapping[str, Measured]) -> Section:
    rows: list[tuple[str, ...]] = []
    data: dict[str, Any] = {}
    for name, rounds in ours.items():
        creates, absent = [s.p50 for s in rounds.creates], [s.p50 for s in rounds.absent]
        for what, values, base, goal in (
            ("one writer, at the committer", [s.p50 for s in rounds.commits[1]], creates, ALONE_GOAL),
            ("one writer, through HTTP", _p50(rounds.alone), creates, ALONE_GOAL),
            ("warm strong recall, through HTTP", _p50(rounds.recalls), absent, RECALL_GOAL),
        ):
            more = spread([value - below for value, below in zip(values, base, strict=True)])
            rows.append(
                (
                    f"{name}: {what}",
                    _ms(spread(values)),
                    _ms(spread(base)),
                    _ms(more),
                    _verdict(more.median <= goal, f"{goal * 1e3:.1f}"),
                )
            )
            data[f"{name}: {what}"] = {"p50_seconds": values, "raw_p50_seconds": base}
    return Section(
        "Latency of one caller, against one raw request",
        ("", "p50 ms", "raw p50 ms", "more ms", "goal"),
        rows,
        data,
        (
            "raw: a create for the writers, a read of an absent key for the recall, by the same client library",
        ),
    )


def _p50(samples: Sequence[Sample]) -> list[float]:
    return [percentile(sample.load.latencies, 0.5) for sample in samples]


def _ms(values: Spread) -> str:
    return f"{values.median * 1e3:.2f} ({values.low * 1e3:.2f}..{values.high * 1e3:.2f})"


def _verdict(met: bool, goal: str) -> str:  # noqa: FBT001 - a private formatter
    return f"{goal}, {'met' if met else 'missed'}"
