# SPDX-License-Identifier: Apache-2.0
"""The state of a run: its order and position as plain values, equal on every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

import numpy as np

from robostream.errors import StateError
from robostream.plan.epoch import EpochPlan, format_receipt
from robostream.plan.line import WholeEpisodes
from robostream.plan.mixture import Mixture, label_dataset
from robostream.plan.sharding import Cursor, Cut, advance

STATE_VERSION: Final = 1
"""The version of the states of plain streams: whole episodes of one dataset."""
MIXTURE_VERSION: Final = 2
"""The version of the states of mixtures, and of trimmed, strided or weighted episodes."""
_OF_MIXTURES = ("since", "datasets")
_NO_LABEL: Final = f"{0:016x}"
_WHOLE: Final = "whole episodes"  # instead of a digest of selected frames
_KINDS = {
    STATE_VERSION: "whole episodes of one dataset",
    MIXTURE_VERSION: "a mixture, or of trimmed, strided or weighted episodes",
}
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
        quarantined: The episodes that frames of others replace; in a mixture [dataset, episode].
        epoch: The current epoch.
        position: The next global position to deliver.
        receipt: The digest of all (episode, frame) pairs of the epoch before that position.
        since: In a mixture, the epoch with which its weights begin; else None.
        datasets: In a mixture, for each dataset its label, a digest of its selected frames, the
            frames that an epoch takes of it, and the place of its endless line at which the epoch
            `since` begins; else None.
    """

    version: int
    fingerprint: str
    selection: str
    num_frames: int
    seed: int
    lanes: int
    pool_size: int
    shuffle: bool
    quarantined: list[Any]
    epoch: int
    position: int
    receipt: str
    since: int | None = None
    datasets: list[Any] | None = None

    @property
    def cursor(self) -> Cursor:
        """The next position to deliver, and its epoch."""
        return Cursor(self.epoch, self.position)

    def to_dict(self) -> dict[str, Any]:
        """Return the state as a dict of plain JSON values."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def capture_state(plan: EpochPlan, position: int, *, fingerprint: str) -> PlanState:
    """Return the state of a run that has delivered all positions before `position`. Pure."""
    content = plan.content
    return PlanState(
        version=STATE_VERSION if content.datasets is None else MIXTURE_VERSION,
        fingerprint=fingerprint,
        selection=plan.selection,
        num_frames=plan.num_frames,
        seed=plan.seed,
        lanes=plan.lanes,
        pool_size=plan.pool_size,
        shuffle=plan.shuffle,
        quarantined=[content.name_episode(episode) for episode in plan.quarantined],
        epoch=plan.epoch,
        position=position,
        receipt=format_receipt(plan.receipt(position)),
        since=content.since,
        datasets=content.datasets,
    )


def parse_state(values: Mapping[str, Any]) -> PlanState:
    """Return the state that a dict holds, or raise StateError. Pure."""
    version = values.get("version")
    if version not in (STATE_VERSION, MIXTURE_VERSION):
        raise StateError(
            f"want a state of version {STATE_VERSION} or {MIXTURE_VERSION}, got version "
            f"{version!r} with the keys {sorted(values)}. Load it with the robostream version that "
            "wrote it."
        )
    is_mixture = version == MIXTURE_VERSION
    names = [f.name for f in fields(PlanState) if is_mixture or f.name not in _OF_MIXTURES]
    missing = [name for name in names if name not in values]
    unknown = [name for name in values if name not in names]
    if missing or unknown:
        raise StateError(f"not a robostream state: missing {missing}, unknown {unknown}")
    for field in fields(PlanState):
        kind = str(field.type).partition("[")[0].partition(" |")[0]
        if field.name in names and type(values[field.name]).__name__ != kind:
            raise StateError(
                f"the state's {field.name} should be of type {kind}, but is {values[field.name]!r}"
            )
    _check_lists(values, is_mixture=is_mixture)
    state = PlanState(**values)
    if min(state.epoch, state.position) < 0 or min(state.lanes, state.pool_size) < 1:
        raise StateError(
            "want epoch and position of 0 or more, lanes and pool_size of 1 or more in a state, "
            f"got epoch {state.epoch}, position {state.position}, lanes {state.lanes}, pool_size "
            f"{state.pool_size}. The state was damaged; load an earlier one."
        )
    return state


def _check_lists(values: Mapping[str, Any], *, is_mixture: bool) -> None:
    """Raise StateError unless the lists of a state have entries of the right types."""
    if not is_mixture:
        if not all(type(episode) is int for episode in values["quarantined"]):
            raise StateError(
                f"the state's quarantined should be episode ids: {values['quarantined']}"
            )
        return
    for name, kind in (("quarantined", (int, int)), ("datasets", (str, str, int, int))):
        for entry in values[name]:
            if not isinstance(entry, list | tuple) or tuple(map(type, entry)) != kind:
                raise StateError(f"the state's {name} has an entry of another form: {entry!r:.200}")


def resume_content(
    state: PlanState, plan: EpochPlan, *, fingerprint: str, may_skip: bool
) -> tuple[WholeEpisodes | Mixture, Cursor | None]:
    """Return what epochs consist of from a state on, and where changed weights begin. Pure.

    If weights, datasets or selections have changed since, the new ones begin with the state's epoch
    if it stands at the start of one, else with the next epoch, and the rest of this one is dropped.
    Without a change, the cursor is None: the run continues at the state's own. Raises StateError
    where the rest of an epoch would be dropped, unless it may be skipped.
    """
    content = plan.content
    if state.datasets is None and not isinstance(content, Mixture):
        return content, None
    saved = _datasets(state.datasets, state.fingerprint, state.num_frames)
    own = _datasets(content.datasets, fingerprint)
    places = {(label, digest): place for label, digest, _, place in saved}
    is_same = [entry[:3] for entry in saved] == [entry[:3] for entry in own]
    if is_same and isinstance(content, Mixture) and state.since is not None:
        kept = [places[label, digest] for label, digest, *_ in own]
        return content.begin_again(state.since, kept), None
    is_other = not {label for label, _ in places} & {entry[0] for entry in own}
    if is_other or state.seed != plan.seed:
        return content, None  # another run: `check_state` names the differences
    if state.position and not may_skip:
        raise StateError(
            f"weights, datasets or selections differ from those of the state, which stands at "
            f"position {state.position} of {state.num_frames} in epoch {state.epoch}. New weights "
            "begin with an epoch: resume with the old ones to its end, or call load_state_dict "
            "with skip_epoch=True to drop the rest of it."
        )
    epoch = state.epoch + (state.position > 0)
    if isinstance(content, Mixture):
        past = epoch - (state.since or 0)
        passed = {(label, digest): place + past * n for label, digest, n, place in saved}
        begins = [passed.get((label, digest), 0) for label, digest, *_ in own]
        content = content.begin_again(epoch, begins)
    return content, Cursor(epoch, 0)


def _datasets(datasets: list[Any] | None, fingerprint: str, num_frames: int = 0) -> list[list[Any]]:
    """Return the datasets of a state or content as a mixture has them, also of a plain stream."""
    alone = f"{label_dataset(fingerprint):016x}"
    if datasets is None:
        return [[alone, _WHOLE, num_frames, 0]]
    return [[alone if label == _NO_LABEL else label, *rest] for label, *rest in datasets]


def check_state(state: PlanState, plan: EpochPlan, *, fingerprint: str) -> None:
    """Raise StateError unless `state` belongs to a run with this plan, in any epoch. Pure.

    Equal settings do not guarantee an equal order, so the receipt is recomputed and compared too.
    """
    _check_settings(state, capture_state(plan, 0, fingerprint=fingerprint))
    if state.position > plan.num_frames:
        raise StateError(
            f"the state says epoch {state.epoch}, position {state.position}, which is not in an "
            f"epoch of {plan.num_frames} frames"
        )
    own = plan.replace(
        epoch=state.epoch, quarantined=quarantined_episodes(state, plan.content, fingerprint)
    )
    receipt = format_receipt(own.receipt(state.position))
    if receipt != state.receipt:
        raise StateError(
            f"the settings are those of the state, but the order is not: up to position "
            f"{state.position} of epoch {state.epoch} the state's receipt is {state.receipt}, here "
            f"it is {receipt}. The state was damaged, or written by a version of robostream that "
            "has another order; start afresh."
        )


def _check_settings(state: PlanState, here: PlanState) -> None:
    """Raise StateError unless two states have the same order."""
    if here.version != state.version:
        raise StateError(
            f"the state belongs to another order: one of {_KINDS[state.version]}; here it is one "
            f"of {_KINDS[here.version]}. Resume with the settings the state was saved with."
        )
    differences = [
        f"{what} ({name}): {getattr(state, name)} in the state, {getattr(here, name)} here"
        for name, what in _DESCRIBED.items()
        if getattr(state, name) != getattr(here, name)
    ]
    if differences:
        version, here_version = map(_dataset_version, (state.fingerprint, here.fingerprint))
        crossing = (
            f"The state is of a {version} dataset, this one is {here_version}: a state does not "
            "cross versions, even of the same recording. "
        )
        raise StateError(
            "the state belongs to another order. It differs in " + "; ".join(differences) + ". "
            f"{'' if version == here_version else crossing}"
            "Resume with the dataset and settings the state was saved with, or start afresh."
        )


def quarantined_episodes(
    state: PlanState, content: WholeEpisodes | Mixture, fingerprint: str
) -> list[int]:
    """Return the quarantined episodes of a state, by their numbers in the stream. Pure."""
    saved = [label for label, *_ in _datasets(state.datasets, state.fingerprint)]
    labels = [label for label, *_ in _datasets(content.datasets, fingerprint)]
    firsts = content.first_episodes.tolist()
    pairs = state.quarantined if state.datasets else [(0, e) for e in state.quarantined]
    found = [
        firsts[labels.index(saved[dataset])] + episode
        for dataset, episode in pairs
        if 0 <= dataset < len(saved) and saved[dataset] in labels
    ]
    return [episode for episode in found if episode in content.ids]


def _dataset_version(fingerprint: str) -> str:
    """Return the version of the dataset with this fingerprint. Pure."""
    return fingerprint.partition("-")[0] if fingerprint.startswith("v") else "v3.0"


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
