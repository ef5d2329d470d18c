# SPDX-License-Identifier: Apache-2.0
"""Findings as text, as Markdown, and as JSON. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from robostream.tools.doctor.close_look import CloseLook
from robostream.tools.doctor.examine import Examination
from robostream.tools.doctor.findings import Finding, Remark, shorten
from robostream.tools.doctor.repair import RepairReport

# Faults of one check that are printed; JSON has all of them.
_MOST_REMARKS = 3
_MOST_RANGES = 8
_LABEL = 13
_fill = partial(textwrap.fill, break_long_words=False, break_on_hyphens=False)


def describe_episodes(episodes: Sequence[int]) -> str:
    """Return ascending numbers as ranges: "3, 7-9 (4 in all)"."""
    runs = np.split(episodes, np.flatnonzero(np.diff(episodes) != 1) + 1)
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    shown = [*parts[:_MOST_RANGES], "..."] if len(parts) > _MOST_RANGES else parts
    return ", ".join(shown) + (f" ({len(episodes):,} in all)" if len(parts) > 1 else "")


def examination_json(examined: Examination) -> dict[str, Any]:
    """Return all answers, for JSON."""
    return {
        "dataset": examined.url,
        "verdict": examined.verdict.name.lower(),
        "seconds": examined.seconds,
        "read": dict(examined.read),
        "findings": [_finding_json(finding) for finding in examined.findings],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
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


def examination_text(examined: Examination, *, markdown: bool, width: int) -> str:
    """Return the findings, the worst first, as text of a width or as Markdown."""
    headline = examined.url
    if examined.meta is not None:
        info = examined.meta.info
        read = ", ".join(f"{number:,} {what}" for what, number in examined.read.items())
        headline += (
            f": {info.codebase_version}, {len(examined.meta.episodes):,} episodes, "
            f"{info.total_frames:,} frames, {len(info.camera_keys)} cameras. Read in "
            f"{examined.seconds:.1f} s: {read}."
        )
    counts = sorted(Counter(f.verdict for f in examined.findings).items(), reverse=True)
    named = [f"{n} {v.name.lower()}{'s' if n > 1 and v else ''}" for v, n in counts]
    described = _describe_all(examined.findings, examined.url, markdown, width)
    last = f"{len(examined.findings)} checks: {', '.join(named)}."
    return "\n\n".join([_fill(headline, width), *described, last])


def repair_json(repaired: RepairReport) -> dict[str, Any]:
    """Return what was repaired and the answers about the copy, for JSON."""
    return {
        "path": str(repaired.path),
        "repairs": repaired.repairs,
        "episodes_left_out": list(repaired.left_out),
        "after": examination_json(repaired.examined),
    }


def repair_text(repaired: RepairReport, *, markdown: bool, width: int) -> str:
    """Return what was repaired, and the findings about the copy."""
    lines = [f"- {text}" for text in repaired.repairs]
    if repaired.left_out:
        lines.append(f"- left out the episodes {describe_episodes(repaired.left_out)}")
    lines = [f"Wrote {repaired.path}:", *(lines or ["- a plain copy: there was nothing to repair"])]
    filled = "\n".join(_fill(line, width, subsequent_indent="  ") for line in lines)
    return f"{filled}\n\n{examination_text(repaired.examined, markdown=markdown, width=width)}"


def look_json(look: CloseLook) -> dict[str, Any]:
    """Return all facts about an episode and the answers of the checks, for JSON."""
    findings = [_finding_json(finding) for finding in look.findings]
    facts = {"dataset": look.url, "episode": look.episode, "decodes": look.decodes}
    return facts | {"facts": look.facts, "findings": findings}


def look_text(look: CloseLook, *, width: int) -> str:
    """Return all facts about an episode, then what is wrong, as text of a width."""
    parts = [look.url]
    for subject, facts in look.facts.items():
        lines = [subject]
        for name, values in facts.items():
            text = ", ".join(f"{key} {value}".strip() for key, value in values.items())
            first, later = f"  {name:{_LABEL}}", " " * (_LABEL + 2)
            lines.append(_fill(text, width, initial_indent=first, subsequent_indent=later))
        parts.append("\n".join(lines))
    verdict = f"OK: episode {look.episode} decodes." if look.decodes else "FAILED: see the errors."
    return "\n\n".join([*parts, *_describe_all(look.findings, look.url, False, width), verdict])


def _describe_all(findings: Iterable[Finding], url: str, markdown: bool, width: int) -> list[str]:
    """Return the findings, the worst first; their files are named as in the dataset."""
    found = sorted(findings, key=lambda finding: -finding.verdict)
    return [_describe(finding, url, markdown, width) for finding in found if finding.verdict]


def _describe(finding: Finding, url: str, markdown: bool, width: int) -> str:
    verdict, name = finding.verdict.name.lower(), finding.check.id
    shown, more = finding.remarks[:_MOST_REMARKS], len(finding.remarks) - _MOST_REMARKS
    lines = [("", _describe_remark(remark).replace(f"{url}/", "")) for remark in shown]
    lines += [("", f"{more} more such findings; --json lists them.")] if more > 0 else []
    cure = finding.remarks[0].cure or finding.check.cure
    lines += [("why: ", f"{finding.check.why}."), ("cure: ", cure)]
    if markdown:
        return "\n".join([f"### {verdict}: {name}\n", *(f"- {a}{text}" for a, text in lines)])
    fill = partial(_fill, width=width, subsequent_indent=" " * 9)
    filled = (fill(text, initial_indent=f"  {label:7}") for label, text in lines)
    return "\n".join([f"{verdict:8} {name}", *filled])


def _describe_remark(remark: Remark) -> str:
    text = remark.what
    if remark.files and remark.files[0] not in text:
        text += f" In {shorten(remark.files)}."
    word = "Episodes" if len(remark.episodes) > 1 else "Episode"
    return f"{text} {word} {describe_episodes(remark.episodes)}." if remark.episodes else text
