-- Statements of kb/search/borders.py.

-- name: chunk_places
-- Where the chunks of these documents (JSON list) lie in their text.
SELECT document_id, chunk_id, start_character, end_character FROM chunks
WHERE document_id IN (SELECT value FROM json_each(:document_ids))
ORDER BY document_id, position;
