"""Small Office files built by code."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

__all__ = ["docx", "package"]

_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_RELATIONSHIPS = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_WORD = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
)


def package(main: str, members: Mapping[str, str], related: Mapping[str, str]) -> bytes:
    """A zip archive with a main part, and parts that this one is related to by a kind."""
    folder, _, name = main.rpartition("/")
    links = "".join(
        f'<Relationship Id="r{i}" Type="{_OFFICE}/{kind}" Target="{target}"/>'
        for i, (kind, target) in enumerate(related.items())
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{_TYPES}"><Default Extension="xml" ContentType="application/xml"/>'
            '<Default Extension="rels" ContentType='
            '"application/vnd.openxmlformats-package.relationships+xml"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{_RELATIONSHIPS}"><Relationship Id="m" '
            f'Type="{_OFFICE}/officeDocument" Target="{main}"/></Relationships>',
        )
        archive.writestr(
            f"{folder}/_rels/{name}.rels",
            f'<Relationships xmlns="{_RELATIONSHIPS}">{links}</Relationships>',
        )
        for path, text in members.items():
            archive.writestr(path, text)
    return file.getvalue()


def docx(body: str, comments: str = "", main: str = "word/document.xml") -> bytes:
    """A Word file of these paragraphs, and these comments."""
    members = {main: f"<w:document {_WORD}><w:body>{body}</w:body></w:document>"}
    if comments:
        members["word/comments.xml"] = f"<w:comments {_WORD}>{comments}</w:comments>"
    return package(main, members, {"comments": "comments.xml"} if comments else {})
