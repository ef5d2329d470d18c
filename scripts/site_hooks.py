# SPDX-License-Identifier: Apache-2.0
"""What mkdocs does beyond Markdown to build the site (mkdocs.yml names this file).

The home page is the README. The page of commands is written from their parsers. Drawings become
part of their page, so that they follow its colours. Files outside docs/ that pages link to are
copied. An attribute gets the text that its class has for it. A public name that the reference lacks
is a warning, which fails a strict build.
"""

from __future__ import annotations

import argparse
import ast
import logging
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

REPO = Path(__file__).parents[1]
COPIED = ("benchmarks/results/*.json", "examples/**/*.py", "examples/**/*.sh", "slurm/*.sh")
COMMANDS_MARK, ERRORS_MARK = "<!-- commands -->", "<!-- error tree -->"
# The packages whose `__all__` is the public API.
PUBLIC = ("robostream", "robostream.plan")
ATTRIBUTES_SECTION = re.compile(r"\n+Attributes:\n(?:(?: {4}.*)?\n?)+")
logger = logging.getLogger("mkdocs.hooks.robostream")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the home page and the files that pages link to outside docs/."""
    home = f"---\nhide: [navigation]\n---\n\n{(REPO / 'README.md').read_text()}"
    files.append(File.generated(config, "index.md", content=home))
    for path in sorted(path for pattern in COPIED for path in REPO.glob(pattern)):
        name = f"files/{path.relative_to(REPO).as_posix()}"
        inclusion = InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, name, abs_src_path=str(path), inclusion=inclusion))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the site's own files; fill in the commands."""
    here = page.file.src_uri
    # The README lies above docs/, all other pages in it.
    place = "README.md" if here == "index.md" else f"docs/{here}"
    if COMMANDS_MARK in markdown:
        markdown = markdown.replace(COMMANDS_MARK, commands_markdown())
    if ERRORS_MARK in markdown:
        markdown = markdown.replace(ERRORS_MARK, f"```\n{error_tree()}\n```")
    return re.sub(
        r"\]\((?!\w+:|#)([^)#]+)",
        lambda link: f"]({site_path(place, here, link[1])}",
        markdown,
    )


def site_path(place: str, here: str, link: str) -> str:
    """Return the link of a page for the site: files outside docs/ lie in files/. Pure."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(place), link))
    is_page = target.startswith("docs/")
    there = target.removeprefix("docs/") if is_page else f"files/{target}"
    return posixpath.relpath(there, posixpath.dirname(here) or ".")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace images of drawings by the drawings; link the pages that docstrings name."""
    if page.file.src_uri.startswith("reference/"):
        html = re.sub(r"\bdocs/([\w-]+)\.md\b", r'<a href="../../\1/">\g<0></a>', html)
    image = r'<img alt="([^"]*)" src="[^"]*drawings/([\w-]+)\.svg" ?/?>'
    return re.sub(image, lambda found: _inline(found[2], found[1]), html)


def _inline(name: str, alt: str) -> str:
    svg = (REPO / "docs" / "drawings" / f"{name}.svg").read_text()
    svg = svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{alt}" ', 1)
    return f'<span class="drawing-frame">{svg}</span>'


def on_env(env: Any, config: MkDocsConfig, files: Files) -> Any:
    """Warn of public names that the reference lacks, and of those without a docstring."""
    pages = [file.page.markdown or "" for file in files.documentation_pages() if file.page]
    for problem in reference_problems(pages):
        logger.warning(problem)
    return env


def reference_problems(pages: Iterable[str]) -> list[str]:
    """Return what is wrong with the reference in these pages, one sentence each."""
    shown = {name for page in pages for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}
    extensions = griffe.load_extensions(SourceTexts)
    package = griffe.load("robostream", search_paths=[REPO / "src"], extensions=extensions)
    problems = []
    for path in _public_names():
        if path not in shown and _other_path(path) not in shown:
            problems.append(f"{path} is public, and no page of the reference has `::: {path}`")
        problems += [
            f"{name} is public and has no docstring" for name in _undocumented(package, path)
        ]
    return problems


def _public_names() -> Iterator[str]:
    for name in PUBLIC:
        path = REPO / "src" / Path(*name.split(".")) / "__init__.py"
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                yield from (f"{name}.{one}" for one in ast.literal_eval(node.value))


def _other_path(path: str) -> str:
    """Return the path of a name that two packages offer. Pure."""
    return path.replace("robostream.plan.", "robostream.")


def _undocumented(package: Any, path: str) -> Iterator[str]:
    """Yield the name, and its methods and attributes, that have no text."""
    found = package[path.removeprefix("robostream.")]
    target = found.final_target if found.is_alias else found
    if not target.docstring:
        yield path
    if target.is_class:
        for name, member in target.members.items():
            is_shown = not name.startswith("_") and not member.is_alias
            if is_shown and not member.docstring:
                yield f"{path}.{name}"


class SourceTexts(griffe.Extension):
    """Completes what mkdocstrings reads: texts of attributes, values of defaults.

    The text of an attribute is the docstring of `forward(...)`, or its line in the class docstring,
    under "Attributes" or "Args".
    """

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Write the docstrings of its attributes."""
        texts = _texts_by_name(cls.docstring) if cls.docstring else {}
        for name, member in cls.attributes.items():
            if member.is_alias or member.docstring:
                continue
            forwarded = _forwarded_text(member)
            if forwarded:
                # `fps: Final[int] = forward(...)` is the property `fps: int`.
                member.annotation = member.annotation.slice
                member.labels.add("property")
            if forwarded or member.labels == {"instance-attribute"}:
                member.value = None  # how it is computed
            text = forwarded or texts.get(name)
            if text:
                member.docstring = griffe.Docstring(text, parent=member, parser="google")
        if cls.docstring:
            # Each attribute has its own heading now.
            cls.docstring.value = ATTRIBUTES_SECTION.sub("\n\n", cls.docstring.value).strip()

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Drop labels that only say where the source assigns the attribute."""
        attr.labels -= {"class-attribute", "instance-attribute", "module-attribute"}
        attr.value = _resolved(attr.value)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Show the defaults that config.py has as values, not as names."""
        for parameter in func.parameters:
            parameter.default = _resolved(parameter.default)


def _texts_by_name(docstring: griffe.Docstring) -> dict[str, str]:
    """Return the texts of a docstring's sections "Args" and "Attributes"; the latter decides."""
    kinds = (griffe.DocstringSectionKind.parameters, griffe.DocstringSectionKind.attributes)
    sections = docstring.parse("google", warnings=False)
    return {
        item.name: item.description
        for kind in kinds
        for section in sections
        if section.kind is kind
        for item in section.value
    }


def _resolved(value: Any) -> Any:
    """Return the value of `config.NAME` as source text; other expressions unchanged."""
    from robostream import config

    found = re.fullmatch(r"config\.([A-Z_]+)", str(value))
    return repr(getattr(config, found[1])) if found else value


def _forwarded_text(member: griffe.Attribute) -> str | None:
    """Return the text in `forward(path, text)`; None for other values. Pure."""
    value = member.value
    if not isinstance(value, griffe.ExprCall) or str(value.function) != "forward":
        return None
    return ast.literal_eval(str(value.arguments[1]))


def error_tree() -> str:
    """Return the tree of exceptions as errors.py draws it."""
    text = ast.get_docstring(ast.parse((REPO / "src/robostream/errors.py").read_text())) or ""
    return text.split("\n\n")[1]


def commands_markdown() -> str:
    """Return a section for each command of `robostream`, from its parser."""
    from robostream.cli.main import COMMANDS, build_parser

    parser = build_parser(list(COMMANDS))
    sections = [
        section
        for command in _subcommands(parser)
        for section in (*_section(command, 2), *_nested(command))
    ]
    return "\n\n".join(sections).replace(str(Path.home()), "~")


def _nested(parser: argparse.ArgumentParser) -> Iterator[str]:
    for command in _subcommands(parser):
        yield from _section(command, 3)


def _subcommands(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    return [
        command
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for command in action.choices.values()
    ]


def _section(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"{'#' * level} {parser.prog}"
    yield _escape(parser.description or "")
    rows = [
        f"| {_names(action)} | {_escape(_help(parser, action))} |"
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    ]
    if rows:
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows])
    if parser.epilog:
        lines = parser.epilog.removeprefix("examples:\n").splitlines()
        examples = (line.removeprefix("  ") for line in lines if line.startswith("  "))
        # What stands after a gap explains the command: a comment, so that the line can be copied.
        shown = (re.sub(r"(\S {3,})(?=\S)", r"\1# ", line) for line in examples)
        yield "\n".join(["```sh", *shown, "```"])
        yield "\n".join(line for line in lines if not line.startswith("  "))


def _names(action: argparse.Action) -> str:
    """Return the flags of an argument, with its value. Pure."""
    value = action.metavar or (action.choices and "{" + ",".join(map(str, action.choices)) + "}")
    value = value if isinstance(value, str) else " ".join(value or [action.dest.upper()])
    if not action.option_strings:
        return f"`{value}`"
    shown = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{flag}{shown}`" for flag in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _escape(text: str) -> str:
    return re.sub(r"([|<>*_])", r"\\\1", text) if "`" not in text else text.replace("|", r"\|")
