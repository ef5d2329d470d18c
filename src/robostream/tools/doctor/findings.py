# SPDX-License-Identifier: Apache-2.0
"""Checks as data, what they found, and findings as text, Markdown and JSON."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any, ClassVar, Protocol, get_type_hints

import numpy as np

# The cure of most checks.
COPY_AGAIN = "Copy the whole dataset from one revision, or repair a copy with --fix."
_MOST_NAMED = 5
# Faults of one check that are printed; JSON has all of them.
_MOST_REMARKS = 3
_MOST_RANGES = 8
fill = partial(textwrap.fill, break_long_words=False, break_on_hyphens=False)


class Verdict(IntEnum):
    """How bad a finding is: of interest, perhaps harmful, or training is wrong or impossible."""

    OK = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that a check found."""

    verdict: Verdict
    what: str  # what was found, and what was wanted
    episodes: Sequence[int] = ()  # the episodes concerned; none if it concerns the whole dataset
    files: tuple[str, ...] = ()  # the files concerned
    cure: str = ""  # what to do, if the check's own cure does not fit


Remarks = Iterator[Remark]
# Remarks that training is wrong or impossible, that it may suffer, and that are good to know.
error = partial(Remark, Verdict.ERROR)
warning = partial(Remark, Verdict.WARNING)
note = partial(Remark, Verdict.NOTE)


class Item(Protocol):
    """Something that was read and that checks look at.

    If it, or its attribute `listed`, has a file or episodes, its remarks concern these.
    """

    level: ClassVar[str] = "default"  # the level at which it is read


@dataclass(frozen=True, slots=True)
class Check:
    """One question about a dataset."""

    id: str  # its name for scripts
    item: type[Item]  # the type of items that it looks at
    title: str  # what holds for a sound dataset
    why: str  # why it matters for training
    cure: str  # what to do if it does not hold
    find: Callable[[Any], Remarks]  # yields the remarks of an item. Pure


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


def describe_episodes(episodes: Sequence[int]) -> str:
    """Return ascending numbers as ranges: "3, 7-9 (4 in all)"."""
    runs = np.split(episodes, np.flatnonzero(np.diff(episodes) != 1) + 1)
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    shown = [*parts[:_MOST_RANGES], "..."] if len(parts) > _MOST_RANGES else parts
    return ", ".join(shown) + (f" ({len(episodes):,} in all)" if len(parts) > 1 else "")


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return the answer to a check, for JSON."""
    one = finding.check
    return {
        "id": one.id,
        "level": one.item.level,
        "verdict": finding.verdict.name.lower(),
        "checks": one.title,
        "episodes": finding.episodes,
        "remarks": [
            asdict(remark)
            | {"verdict": remark.verdict.name.lower(), "cure": remark.cure or one.cure}
            for remark in finding.remarks
        ],
        "why": one.why,
    }


def describe_findings(
    findings: Iterable[Finding], url: str, markdown: bool, width: int
) -> list[str]:
    """Return the findings, the worst first; their files are named as in the dataset."""
    found = sorted(findings, key=lambda finding: -finding.verdict)
    return [_describe(finding, url, markdown, width) for finding in found if finding.verdict]


def _describe(finding: Finding, url: str, markdown: bool, width: int) -> str:
    verdict, name = finding.verdict.name.lower(), finding.check.id
    shown, more = finding.remarks[:_MOST_REMARKS], len(finding.remarks) - _MOST_REMARKS
    lines = []
    for remark in shown:
        text = remark.what
        if remark.files and remark.files[0] not in text:
            text += f" In {shorten(remark.files)}."
        if remark.episodes:
            word = "Episodes" if len(remark.episodes) > 1 else "Episode"
            text += f" {word} {describe_episodes(remark.episodes)}."
        lines.append(("", text.replace(f"{url}/", "")))
    lines += [("", f"{more} more such findings; --json lists them.")] if more > 0 else []
    cure = finding.remarks[0].cure or finding.check.cure
    lines += [("why: ", f"{finding.check.why}."), ("cure: ", cure)]
    if markdown:
        return "\n".join([f"### {verdict}: {name}\n", *(f"- {a}{text}" for a, text in lines)])
    indented = partial(fill, width=width, subsequent_indent=" " * 9)
    filled = (indented(text, initial_indent=f"  {label:7}") for label, text in lines)
    return "\n".join([f"{verdict:8} {name}", *filled])
