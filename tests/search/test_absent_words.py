"""What a question asks for that no document has is told, and lowers the scores."""

import pytest
from support import Filler, call

from kb.tools.session import Session

PAGES = {
    "uploads.md": "# Uploads\n\nA client sends large files as a form. Each file is kept on disk.",
    "retry.md": "# Retries\n\nA request that fails is sent again, three times at most.",
    "schedule.md": "# Schedule\n\nBeyond midnight a job tightly follows the one before.",
}


@pytest.fixture
def filled(fill: Filler) -> Session:
    return fill(PAGES)


def test_a_rare_word_that_no_document_has_is_told(filled: Session) -> None:
    reply = call(filled, "documents_search", query="retry a request with tenacity")
    assert 'No document has "tenacity".' in reply["notice"]
    reply = call(filled, "documents_search", query="How large are files (in megabytes)?")
    assert 'No document has "megabytes".' in reply["notice"]


def test_everyday_words_and_contractions_are_not_told(filled: Session) -> None:
    reply = call(filled, "documents_search", query="anyone who doesn't send large files")
    assert "No document has" not in reply.get("notice", "")


def test_without_the_most_telling_word_no_row_is_likely(filled: Session) -> None:
    known = call(filled, "documents_search", query="large files")["results"]
    assert known[0]["relevanceScore"] >= 0.7
    reply = call(filled, "documents_search", query="large files lfs")
    assert reply["results"][0]["documentId"] == "uploads.md"
    assert reply["results"][0]["relevanceScore"] < 0.7
    assert "No row reaches 0.7" in reply["notice"]


def test_a_reply_with_a_likely_row_says_nothing_of_it(filled: Session) -> None:
    assert "notice" not in call(filled, "documents_search", query="large files")


def test_each_query_of_a_batch_without_a_likely_row_is_named(filled: Session) -> None:
    queries = [{"query": "large files"}, {"query": "zigbee gateway"}]
    notice = call(filled, "documents_search_batch", queries=queries)["notice"]
    assert 'No row for "zigbee gateway" reaches 0.7.' in notice
    assert "large files" not in notice


def test_a_right_word_that_no_document_has_is_not_replaced(filled: Session) -> None:
    notice = call(filled, "documents_search", query="nightly job")["notice"]
    assert 'No document has "nightly".' in notice
    assert "searched for" not in notice  # `tightly` is as near as a typo


def test_an_acronym_that_no_document_has_is_not_replaced(fill: Filler) -> None:
    kb = fill({"a.md": "# Config\n\nThe same yaml file is read by sam."})
    notice = call(kb, "documents_search", query="single sign-on by SAML")["notice"]
    assert '"SAML"' in notice
    assert "searched for" not in notice


def test_a_question_in_another_language_is_told_what_the_model_reads(filled: Session) -> None:
    notice = call(filled, "documents_search", query="Wie lade ich eine Datei hoch?")["notice"]
    assert "model reads English" in notice
    assert "No document has" not in notice
    notice = call(filled, "documents_search", query="kubernetes helm chart")["notice"]
    assert '"kubernetes"' in notice
    assert "model reads English" not in notice


def test_a_question_of_plain_english_words_is_not_foreign(
    filled: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kb.search.run.may_be_english", lambda _: False)
    notice = call(filled, "documents_search", query="rule size summary explanation")["notice"]
    assert "model reads English" not in notice
