-- Statements of kb/search/candidate_texts.py.

-- name: texts_with_links
-- What the keyword index covers of those of some chunks (JSON list) whose document has links.
SELECT chunk_texts.chunk_id, title, heading, body, extra
FROM chunk_texts
WHERE chunk_texts.chunk_id IN (SELECT value FROM json_each(:chunk_ids))
  AND EXISTS (SELECT 1 FROM citations WHERE source_document_id = chunk_texts.document_id);
