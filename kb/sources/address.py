"""Where a collection's documents come from, as people type it and as it is stored.

A folder, file or bundle on this machine is stored as its absolute path, with names as
`kb.text.file_names` writes them; anything else as its address. A file in a project's `.kb` folder
holds paths inside the project relative to it (`./docs`), so that the project can be moved; only
`kept` and `located` know that form.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urldefrag, urlsplit

from kb.errors import UsageError
from kb.text.file_names import on_disk

BUNDLE_SUFFIXES = (
    *(".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz", ".tar", ".zip"),
)
GIT_SCHEMES = ("https", "http", "ssh", "file")
MOST_CHARACTERS = 2_000  # of an address
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# Undecodable bytes of the command line arrive as lone surrogates.
_NOT_IN_ADDRESS = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")
_WHY_NOT = (
    "it is too long, or holds blanks, backslashes, control characters or bytes that are not text"
)
_INSIDE = "./"
_NOWHERE = Path("/nonexistent")
# What git refuses in the name of a branch or tag, and what begins an option.
_NO_REF = re.compile(r"^[-/.]|\.\.|@\{|//|[/.]$|\.lock$|[\x00-\x20\x7f~^:?*\[\\]")


def is_remote(source: str) -> bool:
    """Whether a source, as typed or stored, is an address, not a path of this machine."""
    return _SCHEME.match(source) is not None and not source.lower().startswith("file://")


def is_git(source: str) -> bool:
    return source.lower().startswith("git+")


def is_web(source: str) -> bool:
    return source.lower().startswith(("http://", "https://"))


def local(source: str) -> Path:
    """Where a stored source lies; a path that does not exist if it is elsewhere or ""."""
    return Path(on_disk(source)) if source and not is_remote(source) else _NOWHERE


def is_bundle(source: Path) -> bool:
    return source.name.lower().endswith(BUNDLE_SUFFIXES) and source.is_file()


def document_file(source: str, path: str) -> Path:
    """Where a document of a source lies, both as stored; not a file if the source is elsewhere."""
    root = local(source)
    return root if root.is_file() and not is_bundle(root) else root / on_disk(path)


def kept(source: str, project: str) -> str:
    """A source as written to the file of a project ("": none), whose root is absolute."""
    if not project or not source or is_remote(source):
        return source
    if source == project:
        return _INSIDE.rstrip("/")
    root = project.rstrip("/") + "/"
    return _INSIDE + source[len(root) :] if source.startswith(root) else source


def is_absolute(source: str) -> bool:
    """Whether a source, as written in a file, is a path of this machine."""
    if is_git(source):
        return source.lower().startswith("git+file:")
    return not is_remote(source) and not f"{source}/".startswith(_INSIDE)


def located(source: str, folder: str) -> str:
    """A source read from a file, as it is used; relative paths start from `folder`."""
    if source == _INSIDE.rstrip("/"):
        return folder
    if source.startswith(_INSIDE) and folder:
        return f"{folder.rstrip('/')}/{source.removeprefix(_INSIDE)}"
    return source


def typed_path(source: str) -> Path:
    """The path that somebody typed, also as `file://`, with links resolved. Raises UsageError if
    the address names another machine or cannot be a path."""
    if source.lower().startswith("file://"):
        from urllib.request import url2pathname  # here: it imports http, seldom needed

        try:
            parts = urlsplit(source)
            if parts.netloc.lower() not in ("", "localhost"):
                raise ValueError(f'"{parts.netloc}" is another machine')
            if parts.query or parts.fragment:
                raise ValueError('write "?" and "#" of a name as %3F and %23')
            source = url2pathname(parts.path)
        except ValueError as error:
            raise UsageError(f"{source} cannot be read: {error}") from error
    try:
        return Path(source).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, no home, a NUL
        raise UsageError(f"{source!r} is not a path: {error}") from error


class GitAddress(NamedTuple):
    """A repository, the part of it that is meant, and the edition."""

    url: str  # https://, http://, ssh:// or file://
    ref: str = ""  # a branch, tag or whole commit; "": the default branch
    folder: str = ""  # the part that is the collection; "": all of it
    manifest: str = ""  # its path in the repository; "": manifest.json of the folder

    @property
    def stored(self) -> str:
        pairs = (("manifest", self.manifest), ("path", self.folder))
        query = "&".join(f"{key}={quote(value)}" for key, value in pairs if value)
        ref = f"#{quote(self.ref)}" if self.ref else ""
        return f"git+{self.url}{'?' if query else ''}{query}{ref}"

    @property
    def name(self) -> str:
        """A collection's default name: the folder, else the repository."""
        path = self.folder or urlsplit(self.url).path
        return unquote(path.rstrip("/").rpartition("/")[2]).removesuffix(".git") or "repository"


def git_address(source: str) -> GitAddress:
    """The parts of `git+https://host/path?manifest=PATH&path=FOLDER#REF`, none of which can become
    an option of git or of a program that git starts. Raises UsageError, which names the wrong
    part."""
    try:
        return _git_address(source)
    except ValueError as error:
        raise UsageError(f"{_shown(source)} is not the address of a repository: {error}") from error


def _shown(source: str) -> str:
    return repr(source if len(source) <= 200 else f"{source[:200]}...")


def _git_address(source: str) -> GitAddress:
    if len(source) > MOST_CHARACTERS or _NOT_IN_ADDRESS.search(source):
        raise ValueError(_WHY_NOT)
    from kb.text.secrets import secrets_in

    parts = urlsplit(source)
    scheme, host, user = parts.scheme.lower()[4:], unquote(parts.hostname or ""), parts.username
    if scheme not in GIT_SCHEMES:
        raise ValueError(f"there are {', '.join(f'git+{name}://' for name in GIT_SCHEMES)}")
    if parts.password is not None or (user and secrets_in(f"token = {unquote(user)}")):
        raise UsageError(
            "an address with a password or token in it is not added, since it would be stored "
            "with the documents: let git know it (git help credentials), or use git+ssh"
        )
    if bool(host) == (scheme == "file") and host != "localhost":
        raise ValueError("a file has no host" if host else "it names no host")
    if host.startswith("-") or unquote(user or "").startswith("-"):
        raise ValueError("neither user nor host begins with a hyphen")
    if not parts.path.strip("/"):
        raise ValueError("behind the host it names no repository")
    if not parts.path.startswith("/"):
        raise ValueError(f"the whole path must be given, as in git+{scheme}:///folder/repository")
    values: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key not in ("manifest", "path"):
            raise ValueError(f'"{key}" is not one of its parameters, manifest and path')
        values[key] = inner_path(value)
    if (ref := unquote(parts.fragment)) and _NO_REF.search(ref):
        raise ValueError(f'"{ref}" cannot be a branch, tag or commit')
    port = f":{parts.port}" if parts.port else ""
    netloc = f"{user}@" * bool(user) + (parts.hostname or "") + port if scheme != "file" else ""
    if ":" in (parts.hostname or ""):
        netloc = netloc.replace(parts.hostname or "", f"[{parts.hostname}]")
    return GitAddress(
        f"{scheme}://{netloc}{parts.path}", ref, values.get("path", ""), values.get("manifest", "")
    )


def inner_path(path: str) -> str:
    """A path inside a source, normalised; "" for the source. Raises ValueError if it leads out."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise ValueError(f'"{path}" leads out of it')
    return "/".join(parts)


def web_address(source: str) -> str:
    """An http address as it is stored. Raises UsageError if it is malformed or has a user."""
    try:
        url = urldefrag(source.strip()).url
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it must begin with http:// or https:// and name a host")
        if len(url) > MOST_CHARACTERS or _NOT_IN_ADDRESS.search(url):
            raise ValueError(_WHY_NOT)
        if parts.username or parts.password:
            raise ValueError("a user or password in it would be stored with the documents")
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise UsageError(f"{_shown(source)} is not the address of a page: {error}") from error
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{host}{port}{parts.path or '/'}{query}"


def name_of(url: str) -> str:
    """The default name of a collection from an address."""
    parts = urlsplit(url)
    name = unquote(parts.path).rstrip("/").rpartition("/")[2]
    for suffix in ("manifest.json", *BUNDLE_SUFFIXES, ".json", ".html", ".htm"):
        name = name.removesuffix(suffix)
    return name or (parts.hostname or "pages")
