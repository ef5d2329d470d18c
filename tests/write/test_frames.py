# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from robostream.errors import FrameError
from robostream.write.frames import CheckedFrame, check_frame, features_to_record

NAMES = ["height", "width", "channels"]
FEATURES = features_to_record(
    {
        "cam": {"dtype": "video", "shape": (4, 6, 3), "names": NAMES},
        "depth": {"dtype": "image", "shape": (4, 6, 1), "names": NAMES},
        "state": {"dtype": "float32", "shape": (3,), "names": None},
        "grid": {"dtype": "int64", "shape": (2, 2), "names": None},
        "done": {"dtype": "bool", "shape": (1,), "names": None},
        "note": {"dtype": "string", "shape": (1,), "names": None},
        "language_persistent": {"dtype": "language", "shape": (1,), "names": None},
    },
    use_videos=True,
)
IMAGE = np.arange(72, dtype=np.uint8).reshape(4, 6, 3)
DEPTH = np.arange(24, dtype=np.uint16).reshape(4, 6, 1)


def good(**changes: Any) -> dict[str, Any]:
    frame = {
        "cam": IMAGE,
        "depth": DEPTH,
        "state": np.zeros(3, np.float32),
        "grid": np.zeros((2, 2), np.int64),
        "done": np.array([True]),
        "note": "a text",
        "task": "move",
    }
    return frame | changes


def check(frame: dict[str, Any], units: dict[str, str] | None = None) -> CheckedFrame:
    return check_frame(frame, FEATURES, depth_units=units or {}, where="frame 3 of episode 5")


def test_a_good_frame_is_copied_as_it_is() -> None:
    """The caller may overwrite its own arrays at once, and its dict is left alone."""
    frame = good()
    before = dict(frame)
    checked = check(frame)
    frame["state"][:] = 7

    assert checked.values["state"].tolist() == [0, 0, 0]
    assert not np.shares_memory(checked.values["cam"], IMAGE)
    assert list(frame) == list(before)
    assert checked.task == "move"
    assert checked.values["language_persistent"] == []


@pytest.mark.parametrize(
    "image",
    [
        IMAGE,
        IMAGE.transpose(2, 0, 1),
        (IMAGE / 255).astype(np.float32),
        IMAGE.transpose(2, 0, 1) / 255,
        torch.from_numpy(IMAGE),
        torch.from_numpy(IMAGE).permute(2, 0, 1) / 255,
        Image.fromarray(IMAGE),
        IMAGE[:, ::-1][:, ::-1],
    ],
    ids=["hwc", "chw", "float hwc", "float chw", "tensor", "float tensor", "pil", "strided"],
)
def test_every_form_of_an_image_gives_the_same_pixels(image: Any) -> None:
    """HWC or CHW, uint8 or floats from 0 to 1, array, tensor or PIL image: contiguous uint8 HWC."""
    pixels = check(good(cam=image)).values["cam"]

    np.testing.assert_array_equal(pixels, IMAGE)
    assert pixels.flags.c_contiguous


@pytest.mark.parametrize(
    "depth",
    [DEPTH, DEPTH.transpose(2, 0, 1), Image.fromarray(DEPTH[..., 0])],
    ids=["hwc", "chw", "pil"],
)
def test_depth_keeps_its_dtype(depth: Any) -> None:
    """Depth becomes an HW array of what was measured."""
    pixels = check(good(depth=depth)).values["depth"]

    np.testing.assert_array_equal(pixels, DEPTH[..., 0])
    assert pixels.dtype == np.uint16


FAULTS = [
    ({"state": np.zeros(3)}, "state: want float32 of shape (3,), found float64 of shape (3,)"),
    ({"state": np.zeros((1, 3), np.float32)}, "found float32 of shape (1, 3)"),
    ({"state": [0.0, 0.0, 0.0]}, "state: want a numpy array or tensor"),
    ({"done": True}, "done: want a numpy array or tensor, bool of shape (1,), found bool True"),
    ({"note": 3}, "note: want a text, found 3"),
    (
        {"note": "caf\udce9"},
        "note: want a text that UTF-8 can store, found '\\udce9' at character 3",
    ),
    ({"task": None}, "task: want a text, found None"),
    ({"task": "\ud800"}, "task: want a text that UTF-8 can store, found '\\ud800' at character 0"),
    ({"index": np.array([0])}, "index: filled in by the writer"),
    ({"speed": np.zeros(1)}, "speed: no such feature; the dataset has cam, depth"),
    ({"cam": IMAGE[:3]}, "cam: want shape (4, 6, 3) or (3, 4, 6), found (3, 6, 3)"),
    ({"cam": IMAGE.astype(np.int64)}, "cam: want uint8, or floats from 0 to 1, found int64"),
    ({"cam": IMAGE * 1.0}, "cam: want floats from 0 to 1, found 0.0 to 71.0"),
    ({"cam": np.full((4, 6, 3), np.nan)}, "cam: want floats from 0 to 1, found nan"),
    ({"cam": Image.new("RGB", (4, 6))}, "cam: want a 6x4 image, found 4x6"),
    ({"cam": "a.png"}, "cam: want an array, a tensor or a PIL image, found str"),
    ({"depth": DEPTH.astype(np.int32)}, "depth: want depth as uint16 (mm) or float32 (m)"),
    ({"depth": np.full((4, 6, 1), np.inf, np.float32)}, "depth: want finite distances"),
    ({"language_persistent": "hello"}, "language_persistent: want a list of rows"),
    ({"language_persistent": [{"role": "user"}]}, "want a timestamp in seconds"),
    ({"language_persistent": [{"role": "user", "x": 1}]}, "found 'x' too"),
    (
        {"language_persistent": [{"role": "user", "timestamp": 0.0, "content": "\ud800"}]},
        "language_persistent: content: want a text that UTF-8 can store",
    ),
    (
        {"language_persistent": [{"role": "r", "timestamp": 0.0, "tool_calls": ["\ud800"]}]},
        "language_persistent: tool_calls: want a text that UTF-8 can store",
    ),
    (
        {"language_persistent": [{"role": "r", "timestamp": 0.0, "tool_calls": [b"x"]}]},
        "want tool_calls that JSON can store",
    ),
    (
        {"language_persistent": [{"role": "r", "timestamp": 0.0, "tool_calls": "say"}]},
        "want a list of tool_calls",
    ),
    (
        {"language_persistent": [{"role": "user", "timestamp": 0.0, "style": "vqa"}]},
        "want a camera for the styles vqa, trace",
    ),
]


@pytest.mark.parametrize(("change", "message"), FAULTS, ids=[text for _, text in FAULTS])
def test_the_error_of_a_value_says_what_was_wanted_and_found(
    change: dict[str, Any], message: str
) -> None:
    """Each fault names the feature, what was wanted and what was found."""
    with pytest.raises(FrameError) as error:
        check(good(**change))

    assert message in str(error.value)
    assert "frame 3 of episode 5" in str(error.value)


def test_one_error_lists_all_faults() -> None:
    """One error lists the missing, the unknown and the wrong, so one look is enough."""
    frame = good(state=np.zeros(2, np.float32), speed=1, cam=IMAGE[:1])
    del frame["grid"], frame["task"]
    with pytest.raises(FrameError) as error:
        check(frame)

    for name in ("grid: missing; want int64 of shape (2, 2)", "task:", "speed:", "state:", "cam:"):
        assert name in str(error.value)


def test_a_depth_camera_stays_with_its_unit() -> None:
    """A camera recorded in millimetres cannot continue in metres: the statistics would mix them."""
    with pytest.raises(FrameError, match="want depth in mm as before, found float32"):
        check(good(depth=DEPTH.astype(np.float32)), {"depth": "mm"})


def test_language_rows_are_completed() -> None:
    """Rows get every field, tool calls become JSON texts."""
    row = {"role": "robot", "timestamp": 1, "tool_calls": [{"name": "say"}]}
    stored = check(good(language_persistent=[row])).values["language_persistent"]

    assert stored == [
        {
            "role": "robot",
            "content": None,
            "style": None,
            "timestamp": 1,
            "camera": None,
            "tool_calls": ['{"name":"say"}'],
        }
    ]
