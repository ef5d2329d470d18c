# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from robostream import LeRobotDataset
from robostream.assemble import CameraReader, DatasetLocation, SampleOptions, open_dataset
from tests.fixture_datasets import FIXTURES, NAMES


@pytest.mark.parametrize("name", NAMES)
def test_images_are_those_of_map_style_items(name: str) -> None:
    """Any frames of any episode; colours as uint8, depth in the unit of the recorder."""
    root = str(FIXTURES / name)
    dataset = open_dataset(DatasetLocation(root), SampleOptions())
    items = LeRobotDataset(root)
    with CameraReader(dataset) as reader:
        for key in items.meta.camera_keys:
            unit = (items.features[key].get("info") or {}).get("depth_unit")
            scale = {None: 255.0, "mm": 1.0, "m": 1e-3}[unit]
            for episode in (0, 1):
                length = int(items.meta.episodes["length"][episode])
                frames = sorted({0, length // 2, length - 1})
                first = int(items.meta.episodes["dataset_from_index"][episode])
                for frame, image in zip(frames, reader.read(key, episode, frames), strict=True):
                    wanted = items[first + frame][key].numpy() * scale

                    assert image.dtype == (np.uint8 if unit is None else np.float32)
                    np.testing.assert_allclose(image, wanted, atol=1e-3)
