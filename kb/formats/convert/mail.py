"""Mail: the subject as heading, who wrote to whom and when, the text; attachments by name."""

from __future__ import annotations

import email.errors
import email.policy
from collections.abc import Iterator
from email.message import EmailMessage
from email.parser import BytesParser

from kb.formats.convert.markup import markdown_of, parse_html
from kb.formats.convert.page import html_text
from kb.formats.convert.plain import protected
from kb.formats.convert.result import Converted, ConverterError
from kb.formats.outline import one_line
from kb.text.decode import NoTextError, decode_as

__all__ = ["convert"]

_SHOWN = ("From", "To", "Cc", "Date")
MOST_LEVELS = 5  # of messages inside messages


def convert(data: bytes, name: str) -> Converted:
    """The plain text of each message where there is one, else its HTML."""
    message = BytesParser(policy=email.policy.default).parsebytes(data)
    if not message.keys():
        raise ConverterError("is no mail: it has no header")
    lines = list(_message_lines(message, 1))
    subject = _header(message, "Subject")
    names = {"From": "author", "Date": "date", "Message-ID": "message-id"}
    metadata = {key: value for head, key in names.items() if (value := _header(message, head))}
    return Converted("\n".join(lines).rstrip("\n") + "\n", subject, metadata=metadata)


def _message_lines(message: EmailMessage, level: int) -> Iterator[str]:
    yield f"{'#' * level} {protected(_header(message, 'Subject')) or 'No subject'}"
    yield ""
    for name in _SHOWN:
        if value := _header(message, name):
            yield f"{name}: {value}\\"
    yield ""
    body = message.get_body(("plain", "html"))
    if isinstance(body, EmailMessage):
        yield from _body_lines(body)
        yield ""
    attached = []
    for part in _attachments(message):
        if part.get_content_type() == "message/rfc822" and level < MOST_LEVELS:
            for inner in part.iter_parts():
                if isinstance(inner, EmailMessage):
                    yield from _message_lines(inner, level + 1)
                    yield ""
        elif file := part.get_filename():
            attached.append(one_line(file))
    if attached:
        yield f"Attachments: {', '.join(attached)}"
        yield ""


def _attachments(message: EmailMessage) -> Iterator[EmailMessage]:
    if message.is_multipart() and message.get_content_type() != "message/rfc822":
        for part in message.iter_attachments():
            if isinstance(part, EmailMessage):
                yield part


def _body_lines(body: EmailMessage) -> Iterator[str]:
    payload = body.get_payload(decode=True)
    raw = payload if isinstance(payload, bytes) else b""
    charset = body.get_content_charset() or ""
    if body.get_content_type() == "text/html":
        content = parse_html(html_text(raw, charset)).body
        yield from markdown_of(content).splitlines() if content is not None else ()
        return
    yield from protected(_decoded(raw, charset)).rstrip("\n").split("\n")


def _decoded(raw: bytes, charset: str) -> str:
    try:
        text = decode_as(raw, charset)
    except NoTextError:
        text = raw.decode("latin-1").replace("\0", "")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _header(message: EmailMessage, name: str) -> str:
    """A header's value; "" where there is none, as it stands where it is malformed."""
    try:
        return one_line(str(message.get(name, "")))
    # The parser of addresses and dates raises what it stumbles over in a malformed header.
    except (email.errors.MessageError, ValueError, IndexError, AttributeError, TypeError):
        raw = next((value for key, value in message.raw_items() if key.lower() == name.lower()), "")
        return one_line(str(raw))
