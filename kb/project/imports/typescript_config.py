"""`paths` and `baseUrl` of the tsconfig.json or jsconfig.json that a file belongs to."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kb.project.imports.packages import workspace_packages
from kb.project.imports.project import Project, folders_above, strings, table

__all__ = ["PathMapping", "path_mapping"]

_CHAIN_AT_MOST = 10  # configurations that extend one another


@dataclass(frozen=True, slots=True)
class PathMapping:
    """What a configuration says about specifiers that are not relative."""

    base: str | None = None  # the folder of `baseUrl`, relative to the root
    folder: str = ""  # where the targets of `paths` start
    paths: Mapping[str, list[str]] = field(default_factory=dict)

    def candidates(self, specifier: str) -> Iterator[str]:
        """Where a specifier may lead, as the compiler looks: the best pattern, then `baseUrl`."""
        if specifier in self.paths:
            yield from (posixpath.join(self.folder, to) for to in self.paths[specifier])
        else:
            # Of several patterns the one with the longest text before its star counts.
            for pattern in sorted(self.paths, key=lambda key: -len(key.partition("*")[0])):
                start, star, end = pattern.partition("*")
                fits = specifier.startswith(start) and specifier.endswith(end)
                if star and fits and len(specifier) >= len(start) + len(end):
                    middle = specifier[len(start) : len(specifier) - len(end)]
                    for target in self.paths[pattern]:
                        yield posixpath.join(self.folder, target.replace("*", middle, 1))
                    break
        if self.base is not None:
            yield posixpath.join(self.base, specifier)


def path_mapping(project: Project, path: str) -> PathMapping:
    """The mapping that holds for a file: that of the nearest configuration above it."""
    for folder in folders_above(path):
        config = project.first(
            posixpath.join(folder, name) for name in ("tsconfig.json", "jsconfig.json")
        )
        if config:
            packages = workspace_packages(project, path)
            mapping = _load(project, config, packages, _CHAIN_AT_MOST)
            if mapping == PathMapping():
                return _referenced(project, config, packages)
            return mapping
    return PathMapping()


def _referenced(project: Project, config: str, packages: Mapping[str, str]) -> PathMapping:
    """The first mapping among the projects that a configuration only brings together."""
    references = _json_with_comments(project.text(config)).get("references")
    for reference in references if isinstance(references, list) else ():
        for place in strings([table(reference).get("path")]):
            found = _config_file(project, posixpath.join(posixpath.dirname(config), place))
            mapping = _load(project, found, packages, _CHAIN_AT_MOST) if found else PathMapping()
            if mapping != PathMapping():
                return mapping
    return PathMapping()


def _load(project: Project, config: str, packages: Mapping[str, str], chain: int) -> PathMapping:
    content = _json_with_comments(project.text(config))
    folder = posixpath.dirname(config)
    mapping = PathMapping()
    extends = content.get("extends")
    for parent in strings(extends if isinstance(extends, list) else [extends]):
        found = _parent(project, folder, parent, packages)
        if found and chain:
            inherited = _load(project, found, packages, chain - 1)
            # A later one overrides an earlier one, each option as a whole.
            mapping = replace(mapping, base=inherited.base or mapping.base)
            if inherited.paths:
                mapping = replace(mapping, folder=inherited.folder, paths=inherited.paths)
    options = table(content, "compilerOptions")
    for base in strings([options.get("baseUrl")]):
        mapping = replace(mapping, base=posixpath.normpath(posixpath.join(folder, _plain(base))))
    paths = {
        pattern: [_plain(target) for target in strings(targets)]
        for pattern, targets in table(options, "paths").items()
    }
    if paths:
        start = folder if mapping.base is None else mapping.base
        mapping = replace(mapping, folder=start, paths=paths)
    return mapping


def _parent(project: Project, folder: str, parent: str, packages: Mapping[str, str]) -> str:
    if parent.startswith("."):
        return _config_file(project, posixpath.join(folder, parent))
    for name, place in packages.items():
        if parent == name or parent.startswith(name + "/"):
            return _config_file(project, posixpath.join(place, parent[len(name) + 1 :]))
    return ""


def _config_file(project: Project, path: str) -> str:
    return project.first([path, f"{path}.json", posixpath.join(path, "tsconfig.json")])


def _plain(path: str) -> str:
    return path.replace("${configDir}", ".")


# What is not closed goes on to the end: no second look at it, so the time is linear.
_STRING = r'("(?:\\.|[^"\\\n])*+"?)'
_STRING_OR_COMMENT = re.compile(_STRING + r"|//[^\n]*+|/\*(?:.*?\*/|.*+)", re.DOTALL)
_STRING_OR_LAST_COMMA = re.compile(_STRING + r"|,(?=\s*+[\]}])")


def _json_with_comments(text: str) -> dict[str, Any]:
    """JSON as TypeScript accepts it; empty if it is malformed."""
    text = _STRING_OR_COMMENT.sub(lambda found: found[1] or " ", text)
    text = _STRING_OR_LAST_COMMA.sub(lambda found: found[1] or "", text)
    try:
        return table(json.loads(text))
    except (ValueError, RecursionError):
        return {}
