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

-- name: vectors_of_document
-- The vectors that a document's passages have.
SELECT DISTINCT vector_id FROM chunks WHERE document_id = :document_id AND vector_id IS NOT NULL;

-- name: delete_unused_of_vectors!
-- Of these vectors (JSON list), delete those that no passage uses.
DELETE FROM vectors
WHERE vector_id IN (SELECT value FROM json_each(:vector_ids))
  AND NOT EXISTS (SELECT 1 FROM chunks WHERE chunks.vector_id = vectors.vector_id);

-- name: merge_keyword_segments!
-- Merge the keyword index into one segment, which drops the terms of what was deleted.
INSERT INTO keyword_index (keyword_index) VALUES ('optimize');

-- name: merge_document_segments!
-- Merge the index of whole documents into one segment, as above.
INSERT INTO document_index (document_index) VALUES ('optimize');

-- name: passages_of_document
-- All that the keyword index takes of a document's passages.
SELECT title, heading, body, extra FROM chunk_texts WHERE document_id = :document_id;

-- name: passages_with
-- What passages with a word say, whatever form it has; of many the first.
SELECT title, heading, body, extra FROM keyword_index WHERE keyword_index MATCH :query LIMIT 1000;

-- name: all_session_details
-- Every question, path and id of a discovery that is noted of sessions.
SELECT session_event_id, detail FROM session_events;

-- name: delete_session_events!
-- Delete what is noted of sessions (JSON list of ids).
DELETE FROM session_events
WHERE session_event_id IN (SELECT value FROM json_each(:session_event_ids));
