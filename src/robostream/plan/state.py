# SPDX-License-Identifier: Apache-2.0
"""The state of a run: its order and position as plain values, equal on every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np

from robostream.errors import StateError
from robostream.plan.epoch import EpochPlan, format_receipt
from robostream.plan.sharding import Cursor, Cut, advance

STATE_VERSION: Final = 1
"""The version of the states that this robostream saves and loads."""
_DESCRIBED = {
    "fingerprint": "dataset",
    "selection": "selection of episodes",
    "num_frames": "number of frames",
    "seed": "seed",
    "lanes": "number of lanes",
    "pool_size": "pool size",
    "shuffle": "shuffle setting",
}


@dataclass(frozen=True, slots=True)
class PlanState:
    """The order and the position of a run, as plain JSON values.

    Attributes:
        version: The version of this format.
        fingerprint: The digest of the dataset.
        selection: A digest of the selected episodes' ids and lengths.
        num_frames: The number of frames of the selected episodes.
        seed: The seed of the order.
        lanes: The number of lanes of the order.
        pool_size: The pool size of the order.
        shuffle: Whether the order is shuffled.
        quarantined: The episodes that frames of others replace.
        epoch: The current epoch.
        position: The next global position to deliver.
        receipt: The digest of all (episode, frame) pairs of the epoch before that position.
    """

    version: int
    fingerprint: str
    selection: str
    num_frames: int
    seed: int
    lanes: int
    pool_size: int
    shuffle: bool
    quarantined: list[int]
    epoch: int
    position: int
    receipt: str

    @property
    def cursor(self) -> Cursor:
        """The next position to deliver, and its epoch."""
        return Cursor(self.epoch, self.position)

    def to_dict(self) -> dict[str, Any]:
        """Return the state as a dict of plain JSON values."""
        return asdict(self)


def capture_state(plan: EpochPlan, position: int, *, fingerprint: str) -> PlanState:
    """Return the state of a run that has delivered all positions before `position`. Pure."""
    return PlanState(
        version=STATE_VERSION,
        fingerprint=fingerprint,
        selection=plan.selection,
        num_frames=plan.num_frames,
        seed=plan.seed,
        lanes=plan.lanes,
        pool_size=plan.pool_size,
        shuffle=plan.shuffle,
        quarantined=list(plan.quarantined),
        epoch=plan.epoch,
        position=position,
        receipt=format_receipt(plan.receipt(position)),
    )


def parse_state(values: Mapping[str, Any]) -> PlanState:
    """Return the state that a dict holds, or raise StateError. Pure."""
    version = values.get("version")
    if version != STATE_VERSION:
        raise StateError(
            f"want a state of version {STATE_VERSION}, got version {version!r} with the keys "
            f"{sorted(values)}. Load it with the robostream version that wrote it."
        )
    names = [field.name for field in fields(PlanState)]
    missing = [name for name in names if name not in values]
    unknown = [name for name in values if name not in names]
    if missing or unknown:
        raise StateError(f"not a robostream state: missing {missing}, unknown {unknown}")
    for field in fields(PlanState):
        if type(values[field.name]).__name__ != str(field.type).partition("[")[0]:
            raise StateError(
                f"the state's {field.name} should be of type {field.type}, "
                f"but is {values[field.name]!r}"
            )
    if not all(type(episode) is int for episode in values["quarantined"]):
        raise StateError(f"the state's quarantined should be episode ids: {values['quarantined']}")
    state = PlanState(**values)
    if min(state.epoch, state.position) < 0 or min(state.lanes, state.pool_size) < 1:
        raise StateError(
            "want epoch and position of 0 or more, lanes and pool_size of 1 or more in a state, "
            f"got epoch {state.epoch}, position {state.position}, lanes {state.lanes}, pool_size "
            f"{state.pool_size}. The state was damaged; load an earlier one."
        )
    return state


def check_state(state: PlanState, plan: EpochPlan, *, fingerprint: str) -> None:
    """Raise StateError unless `state` belongs to a run with this plan, in any epoch. Pure.

    Equal settings do not guarantee an equal order, so the receipt is recomputed and compared too.
    """
    here = capture_state(plan, 0, fingerprint=fingerprint)
    differences = [
        f"{what} ({name}): {getattr(state, name)} in the state, {getattr(here, name)} here"
        for name, what in _DESCRIBED.items()
        if getattr(state, name) != getattr(here, name)
    ]
    if differences:
        raise StateError(
            "the state belongs to another order. It differs in " + "; ".join(differences) + ". "
            "Resume with the dataset and settings the state was saved with, or start afresh."
        )
    if state.position > plan.num_frames:
        raise StateError(
            f"the state says epoch {state.epoch}, position {state.position}, which is not in an "
            f"epoch of {plan.num_frames} frames"
        )
    own = plan.replace(epoch=state.epoch, quarantined=state.quarantined)
    receipt = format_receipt(own.receipt(state.position))
    if receipt != state.receipt:
        raise StateError(
            f"the settings are those of the state, but the order is not: up to position "
            f"{state.position} of epoch {state.epoch} the state's receipt is {state.receipt}, here "
            f"it is {receipt}. The state was damaged, or written by a version of robostream that "
            "has another order; start afresh."
        )


def cursor_from_batches(values: Mapping[str, Any], cut: Cut, num_frames: int) -> Cursor:
    """Return the cursor of a state {"batches_consumed", "batch_size"}. Pure.

    Each of `cut.world_size` ranks has delivered that many batches of that size since epoch 0.
    """
    batches, batch_size = check_batches(values)
    saved = Cut(rank=0, world_size=cut.world_size, batch_size=batch_size, drop_last=cut.drop_last)
    return advance(saved, num_frames, Cursor(epoch=0, position=0), batches)


def counts_batches(values: Mapping[str, Any]) -> bool:
    """Return whether a state is {"batches_consumed", "batch_size"}; raise unless a dict. Pure."""
    if isinstance(values, Mapping):
        return "batches_consumed" in values
    raise StateError(f"want a state, the dict that state_dict() returns; got {values!r:.200}")


def check_batches(values: Mapping[str, Any]) -> tuple[int, int]:
    """Return the numbers of {"batches_consumed", "batch_size"}, or raise StateError. Pure."""
    batches, batch_size = values.get("batches_consumed", -1), values.get("batch_size", 0)
    kinds = {type(batches), type(batch_size)}
    whole = all(kind is int or issubclass(kind, np.integer) for kind in kinds)  # True is neither
    if not (whole and batches >= 0 and batch_size >= 1):
        raise StateError(
            f'want {{"batches_consumed": int >= 0, "batch_size": int >= 1}}, got {dict(values)}'
        )
    return int(batches), int(batch_size)
