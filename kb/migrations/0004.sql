-- Passages carry what is needed to understand them: the header row of a table, the line that
-- introduces a list.
CREATE TABLE chunk_leads (
  chunk_id        INTEGER PRIMARY KEY REFERENCES chunks (chunk_id) ON DELETE CASCADE,
  start_character INTEGER NOT NULL,     -- as in chunks
  end_character   INTEGER NOT NULL
) STRICT;

DROP VIEW chunk_texts;
CREATE VIEW chunk_texts AS
SELECT
  chunks.chunk_id,
  chunks.document_id,
  documents.title,
  chunks.heading_path AS heading,
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
LEFT JOIN chunk_leads USING (chunk_id);

-- The passages of files are cut anew at the next sync, which reads what has no time and an unknown
-- hash. Their texts stay, and so do the vectors of passages that stay the same.
UPDATE documents SET content_hash = x'', modified_ns = NULL
WHERE collection_id IN (SELECT collection_id FROM collections WHERE source <> '');
