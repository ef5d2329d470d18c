# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np

from robostream.decode import COUNTERS, Meter, VideoSource, summarise
from robostream.storage import TRAFFIC

ONE_READ = tuple(range(1, len(COUNTERS) + 1))


def count(meter: Meter) -> None:
    """Count 1 of the first counter, 2 of the second, and so on."""
    meter.images_delivered, meter.images_decoded = 1, 2
    meter.picture_hits, meter.picture_evictions = 3, 4
    meter.fetch_s, meter.decode_s, meter.convert_s, meter.copy_s = 5, 6, 7, 8
    meter.file_hits, meter.file_misses, meter.file_evictions, meter.busy_s = 9, 10, 11, 12


def test_rows_of_a_table_add_up() -> None:
    """Each process counts in its row of memory that others see; the sum is what all did."""
    table = np.zeros((3, len(COUNTERS)))
    for row in table:
        meter = Meter(row=row)
        for _ in range(100):
            count(meter)
            meter.flush(ONE_READ[-len(TRAFFIC) :])
    total = summarise(table.sum(axis=0))

    for name, amount in zip(COUNTERS, ONE_READ, strict=True):
        assert total[name] == 300 * amount


def test_ratios_follow_from_the_counts() -> None:
    """Amplification is decoded per delivered; nothing counted gives 0, not an error."""
    meter = Meter(images_delivered=8, images_decoded=2, file_hits=3, file_misses=1)
    assert meter.summary()["amplification"] == 0
    meter.flush()
    summary = meter.summary()

    assert summary["amplification"] == 0.25
    assert summary["file_hit_rate"] == 0.75


def test_a_meter_gives_what_it_has_in_the_order_of_the_counters() -> None:
    """What is taken is named as it was counted, and is gone from the meter."""
    meter = Meter()
    count(meter)
    assert meter.elsewhere_s == 20
    meter.flush()
    once = meter.row.tolist()
    meter.flush()

    # What was asked of servers is counted where that is done.
    assert once == [*ONE_READ[: -len(TRAFFIC)], *[0] * len(TRAFFIC)]
    assert meter.row.tolist() == once


def test_reading_is_timed() -> None:
    """A metered source gives the bytes of its own and adds the time to the meter."""

    class Source:
        name = identity = "here"

        def size(self) -> int:
            return 10

        def read(self, start: int, stop: int) -> bytes:
            return bytes(range(start, stop))

    meter = Meter()
    source = VideoSource(Source(), meter)

    assert (source.name, source.size(), source.read(2, 5)) == ("here", 10, b"\2\3\4")
    assert meter.fetch_s > 0
