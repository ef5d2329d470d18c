# SPDX-License-Identifier: Apache-2.0
"""Two ranks, each a process with workers of its own, deliver to one GPU at the same time."""

from __future__ import annotations

import json

import pytest

from robostream import LeRobotDataset
from tests.loader.programs import start
from tests.loader.streams import AV1
from tests.servers.required import require_gpu

PROGRAM = """
import json
options = {"camera_keys": None, "world_size": 2, "rank": RANK}
loader = open_loader(workers=1, device=DEVICE, **options)
found = {}
for batch in loader:
    images = [batch[key] for key in loader.stream.meta.camera_keys]
    cameras = [each.flatten(1).long().sum(1).tolist() for each in images]
    found |= dict(zip(batch["index"].tolist(), zip(*cameras)))
print(json.dumps(found))
"""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_ranks_share_a_device(device: str) -> None:
    """Together they deliver each frame once, with the map-style dataset's pixels."""
    if device == "cuda":
        require_gpu()
    code = PROGRAM.replace("DEVICE", repr(device))
    ranks = [start(code.replace("RANK", str(rank))) for rank in range(2)]
    outputs = [rank.communicate(timeout=300) for rank in ranks]
    assert [errors for _, errors in outputs] == ["", ""]
    found = [json.loads(output) for output, _ in outputs]
    dataset = LeRobotDataset("some/name", root=AV1, return_uint8=True)
    cameras = dataset.meta.camera_keys
    sums = {str(n): [int(dataset[n][key].long().sum()) for key in cameras] for n in range(62)}

    assert found[0].keys().isdisjoint(found[1].keys())
    assert found[0] | found[1] == sums
