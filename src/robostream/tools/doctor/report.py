# SPDX-License-Identifier: Apache-2.0
"""Findings as text, as Markdown, and as JSON. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import count, groupby
from typing import Any

from robostream.tools.doctor.close_look import CloseLook
from robostream.tools.doctor.examine import Examination
from robostream.tools.doctor.findings import Finding, Remark, Verdict, shorten
from robostream.tools.doctor.repair import RepairReport

# Faults of one check that are printed; JSON has all of them.
_MOST_REMARKS = 3
_MOST_RANGES = 8
_LABEL = 13


def describe_episodes(episodes: Sequence[int]) -> str:
    """Return ascending numbers as ranges: "3, 7-9 (4 in all)"."""
    counter = count()
    runs = [list(run) for _, run in groupby(episodes, lambda episode: episode - next(counter))]
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    if len(parts) > _MOST_RANGES:
        parts = [*parts[:_MOST_RANGES], "..."]
    return ", ".join(parts) + (f" ({len(episodes):,} in all)" if len(parts) > 1 else "")


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
    return {
        "id": finding.check.id,
        "level": finding.check.item.level,
        "verdict": finding.verdict.name.lower(),
        "checks": finding.check.title,
        "episodes": finding.episodes,
        "remarks": [
            {
                "verdict": remark.verdict.name.lower(),
                "what": remark.what,
                "episodes": list(remark.episodes),
                "files": list(remark.files),
                "cure": remark.cure or finding.check.cure,
            }
            for remark in finding.remarks
        ],
        "why": finding.check.why,
    }


def examination_text(examined: Examination, *, markdown: bool, width: int) -> str:
    """Return the findings, the worst first, as text of a width or as Markdown."""
    headline = examined.url
    if examined.meta is not None:
        info, read = examined.meta.info, examined.read
        headline += (
            f": {info.codebase_version}, {len(examined.meta.episodes):,} episodes, "
            f"{info.total_frames:,} frames, {len(info.camera_keys)} cameras. Read in "
            f"{examined.seconds:.1f} s: {', '.join(f'{read[what]:,} {what}' for what in read)}."
        )
    counts = {v: sum(f.verdict == v for f in examined.findings) for v in reversed(Verdict)}
    named = ", ".join(_count(number, v) for v, number in counts.items() if number)
    parts = [
        _fill(headline, "", "", width),
        *_describe_all(examined.findings, examined.url, markdown, width),
    ]
    return "\n\n".join([*parts, f"{len(examined.findings)} checks: {named}."])


def _count(number: int, verdict: Verdict) -> str:
    plural = "s" if number > 1 and verdict else ""
    return f"{number} {verdict.name.lower()}{plural}"


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
    lines = [f"Wrote {repaired.path}:", *(f"- {text}" for text in repaired.repairs)]
    if repaired.left_out:
        lines.append(f"- left out the episodes {describe_episodes(repaired.left_out)}")
    if len(lines) == 1:
        lines.append("- a plain copy: there was nothing to repair")
    after = examination_text(repaired.examined, markdown=markdown, width=width)
    return "\n".join(_fill(line, "", "  ", width) for line in lines) + f"\n\n{after}"


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
            lines.append(_fill(text, f"  {name:{_LABEL}}", " " * (_LABEL + 2), width))
        parts.append("\n".join(lines))
    verdict = f"OK: episode {look.episode} decodes." if look.decodes else "FAILED: see the errors."
    return "\n\n".join([*parts, *_describe_all(look.findings, look.url, False, width), verdict])


def _describe_all(findings: Iterable[Finding], url: str, markdown: bool, width: int) -> list[str]:
    """Return the findings, the worst first; their files are named as in the dataset."""
    found = sorted(findings, key=lambda finding: -finding.verdict)
    shown = (_describe(finding, url, markdown, width) for finding in found if finding.verdict)
    return list(shown)


def _describe(finding: Finding, url: str, markdown: bool, width: int) -> str:
    verdict, name = finding.verdict.name.lower(), finding.check.id
    more = len(finding.remarks) - _MOST_REMARKS
    shown = finding.remarks[:_MOST_REMARKS]
    lines = [("", _describe_remark(remark).replace(f"{url}/", "")) for remark in shown]
    lines += [("", f"{more} more such findings; --json lists them.")] if more > 0 else []
    cures = dict.fromkeys(remark.cure or finding.check.cure for remark in finding.remarks)
    lines += [("why", f"{finding.check.why}."), *(("cure", cure) for cure in [*cures][:1])]
    if markdown:
        listed = (f"- {label and f'{label}: '}{text}" for label, text in lines)
        return "\n".join([f"### {verdict}: {name}\n", *listed])
    indents = ((f"  {label and f'{label}:':6} ", text) for label, text in lines)
    filled = (_fill(text, indent, " " * 9, width) for indent, text in indents)
    return "\n".join([f"{verdict:8} {name}", *filled])


def _describe_remark(remark: Remark) -> str:
    text = remark.what
    if remark.files and remark.files[0] not in text:
        text += f" In {shorten(remark.files)}."
    word = "Episodes" if len(remark.episodes) > 1 else "Episode"
    return f"{text} {word} {describe_episodes(remark.episodes)}." if remark.episodes else text


def _fill(text: str, first_indent: str, indent: str, width: int) -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=first_indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
