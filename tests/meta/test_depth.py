# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.meta import DepthCoding, decode_depth, depth_unit, encode_depth

MILLIMETRES = np.array([0, 10, 11, 500, 1000, 3000, 9999, 10000, 65535], np.uint16)
CODES = np.array([0, 1, 500, 1000, 2048, 4094, 4095], np.uint16)
LINEAR = DepthCoding(use_log=False)


@pytest.mark.parametrize(
    ("coding", "codes"),
    [
        (DepthCoding(), [0, 0, 1, 397, 755, 1873, 4095, 4095, 4095]),
        (LINEAR, [0, 0, 0, 201, 406, 1226, 4095, 4095, 4095]),
    ],
    ids=["log", "linear"],
)
def test_codes_are_lerobots(coding: DepthCoding, codes: list[int]) -> None:
    """Golden values from LeRobot 0.6.1; millimetres and metres give the same codes."""
    metres = (MILLIMETRES / 1000).astype(np.float32)

    assert encode_depth(MILLIMETRES, coding).tolist() == codes
    assert encode_depth(metres, coding).tolist() == codes


@pytest.mark.parametrize(
    ("coding", "unit", "distances"),
    [
        (DepthCoding(), "mm", [10, 11, 638, 1377, 3385, 9996, 10000]),
        (LINEAR, "mm", [10, 12, 1230, 2450, 5006, 9998, 10000]),
        (
            DepthCoding(),
            "m",
            [
                0.010000228881835938,
                0.011154651641845703,
                0.6375088691711426,
                1.3772025108337402,
                3.3848085403442383,
                9.995559692382812,
                10.0,
            ],
        ),
    ],
    ids=["log mm", "linear mm", "log m"],
)
def test_distances_are_lerobots(coding: DepthCoding, unit: str, distances: list[float]) -> None:
    """Golden values from LeRobot 0.6.1, to the last bit, as float32."""
    found = decode_depth(CODES, coding, unit)

    assert found.tolist() == distances
    assert found.dtype == np.float32


@given(
    metres=st.floats(0.015625, 10, width=32),
    use_log=st.booleans(),
    far=st.sampled_from([10.0, 25.0]),
)
def test_distances_come_back_to_half_a_step(metres: float, use_log: bool, far: float) -> None:
    """Within the range, a distance is stored to half the step of its code."""
    coding = DepthCoding(depth_max_m=far, use_log=use_log)
    code = encode_depth(np.array([metres], np.float32), coding)
    around = decode_depth(np.clip(code + np.array([-1, 0, 1]), 0, 4095), coding, "m")
    step = max(around[2] - around[1], around[1] - around[0])

    assert abs(float(around[1]) - metres) <= 0.5 * step * 1.01 + 1e-5


@given(codes=st.lists(st.integers(0, 4095), min_size=2, max_size=50, unique=True))
def test_farther_is_a_higher_code(codes: list[int]) -> None:
    """Distances rise with the codes, and every code comes back from its distance."""
    ordered = np.array(sorted(codes), np.uint16)
    metres = decode_depth(ordered, DepthCoding(), "m")

    assert (np.diff(metres) > 0).all()
    assert encode_depth(metres, DepthCoding()).tolist() == ordered.tolist()


def test_what_lies_outside_the_range_is_stored_as_its_end() -> None:
    """Nearer than the nearest, even negative, is code 0; farther than the farthest is 4095."""
    metres = np.array([-100.0, -3.5, 0.0, 11.0, 1e6], np.float32)

    assert encode_depth(metres, DepthCoding()).tolist() == [0, 0, 0, 4095, 4095]


def test_the_coding_comes_back_from_info_json() -> None:
    """What a camera's block records is what it is read with; an empty block means the defaults."""
    coding = DepthCoding(depth_min_m=0.2, depth_max_m=4.0, shift_m=1.0, use_log=False)

    assert DepthCoding.from_info(coding.to_info()) == coding
    assert DepthCoding.from_info({}) == DepthCoding()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"depth_min_m": 5.0, "depth_max_m": 5.0}, "depth_min_m < depth_max_m"),
        ({"depth_min_m": 0.0, "shift_m": 0.0}, "above 0"),
    ],
)
def test_a_coding_without_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    """A range must have a length, and a logarithm an argument above 0."""
    with pytest.raises(ValueError, match=message):
        DepthCoding(**fields)


def test_units_go_by_the_dtype() -> None:
    """Floats are metres, integers millimetres; no other unit exists."""
    assert (depth_unit("float32"), depth_unit("uint16")) == ("m", "mm")
    with pytest.raises(ValueError, match='"m" or "mm"'):
        decode_depth(CODES, DepthCoding(), "cm")
