-- Statements of kb/search/alike.py.

-- name: documents_alike
-- By what copies and translations among these documents (JSON list) are told.
SELECT document_id, collection_id, path, content_hash FROM documents
WHERE document_id IN (SELECT value FROM json_each(:document_ids));

-- name: documents_by_hash
-- All documents that come from a source, with what tells copies.
SELECT collections.name, path, content_hash FROM documents JOIN collections USING (collection_id)
WHERE source != '' AND length(content_hash) > 0 ORDER BY 1, 2;
