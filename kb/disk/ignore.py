"""The rules of `.gitignore` and `.ignore` files, with git's meaning.

The walk asks about one entry at a time and never enters an ignored folder. That is how git
reaches its verdicts, so a file below an ignored folder cannot be taken back in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kb.disk.globs import compiled, composed, is_entry_itself
from kb.disk.read import read_bytes, reason

__all__ = ["IGNORE_FILES", "IgnoreRules"]

# In order of precedence: a line of `.ignore` overrules `.gitignore` of the same folder.
# Folders that no walk enters.
ALWAYS_SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".kb", ".context", ".venv", "__pycache__", "node_modules"}
)
IGNORE_FILES = (".gitignore", ".ignore")
MAXIMUM_BYTES = 1_000_000  # git's own limit is 100 MB; the largest in use have some 10 kB

Report = Callable[[str, str], None]


class IgnoreRules:
    """The ignore files that hold in one folder, its own and those of its parents."""

    __slots__ = ("_layers", "_report")

    def __init__(self, report: Report, layers: tuple[_Layer, ...] = ()) -> None:
        self._report = report
        self._layers = layers  # the nearest folder first

    @classmethod
    def above(cls, root: Path, report: Report) -> IgnoreRules:
        """The rules that the repository around `root`, an absolute path, sets from outside it.

        Those are `.git/info/exclude` and the ignore files of the folders between the top of
        the repository and `root`. Without a repository there are none.
        """
        rules = cls(report)
        parents = [root, *root.parents]
        repository = next((at for at in parents if os.path.exists(at / ".git")), None)
        if repository is None:
            return rules
        exclude = _exclude_file(repository)
        rules = rules._with([(exclude, str(exclude))], above=_from(repository, root))
        for folder in reversed(parents[1 : parents.index(repository) + 1]):
            files = [(folder / name, str(folder / name)) for name in IGNORE_FILES]
            rules = rules._with(files, above=_from(folder, root))
        return rules

    def inside(self, folder: str, prefix: str, names: Collection[str]) -> IgnoreRules:
        """The rules for the entries of a folder below, which holds the ignore files `names`.

        Args:
            folder: where the folder is.
            prefix: its path from the root, with a slash at the end; "" for the root.
            names: which of `IGNORE_FILES` it holds.
        """
        files = [(Path(folder, name), prefix + name) for name in IGNORE_FILES if name in names]
        return self._with(files, cut=len(composed(prefix))) if files else self

    def ignores(self, path: str, name: str, is_folder: bool) -> bool:
        """Whether an entry is ignored, given that its folder is not.

        A link to a folder is no folder here, as in git.
        """
        if not self._layers:
            return False
        path, name = composed(path), composed(name)
        for layer in self._layers:
            verdict = layer.verdict(path, name, is_folder)
            if verdict is not None:
                return verdict
        return False

    def _with(
        self, files: Sequence[tuple[Path, str]], *, above: str = "", cut: int = 0
    ) -> IgnoreRules:
        """These rules and, before them, those of `files`: where each is, and its shown path."""
        rules = [
            rule for file, shown in files for rule in _parse(_lines(file, shown, self._report))
        ]
        if not rules:
            return self
        rules.reverse()
        layer = _Layer(
            rules=tuple(rules),
            path_rules=tuple(rule for rule in rules if not rule.on_name),
            any_name=_any_of([rule.expression.pattern for rule in rules if rule.on_name]),
            above=above,
            cut=cut,
        )
        return IgnoreRules(self._report, (layer, *self._layers))


@dataclass(frozen=True, slots=True)
class _Rule:
    expression: re.Pattern[str]
    ignores: bool  # False for a line that starts with "!"
    only_folders: bool
    on_name: bool  # the pattern has no slash: it is about the name, at any depth


@dataclass(frozen=True, slots=True)
class _Layer:
    """The rules of one folder's ignore files."""

    rules: tuple[_Rule, ...]  # the last line first, since the last match decides
    path_rules: tuple[_Rule, ...]  # those of them that are about paths
    any_name: re.Pattern[str]  # matches when any of the others does
    above: str  # what to put before a path to make it relative to this folder ...
    cut: int  # ... or how many characters to cut off it

    def verdict(self, path: str, name: str, is_folder: bool) -> bool | None:
        """Whether the last matching rule ignores the entry; None when no rule matches."""
        relative = self.above + path[self.cut :]
        for rule in self.rules if self.any_name.match(name) else self.path_rules:
            if rule.only_folders and not is_folder:
                continue
            found = rule.expression.search(name if rule.on_name else relative)
            if found is not None and is_entry_itself(found):
                return rule.ignores
        return None


def _parse(lines: Iterator[str]) -> Iterator[_Rule]:
    for line in lines:
        text = line.rstrip(" ") if not line.rstrip(" ").endswith("\\") else line
        only_folders = text.endswith("/")
        text = text.removesuffix("/")
        pattern = compiled(text)
        if pattern is not None and pattern.regex is not None:
            yield _Rule(
                expression=pattern.regex,
                ignores=bool(pattern.include),
                only_folders=only_folders,
                on_name="/" not in text,
            )


def _any_of(expressions: list[str]) -> re.Pattern[str]:
    """One expression for many that are matched with names, which hold no slash."""
    if not expressions:
        return re.compile(r"(?!)")
    # "Below any folders" cannot apply to a name. Without it a hundred rules cost 2 microseconds an
    # entry, not 7: the engine goes by the first letter. And a group's name may occur only once.
    bare = [expression.removeprefix("^(?:.+/)?") for expression in expressions]
    return re.compile("|".join(re.sub(r"\(\?P<\w+>", "(?:", expression) for expression in bare))


def _lines(file: Path, shown: str, report: Report) -> Iterator[str]:
    try:
        if file.is_symlink():
            raise OSError("it is a link")  # git does not follow one either
        data = read_bytes(file, MAXIMUM_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        report(shown, f"ignore file not used: {reason(error)}")
        return
    text = data.decode("utf-8-sig", "surrogateescape")
    for line in text.split("\n"):
        yield composed(line.removesuffix("\r"))


def _exclude_file(repository: Path) -> Path:
    """`info/exclude` of a repository, whose `.git` is a file in a worktree or submodule."""
    folder = repository / ".git"
    try:
        if folder.is_file():
            folder = repository / _line(folder).removeprefix("gitdir:").strip()
            if (folder / "commondir").is_file():
                folder = folder / _line(folder / "commondir").strip()
    except (OSError, ValueError):
        return repository / ".git" / "info" / "exclude"
    return folder / "info" / "exclude"


def _line(file: Path) -> str:
    return read_bytes(file, MAXIMUM_BYTES).decode("utf-8", "surrogateescape")


def _from(folder: Path, root: Path) -> str:
    relative = root.relative_to(folder).as_posix()
    return "" if relative == "." else composed(relative) + "/"
