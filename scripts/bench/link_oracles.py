"""What other link checkers and the generators' own builds call broken in a folder."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

Place = tuple[str, int]  # a link's file and line


def output(command: list[str], folder: Path, settings: Mapping[str, str] | None = None) -> str:
    """What a program prints, whatever it says by its exit code; `settings` join the environment."""
    if shutil.which(command[0]) is None:
        raise SystemExit(f"{command[0]} is not installed: scripts/bench/links --help says how")
    errors = subprocess.DEVNULL if "json" in command else subprocess.STDOUT
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | (settings or {}),
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        check=False,
    )
    return done.stdout


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def by_lychee(folder: Path, program: str) -> set[Place]:
    options = ["--offline", "--include-fragments", "--no-progress", "--format", "json", "."]
    by_file = json.loads(output([program, *options], folder))["error_map"]
    return {
        (unquote(file.removeprefix("./")), error["span"]["line"])
        for file, errors in by_file.items()
        for error in errors
    }


def by_mdlinkcheck(folder: Path, program: str) -> set[Place]:
    errors = json.loads(output([program, "--no-git", "--quiet", "--format", "json", "."], folder))
    return {(posixpath.normpath(error["path"]), error["line"]) for error in errors}


def by_mkdocs(folder: Path, program: str) -> set[Place]:
    """It names files and targets, no lines: all lines of the file that hold the target."""
    with tempfile.TemporaryDirectory() as site:
        told = output([program, "build", "--strict", "--site-dir", site], folder)
    found = set()
    for file, target in re.findall(r"Doc file '(.+?)' contains a link '(.+?)', but", told):
        lines = (folder / "docs" / file).read_text(encoding="utf-8").splitlines()
        found |= {(f"docs/{file}", n) for n, line in enumerate(lines, 1) if f"({target}" in line}
    return found


def by_sphinx(folder: Path, program: str) -> set[Place]:
    """Its pages are where conf.py is; references to code, and to other projects by `inv:`, are not
    what kb looks at."""
    source = min(folder.rglob("conf.py"), key=lambda file: len(file.parts)).parent
    with tempfile.TemporaryDirectory() as site:
        told = output([program, "-n", "-E", "-b", "dummy", str(source), site], folder)
    kinds = r"\[(?:ref\.(?:doc|ref|term|numref|option|any)|myst\.(?!iref)\w+|toc\.\w+)\]"
    warnings = re.findall(rf"^(.+?):(\d+): WARNING: .*{kinds}", told, re.MULTILINE)
    pages = ((Path(file), int(line)) for file, line in warnings)
    return {
        (file.relative_to(folder).as_posix(), line)
        for file, line in pages
        if file.is_relative_to(folder) and file.is_file()  # not the text of a program
    }


_ANY = """import * as all from './docusaurus.config'
const site: any = (all as any).default ?? all
const warn = {onBrokenLinks: 'warn', onBrokenAnchors: 'warn', onBrokenMarkdownLinks: 'warn'}
export default {...site, ...warn}
"""


def by_docusaurus(folder: Path, program: str) -> set[Place]:
    """It names pages and targets: all lines of the page that hold a link with the target's end.

    The program lies in the site's own `node_modules`, which need not be in the folder.
    """
    config = min(folder.rglob("docusaurus.config.*"), key=lambda file: len(file.parts))
    modules = Path(os.path.abspath(program)).parents[1]
    with tempfile.TemporaryDirectory() as place:
        ignored = shutil.ignore_patterns("node_modules", ".docusaurus", "build", ".git")
        copied = shutil.copytree(folder, Path(place, "copy"), ignore=ignored)
        site = copied / config.parent.relative_to(folder)
        (site / "node_modules").symlink_to(modules)
        write(site / "any.config.ts", _ANY)
        for step in ("init -q", "add .", "-c user.name=x -c user.email=x@x.example commit -qm x"):
            output(["git", *step.split()], copied)  # pages may show when they were changed
        told = output([program, "build", "--config", "any.config.ts", "--no-minify"], site)
        pages = {}
        for file in site.glob(".docusaurus/docusaurus-plugin-content-docs/*/site-*.json"):
            page = json.loads(file.read_text(encoding="utf-8"))
            source = site / page["source"].removeprefix("@site/")
            pages[page["permalink"].rstrip("/")] = os.path.relpath(source, copied)
        base = os.path.relpath(site, copied)
    found = {
        (posixpath.normpath(posixpath.join(base, file)), int(line))
        for file, line in re.findall(r'in source file "(.+?)" \((\d+):\d+\)', told)
    }
    page = ""
    for line in told.splitlines():
        if told_page := re.match(r"- Broken \w+ on source page path = (\S+):", line):
            page = pages.get(told_page[1].rstrip("/"), "")
        elif page and (target := re.match(r"   -> linking to (\S+)", line)):
            text = (folder / page).read_text(encoding="utf-8").splitlines()
            for number, written in enumerate(text, 1):
                links = re.findall(r"\]\(<?([^)>\s]*)|href=[\"']([^\"']*)|\]:\s*(\S+)", written)
                if any(end_of("".join(link)) == end_of(target[1]) for link in links):
                    found.add((page, number))
    return found


_STRICT = """import * as all from './any-config'
const site: any = (all as any).default ?? all
export default {...site, ignoreDeadLinks: false}
"""


def by_vitepress(folder: Path, program: str) -> set[Place]:
    """It names pages and targets, without sections: all lines of the page that hold the target.

    The program lies in the site's own `node_modules`, which need not be in the folder.
    """
    config = min(folder.rglob(".vitepress/config*"), key=lambda file: len(file.parts))
    base = config.parent.parent.relative_to(folder)
    with tempfile.TemporaryDirectory() as place:
        ignored = shutil.ignore_patterns("node_modules", "cache", "dist", ".git")
        site = shutil.copytree(folder, Path(place, "copy"), ignore=ignored) / base
        (site / "node_modules").symlink_to(Path(os.path.abspath(program)).parents[1])
        own = site / ".vitepress" / config.name
        own.rename(own.with_stem("any-config"))
        write(own.with_name("config.ts"), _STRICT)
        told = output([program, "build"], site)
    told = re.sub(r"\x1b\[\d+m", "", told)
    if "build complete" not in told and "dead link" not in told:
        raise SystemExit(f"VitePress did not come to its links: {told[-500:]}")
    settings = config if config.is_file() else next(config.glob("index.*"))
    source = re.search(r"""srcDir:\s*["'](.*?)["']""", settings.read_text(encoding="utf-8"))
    found = set()
    for target, name in re.findall(r"Found dead link (\S+) in file (.+)", told):
        file = posixpath.normpath((base / (source[1] if source else "") / name).as_posix())
        lines = (folder / file).read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            for link in re.findall(r"\]\(<?([^)>\s]*)|href=[\"']([^\"']*)|\]:\s*(\S+)", line):
                path = re.sub(r"[?#].*", "", "".join(link))
                path = re.sub(r"\.(?:html|md)$", "", path) + "index" * path.endswith("/")
                if (path and path == target.removeprefix("./")) or path == target:
                    found.add((file, number))
    return found


def end_of(target: str) -> tuple[str, str]:
    """The last name of a link, without a suffix, and its section; a page may link to itself."""
    path, _, section = unquote(target).partition("#")
    name = path.rstrip("/").rpartition("/")[2]
    return "" if section else re.sub(r"\.mdx?$", "", name), section


# Sites as their generators build them

# A missing page must not end the build: Jekyll raises, Hugo has a setting.
_LENIENT = """%w[Link PostUrl].each do |name|
  Jekyll::Tags.const_get(name).prepend(Module.new do
    def render(context)
      super
    rescue ArgumentError, Jekyll::Errors::PostURLError
      "/no-such-page"
    end
  end)
end
"""
_SETTINGS = {
    "HUGO_REFLINKSERRORLEVEL": "WARNING",
    "HUGO_REFLINKSNOTFOUNDURL": "/no-such-page",
    "JEKYLL_NO_BUNDLER_REQUIRE": "true",  # take the packages of the system
}
# For each generator: its configuration, and its command with the folder and the base of the result.
BUILDS = {
    "astro": ("astro.config.*", "build --outDir {out}"),
    "hugo": (
        "hugo.toml hugo.y*ml config.toml config.y*ml config/_default/*.toml config/_default/*.y*ml",
        "--destination {out} --baseURL {base}/",
    ),
    "jekyll": ("_config.y*ml", "build --quiet --destination {out}"),
}
_CHECK = "--offline --include-fragments --no-progress --format json --index-files index.html"
_BASE = re.compile(
    r"""^\s*base_?(?:url)?\s*[:=]\s*["']?([^"'\s,]+)""", re.MULTILINE | re.IGNORECASE
)


def by_build(generator: str, folder: Path, program: str) -> set[Place]:
    """What lychee calls broken in the pages that a generator makes, and what its own checker says.

    Each link gets a number into its text, which tells the file and line it was written in. Links
    of templates have none and are left out, as are those in headings, whose text makes a name.
    """
    names, arguments = BUILDS[generator]
    configs = [file for name in names.split() for file in folder.rglob(name)]
    if not configs:
        raise SystemExit(f"{folder} has no configuration of {generator}: {names}")
    config = min(configs, key=lambda file: len(file.parts))
    root = config.parents[2] if "_default" in config.parts else config.parent
    found_base = _BASE.search(config.read_text(encoding="utf-8"))
    base = urlsplit(found_base[1]).path.strip("/") if found_base else ""
    modules = Path(os.path.abspath(program)).parents[1]
    beside = modules.parent if modules.name == "node_modules" else None  # where packages are found
    with tempfile.TemporaryDirectory(dir=beside) as place:
        ignored = shutil.ignore_patterns("node_modules", "_site", "dist", ".astro", ".git")
        copied = shutil.copytree(folder, Path(place, "copy"), ignore=ignored, symlinks=True)
        site = copied / root.relative_to(folder)
        links = number_links(copied)
        if generator == "jekyll":
            write(site / "_plugins/lenient.rb", _LENIENT)
        out = Path(place, "top", base)
        command = arguments.format(out=out, base=f"/{base}".rstrip("/"))
        told = output([program, *command.split()], site, _SETTINGS)
        if not any(out.glob("*.html")):
            raise SystemExit(f"{generator} did not build {folder}: {told[-2_000:]}")
        found = {links[number] for number in broken_numbers(Path(place, "top"))}
        report = site / ".starlight-links-validator/errors.json"
        for error in json.loads(report.read_text("utf-8"))["errors"] if report.exists() else ():
            if "custom page" not in error["message"]:  # of src/pages, which it does not look at
                page = site / "src/content/docs" / error["docsPath"]
                found.add((page.relative_to(copied).as_posix(), error["position"]["line"]))
    return found


# The beginning of a link's text, and of an element that links.
_LINK = re.compile(r"(?<![!\\\[\]])\[(?=[^\[\]]*\](?:\(|\[[^\]]))|<[aA](?=\s[^>]*href)")


def number_links(folder: Path) -> list[Place]:
    """Put a number into the text of each link of the pages in a folder; the places by number."""
    places: list[Place] = []

    def numbered(match: re.Match[str]) -> str:
        number = f"xk{len(places)}kx"
        places.append(place)
        quote = '"' * (file.suffix == ".mdx")  # a quote would end a parameter of Hugo
        return (
            f"{match[0]}{number} "
            if match[0] == "["
            else f"{match[0]} data-at={quote}{number}{quote}"
        )

    for file in sorted(folder.rglob("*")):
        if file.suffix in (".md", ".mdx", ".markdown") and file.is_file():
            lines = file.read_text(encoding="utf-8").split("\n")
            for row, line in enumerate(lines):
                if not line.startswith("#"):
                    place = (file.relative_to(folder).as_posix(), row + 1)
                    lines[row] = _LINK.sub(numbered, line)
            file.write_text("\n".join(lines), encoding="utf-8")
    return places


def broken_numbers(top: Path) -> set[int]:
    """The numbers of the links that lychee calls broken in the pages below a folder."""
    rules = ["--fallback-extensions", "html", "--root-dir", str(top), str(top)]
    by_page = json.loads(output(["lychee", *_CHECK.split(), *rules], top))["error_map"]
    found = set()
    for page, errors in by_page.items():
        text = (top / unquote(page)).read_text(encoding="utf-8")
        rows = text.split("\n")
        addresses = set()
        for span in (error["span"] for error in errors):
            offset = sum(len(row) + 1 for row in rows[: span["line"] - 1]) + span["column"] - 1
            start = text.rfind("<", 0, offset)
            if text[start : start + 2].lower() == "<a":  # lychee names an address once
                addresses.add(re.split(r"[\s>]", text[offset:], maxsplit=1)[0].strip("\"'"))
        for link in re.findall(r"<a\s.*?</a>", text, re.DOTALL | re.IGNORECASE):
            address = re.search(r"""href\s*=\s*["']?([^"'\s>]*)""", link)
            if address and address[1] in addresses:
                found |= set(map(int, re.findall(r"xk(\d+)kx", link)))
    return found


ORACLES = {
    **{name: partial(by_build, name) for name in BUILDS},
    "docusaurus": by_docusaurus,
    "lychee": by_lychee,
    "mdlinkcheck": by_mdlinkcheck,
    "mkdocs": by_mkdocs,
    "sphinx-build": by_sphinx,
    "vitepress": by_vitepress,
}
