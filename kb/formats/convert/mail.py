"""Mail: the subject as heading, sender, recipients and date, the text; attachments by name.

Messages inside a message have headings below its own. What they quote of each other appears once.
python-oxmsg reads Outlook's files.
"""

from __future__ import annotations

import email.errors
import email.policy
import itertools
import re
from collections.abc import Iterator
from email.message import EmailMessage
from email.parser import BytesParser
from email.utils import format_datetime

from kb.formats.convert.markup import markdown_of, parse_html
from kb.formats.convert.page import html_text
from kb.formats.convert.plain import protected
from kb.formats.convert.result import Converted, ConverterError
from kb.formats.outline import one_line
from kb.text.decode import NoTextError, decode_as

_SHOWN = ("From", "To", "Cc", "Date")
MOST_LEVELS = 6  # of headings; messages deeper inside others share the last
DEEPEST = 50  # nested parts that are read
# Encodings that Python has by another name, or that hold more than they should.
_CODE_PAGES = {
    720: "cp720",
    874: "cp874",
    950: "cp950",
    20127: "cp1252",
    28591: "cp1252",
    10006: "mac_greek",
    10007: "mac_cyrillic",
    10029: "mac_latin2",
    10081: "mac_turkish",
}
_LEAST_REPEATED = 40  # characters of a quotation that is left out if it repeats earlier text
_QUOTE = re.compile(r"[ \t]*>[> \t]*")


def convert(data: bytes, name: str) -> Converted:
    """Each message with its text: plain if there is one, else from HTML."""
    notices: tuple[str, ...] = ()
    if name.lower().endswith(".msg"):
        message, notices = _read_outlook(data)
    else:
        message = BytesParser(policy=email.policy.default).parsebytes(data)
        if not message.keys():
            raise ConverterError("is not mail: it has no header")
    lines = list(_Mail().message_lines(message, 1))
    subject = _header(message, "Subject")
    names = {"From": "author", "Date": "date", "Message-ID": "message-id"}
    metadata = {key: value for head, key in names.items() if (value := _header(message, head))}
    return Converted("\n".join(lines).rstrip("\n") + "\n", subject, (), metadata, notices)


def _read_outlook(data: bytes) -> tuple[EmailMessage, tuple[str, ...]]:
    """An Outlook message like any other, and notices."""
    import oxmsg
    from oxmsg.domain import constants, encodings

    encodings._CODE_PAGE_ENCODINGS.update(_CODE_PAGES)
    try:
        stored = oxmsg.Message.load(data)
    except (ValueError, OSError, AttributeError) as error:
        raise ConverterError(f"is damaged or not Outlook mail: {error}") from error
    text = stored.properties.str_prop_value
    recipients = ", ".join(f"{who.name} <{who.email_address}>" for who in stored.recipients)
    headers = {
        "Subject": stored.subject,
        "From": stored.sender,
        "To": stored.message_headers.get("To") or recipients or text(constants.PID_DISPLAY_TO),
        "Cc": stored.message_headers.get("Cc") or text(constants.PID_DISPLAY_CC),
        "Date": stored.message_headers.get("Date"),
    }
    sent = stored.sent_date
    if not headers["Date"] and sent is not None and sent.year > 1601:  # the zero of Windows
        headers["Date"] = format_datetime(sent)
    message = EmailMessage()
    for key, value in headers.items():
        if value := (value or "").strip("\0 "):  # a NUL ends text of a single-byte encoding
            message[key] = one_line(value)
    if body := (stored.body or "").strip("\0 \r\n\t"):
        message.set_content(body)
    elif stored.html_body:
        message.set_content(stored.html_body, subtype="html")
    for attachment in stored.attachments:
        file = attachment.file_name or attachment.properties.str_prop_value(
            constants.PID_DISPLAY_NAME
        )
        message.add_attachment(b"", "application", "octet-stream", filename=one_line(file or "?"))
    only_rtf = not message.get_body() and stored.properties.binary_prop_value(
        constants.PID_RTF_COMPRESSED
    )
    return message, ("its text is there as RTF alone, which was not read",) if only_rtf else ()


class _Mail:
    def __init__(self) -> None:
        self._written: set[str] = set()  # lines of the messages so far

    def message_lines(self, message: EmailMessage, level: int, depth: int = 0) -> Iterator[str]:
        mark = "#" * min(level, MOST_LEVELS)
        yield f"{mark} {protected(_header(message, 'Subject')) or 'No subject'}"
        yield ""
        for name in _SHOWN:
            if value := _header(message, name):
                yield f"{name}: {value}\\"
        yield ""
        attached: list[str] = []
        yield from self._part_lines(message, level, depth, attached)
        if attached:
            yield f"Attachments: {', '.join(attached)}"
            yield ""

    def _part_lines(
        self, part: EmailMessage, level: int, depth: int, attached: list[str]
    ) -> Iterator[str]:
        kind = part.get_content_type()
        inside = [inner for inner in part.iter_parts() if isinstance(inner, EmailMessage)]
        file = one_line(part.get_filename() or "")
        if depth > DEEPEST:
            attached.append(file or kind)
        elif kind == "message/rfc822":
            for message in inside:
                yield from self.message_lines(message, level + 1, depth + 1)
        elif kind == "multipart/alternative" and inside:
            yield from self._part_lines(_best(inside), level, depth + 1, attached)
        elif inside and kind != "message/delivery-status":
            for inner in inside:
                yield from self._part_lines(inner, level, depth + 1, attached)
        elif part.get_content_disposition() == "attachment" or part.get_content_maintype() not in (
            *("text", "multipart", "message"),
        ):
            attached.append(file or kind)
        else:
            yield from self._not_repeated(list(_text_lines(part, inside)))
            yield ""

    def _not_repeated(self, lines: list[str]) -> Iterator[str]:
        new = {line.strip() for line in lines if not _QUOTE.match(line)}
        for is_quoted, group in itertools.groupby(lines, lambda line: bool(_QUOTE.match(line))):
            texts_of_group = list(group)
            texts = [_QUOTE.sub("", line).strip() for line in texts_of_group if is_quoted]
            size = sum(map(len, texts))
            if size >= _LEAST_REPEATED and all(not t or t in self._written for t in texts):
                yield "> […]"
            else:
                yield from texts_of_group
        self._written |= new


def _best(alternatives: list[EmailMessage]) -> EmailMessage:
    """Of several forms of one text the plain one, else the first with a page, else any."""
    for kind in ("text/plain", "text/html"):
        for part in alternatives:
            if any(inner.get_content_type() == kind for inner in part.walk()):
                content = part.get_payload(decode=True) if not part.is_multipart() else b"x"
                if content and bytes(content).strip():
                    return part
    return alternatives[-1]


def _text_lines(part: EmailMessage, inside: list[EmailMessage]) -> Iterator[str]:
    if inside:  # the report of a mail server: fields without a body
        for report in inside:
            yield from (f"{name}: {_header(report, name)}\\" for name in report)
            yield ""
        return
    payload = part.get_payload(decode=True)
    raw = payload if isinstance(payload, bytes) else str(part.get_payload()).encode()
    charset = part.get_content_charset() or ""
    if part.get_content_type() == "text/html":
        content = parse_html(html_text(raw, charset)).body
        yield from markdown_of(content).splitlines() if content is not None else ()
        return
    try:
        text = decode_as(raw, charset)
    except NoTextError:
        text = raw.decode("latin-1").replace("\0", "")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    yield from protected(text).strip("\n").split("\n")


def _header(message: EmailMessage, name: str) -> str:
    """A header's value: "" if there is none, as written if it is malformed."""
    try:
        return one_line(str(message.get(name, "")))
    # On malformed headers the parser of addresses and dates raises any of these.
    except (email.errors.MessageError, ValueError, IndexError, AttributeError, TypeError):
        raw = next((value for key, value in message.raw_items() if key.lower() == name.lower()), "")
        return one_line(str(raw))
