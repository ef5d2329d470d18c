# SPDX-License-Identifier: Apache-2.0
"""Whether an episode's seconds in a video file are as many as its frames take."""

from __future__ import annotations

from robostream.errors import MetadataError

# A recorder measures the end of a span in the encoded file, whose last frame may last a bit more
# or less than 1 / fps. A whole frame too many or too few is an error.
_SLACK_FRAMES = 0.9


def check_span(
    from_timestamp: float, to_timestamp: float, length: int, fps: float, where: str
) -> None:
    """Raise MetadataError unless the span holds `length` frames, give or take less than one. Pure.

    This is all the episode table alone can tell. It finds a wrong fps, and a start or an end that
    is off by a frame; not a span that was moved as a whole.

    Args:
        from_timestamp: The column videos/<camera>/from_timestamp, seconds in the file.
        to_timestamp: The column videos/<camera>/to_timestamp; the end is excluded.
        length: The episode's frames.
        fps: Frames per second.
        where: The episode table's file, the episode and the camera, for the message.
    """
    frames = (to_timestamp - from_timestamp) * fps
    if abs(frames - length) <= _SLACK_FRAMES:
        return
    raise MetadataError(
        f"{where}: from_timestamp {from_timestamp:.6g} s to to_timestamp {to_timestamp:.6g} s is "
        f"{frames:.6g} frames at {fps:g} fps, want the {length} of the episode. "
        f"{_cure(to_timestamp - from_timestamp, length, fps)}"
    )


def _cure(seconds: float, length: int, fps: float) -> str:
    implied = length / seconds if seconds > 0 else 0.0
    # A few frames are missing or too many; a tenth of them is another rate.
    if abs(implied - fps) > 0.1 * fps and abs(implied - round(implied)) < 0.01 * implied:
        return f"It would fit at {round(implied)} fps: correct fps in info.json if it is wrong."
    return (
        "The episode table is damaged or was edited, or the video lacks frames: copy meta/ again, "
        "or leave the episode out (episodes=...)."
    )
