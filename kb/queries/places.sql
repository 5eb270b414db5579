-- Statements of kb/store/places.py.

-- name: places_of_documents
-- Where the parts of these documents (JSON list of ids) stand in their files, in order.
SELECT document_id, start_line, kind, label FROM places
WHERE document_id IN (SELECT value FROM json_each(:document_ids))
ORDER BY document_id, start_line;
