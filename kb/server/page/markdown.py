"""A Markdown document as HTML: rendered by markdown-it, with its lines, then sanitised.

Whatever a document says, only text, layout, links and pictures of its own source remain: the
sanitiser has lists of tags, attributes and our few classes, and asks where addresses may lead.
Pygments colours code, within a time that hostile code cannot stretch.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.admon import admon_plugin
from mdit_py_plugins.container import container_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin
from mdit_py_plugins.gfm_autolink import gfm_autolink_plugin
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from pygments.util import ClassNotFound

Line = list[tuple[str, str]]  # kind, or "", and text

# A lexer's expressions may take quadratic time, and no other thread runs meanwhile: 4,000 hostile
# characters of these languages took .7 s at most (C#: over 2).
_LANGUAGES = frozenset(
    """
    bash sh shell zsh console fish powershell batch python py python3 pycon js javascript jsx ts
    typescript tsx json yaml yml toml ini html xml css scss sql c cpp c++ h java kotlin swift go
    golang rust rs ruby rb php perl lua r julia haskell scala elixir erlang clojure dart docker
    dockerfile diff http nginx graphql protobuf cmake vim latex tex zig nix markdown md
    """.split()
)
_ENDINGS = {
    **dict.fromkeys(("cc", "cxx", "hh", "hpp", "hxx"), "cpp"),
    **dict.fromkeys(("mjs", "cjs"), "js"),
    **dict.fromkeys(("mts", "cts"), "ts"),
    "pyi": "py",
}
_LONGEST = 20_000  # characters
_SECONDS = 0.5  # of processor time, for one block
_KINDS = (
    (Comment, "c"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Tag, "k"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Attribute, "f"),
    (String, "s"),
    (Number, "n"),
)


def highlight(code: str, language: str) -> list[Line]:
    """The lines of some code; uncoloured if its language, the word after a fence or a file's
    suffix, is not one of ours."""
    name = language.replace(",", " ").split(" ")[0].lower()
    lines: list[Line] = [[]]
    for kind, text in _pieces(code, name if len(code) <= _LONGEST else ""):
        first, *rest = text.split("\n")
        if first:
            lines[-1].append((kind, first))
        lines += [[(kind, line)] if line else [] for line in rest]
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


def _pieces(code: str, name: str) -> Iterator[tuple[str, str]]:
    lexer, done, until = _lexer(name), 0, time.thread_time() + _SECONDS
    if lexer is not None:
        for place, token, text in lexer.get_tokens_unprocessed(code):
            if time.thread_time() > until:
                break
            yield next((kind for kinds, kind in _KINDS if token in kinds), ""), text
            done = place + len(text)
    yield "", code[done:]


@cache
def _lexer(name: str) -> Any:
    try:
        name = _ENDINGS.get(name, name)
        return get_lexer_by_name(name) if name in _LANGUAGES else None
    except ClassNotFound:
        return None


SECONDS = 1.0  # of processor time for one page
_CALLOUT = re.compile(r"\[!([\w-]+)\][+-]?[ \t]*([^\n]*)(?:\n|\Z)")
_CONTAINER = re.compile(r"\{?([\w-]+)\}?[ \t]*(.*)")
_WIKI = re.compile(r"!?\[\[([^\[\]\n|]+)(?:\|([^\[\]\n]*))?\]\]")
# What the many names of callouts mean; all others are notes.
_TONES = {
    **dict.fromkeys(("tip", "hint", "success", "check", "done"), "tip"),
    **dict.fromkeys(("warning", "caution", "attention", "important", "question"), "warning"),
    **dict.fromkeys(("danger", "error", "bug", "failure", "fail", "missing"), "danger"),
}
_CLASSES = {"number", "passage", "line", "callout", "title", "note", "math", "wide", "front"}
_CLASSES |= {*_TONES.values(), *(kind for _, kind in _KINDS)}
_CHECKS = {None: "", True: "☑ ", False: "☐ "}  # of an item in a task list
_OWN_ID = re.compile(r"(?:L|fn|fnref)\d+(?::\d+)?")
# No landmarks, which the page itself has, and no maps.
_TAGS = nh3.ALLOWED_TAGS - {"map", "area", "nav", "header", "footer", "aside", "article", "hgroup"}
_ATTRIBUTES = {
    **nh3.ALLOWED_ATTRIBUTES,
    "*": {"class", "id", "title", "lang", "dir"},
    "a": {"href", "tabindex", "aria-hidden"},
    "div": {"tabindex"},
    "details": {"open"},
    "img": {"src", "alt", "width", "height"},
}
_NO_PICTURE = re.compile(r'<img(?![^>]* src=)(?:[^>]* alt="([^"]*)")?[^>]*>')

Address = Callable[[str], str | None]  # where a link or picture leads, as written; None: nowhere


class TooComplexError(Exception):
    """A text takes longer to render than a page may."""


def render_markdown(
    lines: Sequence[str], first: int, passage: tuple[int, int], link: Address, picture: Address
) -> str:
    """Some lines of a document, from number `first` on, as HTML that is safe to show, with the
    lines of the passage marked. Raises TooComplexError if rendering takes too long."""
    environment = {"before": first - 1, "passage": passage, "until": time.thread_time() + SECONDS}
    try:
        made = _markdown().render("\n".join(lines), environment)
    except RecursionError as error:
        raise TooComplexError from error

    def attribute(tag: str, name: str, value: str) -> str | None:
        if name == "class":
            return " ".join(kind for kind in value.split() if kind in _CLASSES) or None
        if name == "id":
            return value if _OWN_ID.fullmatch(value) else None
        if name in ("href", "src"):
            if tag == "img":
                return picture(value)
            return value if value.startswith("#") and _OWN_ID.fullmatch(value[1:]) else link(value)
        return value

    clean = nh3.clean(
        made, tags=set(_TAGS), attributes=_ATTRIBUTES, attribute_filter=attribute,
        url_schemes={"http", "https", "mailto"}, link_rel=None,
    )  # fmt: skip
    return _NO_PICTURE.sub(lambda match: match[1] or "", clean)


class _Parser(MarkdownIt):
    """A parser that leaves addresses as written: the sanitiser decides."""

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - markdown-it's name
        return url

    def validateLink(self, url: str) -> bool:  # noqa: N802
        return True


@cache
def _markdown() -> MarkdownIt:
    parser = _Parser("gfm-like2", {"linkify": False, "alerts": False})
    parser.disable("linkify")
    parser.use(front_matter_plugin).use(footnote_plugin, inline=False).use(deflist_plugin)
    parser.use(
        dollarmath_plugin,
        allow_space=False,
        allow_digits=False,
        renderer=lambda text, _: escape(text),
    )
    parser.use(gfm_autolink_plugin).use(admon_plugin)
    parser.use(
        container_plugin, "callout", validate=lambda text, *_: _CONTAINER.match(text.strip())
    )
    parser.inline.ruler.before("link", "wiki", _wiki_link)
    ends: Any = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("table", "deadline", _keep_time, ends)
    parser.inline.ruler.before("text", "deadline", _keep_time)
    parser.core.ruler.before("inline", "callouts", _find_callouts)
    parser.core.ruler.push("lines", _number_lines)
    for name, rule in _RENDERING.items():
        parser.add_render_rule(name, rule)
    return parser


def _keep_time(state: StateBlock | StateInline, *_: Any) -> bool:
    if time.thread_time() > state.env["until"]:
        raise TooComplexError
    return False


def _wiki_link(state: StateInline, silent: bool) -> bool:
    """`[[Page|text]]`, and `![[picture.png]]`."""
    if not state.src.startswith(("[[", "![["), state.pos):
        return False
    match = _WIKI.match(state.src, state.pos, state.posMax)
    if match is None or state.linkLevel:
        return False
    page = match[1].removesuffix("\\").strip()
    if not silent:
        is_picture = match[0].startswith("!") and "." in page
        token = state.push(*(("image", "img", 0) if is_picture else ("link_open", "a", 1)))
        token.attrs = {"src": page, "alt": ""} if is_picture else {"href": page}
        text = Token("text", "", 0, content=(match[2] or page).strip())
        if is_picture:
            token.children = [text]
        else:
            state.push("text", "", 0).content = text.content
            state.push("link_close", "a", -1)
    state.pos = match.end()
    return True


# Callouts


def _find_callouts(state: StateCore) -> None:
    """Unify the callouts of GitHub, Obsidian, MkDocs and Docusaurus."""
    for index, token in enumerate(state.tokens):
        if token.type == "blockquote_open":
            text = state.tokens[index + 2] if len(state.tokens) > index + 2 else token
            if text.type == "inline" and (match := _CALLOUT.match(text.content)):
                after = state.tokens[index + 1 :]
                token.tag = next(it for it in after if it.level == token.level).tag = "div"
                text.content = text.content[match.end() :]
                text.map = [text.map[0] + 1, text.map[1]] if text.map else None
                state.tokens[index + 1].hidden = state.tokens[index + 3].hidden = not text.content
                _make_callout(token, match[1], match[2])
        elif token.type == "container_callout_open":
            match = _CONTAINER.match(token.info.strip())
            _make_callout(token, match[1] if match else "", match[2] if match else "")
        elif token.type == "admonition_open":
            _make_callout(token, token.meta["tag"], "")  # its title is a separate token


def _make_callout(token: Token, kind: str, title: str) -> None:
    token.attrs = {"class": f"callout {_TONES.get(kind.lower(), 'note')}"}
    title = title.strip("[] ") or ("" if token.content else kind.title())
    token.meta = {**token.meta, "title": title}


# Lines


def _number_lines(state: StateCore) -> None:
    """Give each block of text its line number, and mark those of the passage."""
    tokens, before, seen = state.tokens, state.env["before"], set[int]()
    for index, token in enumerate(tokens):
        if token.type != "inline" or token.map is None or not token.content:
            continue
        opener = tokens[index - 1]
        if opener.hidden:  # a paragraph of a tight list
            opener.hidden = tokens[index + 1].hidden = False
            opener.tag = tokens[index + 1].tag = "div"
        if opener.type in ("th_open", "td_open") and tokens[index - 2].type == "tr_open":
            opener = tokens[index - 2]
        first, last = token.map[0] + before + 1, token.map[1] + before
        if _is_marked(state.env, first, last):
            opener.attrJoin("class", "passage")
        if first in seen:
            continue
        seen.add(first)
        opener.attrSet("id", f"L{first}")
        marks = _number(first) + _CHECKS[(tokens[index - 2].meta or {}).get("checked")]
        if first < state.env["passage"][0] <= last:  # where links to the passage lead
            marks += f'<span id="L{state.env["passage"][0]}"></span>'
        token.children = [Token("html_inline", "", 0, content=marks), *(token.children or [])]


def _is_marked(environment: Mapping[str, Any], first: int, last: int) -> bool:
    return bool(first <= environment["passage"][1] and environment["passage"][0] <= last)


def _number(line: int) -> str:
    return f'<a class="number" href="#L{line}" tabindex="-1" aria-hidden="true">{line}</a>'


# Rendering rules: methods of markdown-it's renderer


def _code(_: Any, tokens: Sequence[Token], index: int, __: Any, environment: Any) -> str:
    token = tokens[index]
    line = environment["before"] + (token.map or [0])[0] + (2 if token.type == "fence" else 1)
    rows = []
    for number, row in enumerate(highlight(token.content, token.info.strip("{} ")), start=line):
        passage = " passage" if _is_marked(environment, number, number) else ""
        text = "".join(
            f'<span class="{kind}">{escape(piece)}</span>' if kind else escape(piece)
            for kind, piece in row
        )
        start = f'<span class="line{passage}" id="L{number}">{_number(number)}'
        rows.append(f"{start}{text}\n</span>")
    return f"<pre><code>{''.join(rows)}</code></pre>\n"


def _front_matter(renderer: Any, tokens: Sequence[Token], index: int, *rest: Any) -> str:
    token = tokens[index]
    token.info, token.type = "yaml", "fence"
    code = _code(renderer, tokens, index, *rest)
    return f'<details class="front"><summary>Front matter</summary>{code}</details>\n'


def _html_block(_: Any, tokens: Sequence[Token], index: int, __: Any, environment: Any) -> str:
    token = tokens[index]
    line = environment["before"] + (token.map or [0])[0] + 1
    return f'<span id="L{line}"></span>{token.content}'


def _image(
    renderer: Any, tokens: Sequence[Token], index: int, options: Any, environment: Any
) -> str:
    token = tokens[index]
    text = escape(renderer.renderInlineAsText(token.children or [], options, environment))
    return f'<img src="{escape(str(token.attrs["src"]))}" alt="{text}">'


def _callout_open(
    renderer: Any, tokens: Sequence[Token], index: int, options: Any, environment: Any
) -> str:
    opened = str(renderer.renderToken(tokens, index, options, environment))
    title = tokens[index].meta.get("title")
    return opened + (f'<p class="title">{escape(title)}</p>\n' if title else "")


_RENDERING: dict[str, Callable[..., str]] = {
    "fence": _code,
    "code_block": _code,
    "front_matter": _front_matter,
    "html_block": _html_block,
    "image": _image,
    "blockquote_open": _callout_open,
    "container_callout_open": _callout_open,
    "container_callout_close": lambda *_: "</div>\n",
    "list_item_open": lambda renderer, *rest: str(renderer.renderToken(*rest)),
    "admonition_title_open": lambda *_: '<p class="title">',
    "table_open": lambda *_: '<div class="wide" tabindex="0"><table>\n',
    "table_close": lambda *_: "</table></div>\n",
}
