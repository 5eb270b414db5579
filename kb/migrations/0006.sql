-- The file says in less room what its texts say already.

-- The texts that `chunk_texts` has stay as they are, so the keyword index does.
DROP VIEW chunk_texts;

-- A passage names its section instead of repeating the path of its headings. The section is the last
-- one with that path that begins before the passage ends.
CREATE TABLE old_chunks AS SELECT * FROM chunks;
DROP TABLE chunks;
CREATE TABLE chunks (
  chunk_id        INTEGER PRIMARY KEY,
  document_id     INTEGER NOT NULL REFERENCES documents (document_id) ON DELETE CASCADE,
  position        INTEGER NOT NULL,     -- from 1 in document order
  section         INTEGER,              -- position of the one it lies in; NULL before any heading
  start_line      INTEGER NOT NULL,
  end_line        INTEGER NOT NULL,
  start_character INTEGER NOT NULL,     -- from 0; the text is content[start:end]
  end_character   INTEGER NOT NULL,
  extra_terms     TEXT NOT NULL,        -- terms that the tokenizer cannot see: see kb/text/terms.py
  text_hash       BLOB NOT NULL,        -- of the embedded text (title, path, text); as in vectors
  vector_id       INTEGER REFERENCES vectors (vector_id),  -- NULL: not embedded yet
  UNIQUE (document_id, position)
) STRICT;
INSERT INTO chunks
SELECT
  chunk_id, document_id, position,
  (SELECT sections.position FROM sections
   WHERE sections.document_id = old_chunks.document_id
     AND sections.start_line <= old_chunks.end_line
     AND sections.heading_path = old_chunks.heading_path
   ORDER BY sections.position DESC LIMIT 1),
  start_line, end_line, start_character, end_character, extra_terms, substr(text_hash, 1, 10),
  vector_id
FROM old_chunks ORDER BY chunk_id;
CREATE INDEX chunks_by_vector ON chunks (vector_id);

CREATE VIEW chunk_texts AS
SELECT
  chunks.chunk_id,
  chunks.document_id,
  documents.title,
  coalesce(sections.heading_path, '') AS heading,
  coalesce(substr(documents.content, chunk_leads.start_character + 1,
                  chunk_leads.end_character - chunk_leads.start_character), '') AS lead,
  substr(documents.content, chunks.start_character + 1,
         chunks.end_character - chunks.start_character) AS body,
  CASE WHEN chunk_leads.chunk_id IS NULL THEN chunks.extra_terms
    ELSE chunks.extra_terms || char(10)
      || substr(documents.content, chunk_leads.start_character + 1,
                chunk_leads.end_character - chunk_leads.start_character)
  END AS extra
FROM chunks
JOIN documents USING (document_id)
LEFT JOIN sections
  ON sections.document_id = chunks.document_id AND sections.position = chunks.section
LEFT JOIN chunk_leads USING (chunk_id);

-- Where a path has no section, which no kb has stored, the index is made anew without it.
INSERT INTO keyword_index (keyword_index)
SELECT 'rebuild' WHERE EXISTS (
  SELECT 1 FROM old_chunks JOIN chunks USING (chunk_id)
  WHERE old_chunks.heading_path <> '' AND chunks.section IS NULL);
DROP TABLE old_chunks;

-- Ten rows fill a page with a hash of ten bytes; of sixteen it had nine.
UPDATE vectors SET text_hash = substr(text_hash, 1, 10);

-- The sentence round a link is a range of the text, for documents that are stored from now on.
CREATE TABLE old_citations AS SELECT * FROM citations;
DROP TABLE citations;
CREATE TABLE citations (
  citation_id        INTEGER PRIMARY KEY,
  source_document_id INTEGER NOT NULL REFERENCES documents (document_id) ON DELETE CASCADE,
  target_document_id INTEGER REFERENCES documents (document_id) ON DELETE SET NULL,
  target_url         TEXT NOT NULL,     -- as written
  target_key         TEXT NOT NULL,     -- normalised path, page name or URL: what resolves it
  kind               TEXT NOT NULL,     -- inline, reference, autolink, wiki, footnote, metadata, similar;
                                        -- of Sphinx: doc, ref, toctree, include
  context            TEXT,              -- the sentence round the link; NULL: it is the range
  start_character    INTEGER,           -- as in chunks; NULL: the sentence is in `context`
  end_character      INTEGER,
  confidence         REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1),
  line               INTEGER NOT NULL
) STRICT;
INSERT INTO citations
SELECT citation_id, source_document_id, target_document_id, target_url, target_key, kind, context,
       NULL, NULL, confidence, line
FROM old_citations ORDER BY citation_id;
DROP TABLE old_citations;
CREATE INDEX citations_by_source ON citations (source_document_id);
CREATE INDEX citations_by_target ON citations (target_document_id);
CREATE INDEX citations_by_key ON citations (target_key);

CREATE VIEW citation_texts AS
SELECT
  citation_id, source_document_id, target_document_id, target_url, kind, line,
  coalesce(context, replace(substr(content, start_character + 1, end_character - start_character),
                            char(10), ' ')) AS context
FROM citations JOIN documents ON document_id = source_document_id;

-- A word begins as its stem does: it is found without an index.
DROP INDEX vocabulary_by_stem;
