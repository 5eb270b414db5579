-- Statements of kb/search/paths.py.

-- name: paths_of_range
-- The paths of the documents of one range of ids.
SELECT document_id, collection_id, path FROM documents WHERE document_id BETWEEN :first AND :last;

-- name: chunks_of_documents
-- The chunks of some documents (JSON list of ids).
SELECT chunk_id FROM json_each(:ids) CROSS JOIN chunks ON chunks.document_id = json_each.value;
