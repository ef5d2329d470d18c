# SPDX-License-Identifier: Apache-2.0
"""Stream datasets from the Hub or from S3, without downloading them first.

`python examples/tutorials/remote.py lerobot/pusht s3://bucket/my_dataset`
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from robostream import StreamingDataLoader, StreamingLeRobotDataset


def main(addresses: Sequence[str]) -> None:
    """Stream two epochs of each dataset, and print what was fetched for them."""
    for address in addresses:
        stream = StreamingLeRobotDataset(address, return_uint8=True, cache_limit="50GB")
        loader = StreamingDataLoader(stream, batch_size=16)
        fetched = 0.0
        for epoch in range(2):
            samples = sum(len(batch["index"]) for batch in loader)
            total = loader.stats()["bytes_fetched"]
            print(
                f"{address}: epoch {epoch}, {samples} samples, {total - fetched:.0f} bytes fetched"
            )
            fetched = total
        loader.close()


if __name__ == "__main__":
    main(sys.argv[1:])
