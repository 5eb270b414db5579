"""What is asked for most is embedded first."""

import os
from pathlib import Path

from support import HashEmbedder

from kb.ingest.embed import embed_pending
from kb.ingest.sync import sync_collection
from kb.library.collecting import register
from kb.store.database import Database
from kb.tools.session import open_session

_SECTION = "\n\n## Part {n}\n\n" + "Words of the wind and of the rain. " * 40


def test_beginnings_and_new_documents_are_embedded_first(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, seconds in (("old", 1e9), ("new", 1.6e9), ("middle", 1.3e9)):
        page = docs / f"{name}.md"
        page.write_text(f"# {name}" + "".join(_SECTION.format(n=n) for n in range(6)))
        os.utime(page, (seconds, seconds))
    embedder = HashEmbedder()
    with open_session(Database(tmp_path / "kb.db"), make_embedder=lambda _: embedder) as kb:
        sync_collection(kb.database, register(kb.database, str(docs)))
        report = embed_pending(kb.model)
    assert report.waiting == 0
    texts = [text for text in embedder.texts if "\n" in text]
    names = [text.partition("\n")[0] for text in texts]
    beginnings = ["new", "middle", "old"]
    assert names[:3] == beginnings
    assert names[3:] == sorted(names[3:], key=beginnings.index)
    assert len(names) == len(set(texts)) == report.embedded


def test_what_is_stored_while_others_are_embedded_is_embedded_too(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("# First\n\nThe wind.")

    class Adding(HashEmbedder):
        def embed(self, texts):
            if any("wind" in text for text in texts) and not (docs / "b.md").exists():
                (docs / "b.md").write_text("# Second\n\nThe rain.")
                sync_collection(kb.database, register(kb.database, str(docs)))
            return super().embed(texts)

    embedder = Adding()
    with open_session(Database(tmp_path / "kb.db"), make_embedder=lambda _: embedder) as kb:
        sync_collection(kb.database, register(kb.database, str(docs)))
        assert embed_pending(kb.model).waiting == 0
    assert any("rain" in text for text in embedder.texts)
