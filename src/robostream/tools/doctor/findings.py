# SPDX-License-Identifier: Apache-2.0
"""Checks as data: what each looks at, what it found, why that matters, and the cure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any, ClassVar, Protocol, get_type_hints

# The cure of most checks.
COPY_AGAIN = "Copy the whole dataset from one revision, or repair a copy with --fix."
_MOST_NAMED = 5


class Verdict(IntEnum):
    """How bad a finding is: of interest, perhaps harmful, or training is wrong or impossible."""

    OK = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that a check found.

    Attributes:
        what: What was found, and what was wanted.
        episodes: The episodes concerned; none if it concerns the whole dataset.
        files: The files concerned.
        cure: What to do, if the check's own cure does not fit.
    """

    verdict: Verdict
    what: str
    episodes: Sequence[int] = ()
    files: tuple[str, ...] = ()
    cure: str = ""


Remarks = Iterator[Remark]
# Remarks that training is wrong or impossible, that it may suffer, and that are good to know.
error = partial(Remark, Verdict.ERROR)
warning = partial(Remark, Verdict.WARNING)
note = partial(Remark, Verdict.NOTE)


class Item(Protocol):
    """Something that was read and that checks look at.

    If it, or its attribute `listed`, has a file or episodes, its remarks concern these.

    Attributes:
        level: The level at which it is read.
    """

    level: ClassVar[str] = "default"


@dataclass(frozen=True, slots=True)
class Check:
    """One question about a dataset.

    Attributes:
        id: Its name for scripts.
        item: The type of items that it looks at.
        title: What holds for a sound dataset.
        why: Why it matters for training.
        cure: What to do if it does not hold.
        find: Yields the remarks of an item. Pure.
    """

    id: str
    item: type[Item]
    title: str
    why: str
    cure: str
    find: Callable[[Any], Remarks]


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to a check: its remarks, the worst of which gives the verdict."""

    check: Check
    remarks: tuple[Remark, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict."""
        return max((remark.verdict for remark in self.remarks), default=Verdict.OK)

    @property
    def episodes(self) -> list[int]:
        """All episodes concerned, ascending."""
        return sorted({int(episode) for remark in self.remarks for episode in remark.episodes})


def check(*, why: str, cure: str = COPY_AGAIN) -> Callable[[Callable[[Any], Remarks]], Check]:
    """Make a check of a function, whose parameter is the item that it looks at.

    The function's name is the id, its docstring says what holds if all is well.
    """

    def make(find: Callable[[Any], Remarks]) -> Check:
        title = (find.__doc__ or "").split("\n")[0].rstrip(".")
        item, _ = get_type_hints(find).values()
        return Check(find.__name__.replace("_", "-"), item, title, why, cure, find)

    return make


Answers = list[tuple[str, Remark]]


def ask(checks: Iterable[Check], item: Item) -> Answers:
    """Return the remarks of an item, by the id of the check. They concern its file and episodes."""
    place = getattr(item, "listed", item)
    files = (place.file,) if hasattr(place, "file") else ()
    answers = []
    for one in checks:
        for remark in one.find(item) if isinstance(item, one.item) else ():
            is_note = remark.verdict == Verdict.NOTE
            concerned = remark.episodes or (() if is_note else getattr(place, "episodes", ()))
            answers.append((one.id, replace(remark, episodes=tuple(concerned), files=files)))
    return answers


def collect(checks: Iterable[Check], answers: Answers) -> list[Finding]:
    """Return the findings of all checks; remarks in the same words become one."""
    merged: dict[tuple[str, Verdict, str, str], list[Remark]] = defaultdict(list)
    for name, remark in answers:
        merged[name, remark.verdict, remark.what, remark.cure].append(remark)
    by_check: dict[str, list[Remark]] = defaultdict(list)
    for (name, verdict, what, cure), same in merged.items():
        episodes = sorted({int(episode) for remark in same for episode in remark.episodes})
        files = tuple(dict.fromkeys(file for remark in same for file in remark.files))
        by_check[name].append(Remark(verdict, what, episodes, files, cure))
    return [Finding(one, tuple(by_check[one.id])) for one in checks]


def shorten(values: Sequence[object]) -> str:
    """Return the first values as text, and how many more there are. Pure."""
    more = len(values) - _MOST_NAMED
    named = ", ".join(map(str, values[:_MOST_NAMED]))
    return f"{named} and {more:,} more" if more > 0 else named
