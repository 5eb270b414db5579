"""Mail keeps every message, names what is attached and tells each thing once."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import EmailMessage

import pytest

from kb.formats.convert.formats import format_of
from kb.formats.convert.process import Converter


@pytest.fixture(scope="module")
def converter() -> Iterator[Converter]:
    with Converter() as one:
        yield one


def text_of(converter: Converter, message: EmailMessage) -> str:
    kind = format_of("a.eml")
    assert kind is not None
    return converter.convert(kind, "a.eml", bytes(message)).text


def mail(subject: str, text: str = "") -> EmailMessage:
    message = EmailMessage()
    message["Subject"] = subject
    message["From"] = "ada@harbour.example"
    if text:
        message.set_content(text)
    return message


def test_a_mail_that_is_another_one_shows_it(converter: Converter) -> None:
    outer = mail("Fwd: Ropes")
    outer.set_content(mail("Ropes", "Hemp, not nylon.\n"))
    assert text_of(converter, outer) == (
        "# Fwd: Ropes\n\nFrom: ada@harbour.example\\\n\n"
        "## Ropes\n\nFrom: ada@harbour.example\\\n\nHemp, not nylon.\n"
    )


def test_a_digest_shows_its_messages_between_its_own_words(converter: Converter) -> None:
    digest = mail("Digest 7", "Topics of today")
    digest.make_mixed()
    messages = EmailMessage()
    messages["Content-Type"] = 'multipart/digest; boundary="in"'
    for subject in ("One", "Two"):
        part = EmailMessage()
        part.set_content(mail(subject, f"Text of {subject}"))
        messages.attach(part)
    digest.attach(messages)
    footer = EmailMessage()
    footer.set_content("Leave by a mail to the list.")
    digest.attach(footer)
    words = ["Topics of today", "## One", "Text of One", "## Two", "Text of Two", "Leave by"]
    places = [text_of(converter, digest).index(word) for word in words]
    assert places == sorted(places)


def test_what_is_attached_is_named_with_or_without_a_file(converter: Converter) -> None:
    message = mail("Berths", "See there.")
    message.add_attachment(b"x", "application", "pdf", filename="berths.pdf")
    message.add_attachment(b"x", "image", "png")
    message.add_attachment(mail("Inside", "A whole mail."))
    text = text_of(converter, message)
    assert "Attachments: berths.pdf, image/png\n" in text
    assert "## Inside" in text
    assert "A whole mail." in text


def test_quotations_stay_but_where_the_quoted_message_stands_too(converter: Converter) -> None:
    said = "The pilot ladder hangs on the lee side.\nIt is checked every week."
    quoted = "".join(f"> {line}\n" for line in said.splitlines())
    reply = f"Ada wrote:\n{quoted}\nWhich side is that?\n> And by whom is it ever checked there?\n"
    alone = text_of(converter, mail("Re: Ladder", reply))
    assert quoted in alone
    thread = mail("Thread", "Both of them.")
    for message in (mail("Ladder", said), mail("Re: Ladder", reply)):
        thread.add_attachment(message)
    text = text_of(converter, thread)
    assert text.count("lee side") == 1
    assert "Ada wrote:\n> […]\n\nWhich side is that?\n> And by whom" in text


def test_a_plain_text_is_taken_before_a_page_and_the_page_before_nothing(
    converter: Converter,
) -> None:
    message = mail("Both", "Plain words")
    message.add_alternative("<p>Page words</p>", "html")
    assert "Page words" not in text_of(converter, message)
    empty = mail("Page", " \n")
    empty.add_alternative("<p>Page words</p>", "html")
    assert "Page words" in text_of(converter, empty)
