"""Numbers as people read them."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from controlplane.cli import figures


def test_counts_sizes_and_times_are_short():
    assert [figures.count(n) for n in (0, 9_999, 20_000, 123_456, 1_117_320_768)] == [
        "0",
        "9,999",
        "20k",
        "123.5k",
        "1.117G",
    ]
    assert [figures.size(n) for n in (12, 2048, 5 << 20, 3 << 30)] == [
        "12 B",
        "2.0 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]
    assert [figures.duration(n) for n in (7, 3_400, 125_000, 3_723_000)] == [
        "7 ms",
        "3.4 s",
        "2:05 min",
        "1:02:03 h",
    ]


def test_an_unknown_price_is_not_zero():
    assert figures.money(None) == "price unknown"
    assert figures.money(Decimal(0)) == "$0"
    assert figures.money(Decimal("0.00126")) == "$0.0013"
    assert figures.money(Decimal("0.00001")) == "under $0.0001"


def test_age_is_in_its_largest_unit():
    now = datetime(2026, 11, 18, tzinfo=UTC)

    ages = [figures.age(now - timedelta(seconds=s), now=now) for s in (5, 125, 7_300, 200_000)]

    assert ages == ["5 s", "2 min", "2 h", "2 d"]
