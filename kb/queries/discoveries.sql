-- Statements of kb/store/discoveries.py.

-- name: discovery_chunks
-- The passages of the discoveries of a type and module; '' stands for any.
SELECT chunks.chunk_id
FROM documents JOIN chunks USING (document_id)
WHERE documents.collection_id = :collection_id
  AND (:type = '' OR documents.metadata ->> 'type' = :type)
  AND (:module = '' OR documents.metadata ->> 'module' = :module COLLATE NOCASE);

-- name: discoveries_of_chunks
-- What is shown of the discoveries that these passages (JSON list) belong to.
SELECT chunks.chunk_id, documents.document_id, documents.path AS id, documents.content,
       documents.metadata
FROM chunks JOIN documents USING (document_id)
WHERE chunks.chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: set_discovery_metadata!
-- New metadata of a discovery, whose text stays.
UPDATE documents SET metadata = :metadata WHERE document_id = :document_id;

-- name: all_discoveries
-- Every discovery, by module, type and date.
SELECT document_id, path AS id, content, metadata
FROM documents WHERE collection_id = :collection_id
ORDER BY metadata ->> 'module', metadata ->> 'type', metadata ->> 'date', path;
