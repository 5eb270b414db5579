-- Statements of discoveries: what an assistant learned, as small documents.

-- name: discoveries_collection$
-- The collection of the discoveries.
SELECT collection_id FROM collections WHERE kind = 'discoveries' ORDER BY collection_id LIMIT 1;

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

-- name: all_discoveries
-- Every discovery, by module, type and date.
SELECT document_id, path AS id, content, metadata
FROM documents WHERE collection_id = :collection_id
ORDER BY metadata ->> 'module', metadata ->> 'type', metadata ->> 'date', path;

-- name: has_vectors$
-- Whether any passage of one range of ids has a vector.
SELECT EXISTS (
  SELECT 1 FROM chunks WHERE chunk_id BETWEEN :first AND :last AND vector_id IS NOT NULL);

-- name: resource_documents
-- One page of the documents that a project sees of these kinds (JSON list) and of its own.
SELECT collections.name AS collection, documents.path, documents.title, documents.summary,
       documents.character_count
FROM documents JOIN collections USING (collection_id)
WHERE (collections.project_id IS NULL AND kind IN (SELECT value FROM json_each(:kinds)))
   OR collections.project_id = :project_id
ORDER BY collections.name, documents.path LIMIT :limit OFFSET :offset;

-- name: collection_texts
-- The texts of a collection's documents, by path.
SELECT path, content FROM documents WHERE collection_id = :collection_id ORDER BY path;

-- name: stored_text
-- The text of one document and its size in bytes on disk.
SELECT content, coalesce(file_size, octet_length(content)) AS size
FROM documents WHERE collection_id = :collection_id AND path = :path;
