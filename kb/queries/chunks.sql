-- Statements of kb/store/chunks.py.

-- name: chunk_ids_of_documents
-- The chunks of these documents (JSON list of ids).
SELECT chunk_id FROM json_each(:document_ids)
CROSS JOIN chunks ON chunks.document_id = json_each.value;

-- name: count_chunks_of
-- How many chunks each of these documents (JSON list of ids) has: its last one's position.
SELECT value, (SELECT max(position) FROM chunks WHERE document_id = value)
FROM json_each(:document_ids);

-- name: has_vectors$
-- Whether any passage of one range of ids has a vector.
SELECT EXISTS (
  SELECT 1 FROM chunks WHERE chunk_id BETWEEN :first AND :last AND vector_id IS NOT NULL);

-- name: document_ids_of_chunks
-- Which document each of these chunks (JSON list) belongs to.
SELECT chunk_id, document_id FROM chunks
WHERE chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: chunk_documents
-- The document of each of these chunks (JSON list).
SELECT chunk_id, path FROM chunks JOIN documents USING (document_id)
WHERE chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: chunks_without_vector
-- Chunks behind one and up to another that wait for their embedding, in document order.
SELECT chunk_id, chunks.document_id, coalesce(heading_path, ''),
       chunks.start_character, chunks.end_character,
       coalesce(chunk_leads.start_character, 0), coalesce(chunk_leads.end_character, 0), text_hash
FROM chunks LEFT JOIN chunk_leads USING (chunk_id)
LEFT JOIN sections
  ON sections.document_id = chunks.document_id AND sections.position = chunks.section
WHERE vector_id IS NULL AND chunk_id > :after AND chunk_id <= :last
ORDER BY chunk_id LIMIT :limit;

-- name: waiting_chunks
-- Chunks of a range that wait for their embedding: those that begin a document, then the others;
-- of the newest documents first, to which those without a time belong: they came just now.
SELECT chunk_id FROM chunks JOIN documents USING (document_id)
WHERE vector_id IS NULL AND chunk_id BETWEEN :first AND :last
ORDER BY position > 1, modified_ns IS NOT NULL, modified_ns DESC, chunk_id;

-- name: chunks_waiting_among
-- As chunks_without_vector, of some (JSON list), in their order there.
SELECT chunk_id, chunks.document_id, coalesce(heading_path, ''),
       chunks.start_character, chunks.end_character,
       coalesce(chunk_leads.start_character, 0), coalesce(chunk_leads.end_character, 0), text_hash
FROM json_each(:chunk_ids) CROSS JOIN chunks ON chunk_id = json_each.value
LEFT JOIN chunk_leads USING (chunk_id)
LEFT JOIN sections
  ON sections.document_id = chunks.document_id AND sections.position = chunks.section
WHERE vector_id IS NULL ORDER BY json_each.key;

-- name: count_chunks_without_vector$
-- How many chunks of a range wait for their embedding.
SELECT count(*) FROM chunks WHERE vector_id IS NULL AND chunk_id BETWEEN :first AND :last;

-- name: has_chunk_without_vector$
-- Whether a chunk of a range waits for its embedding.
SELECT EXISTS (
  SELECT 1 FROM chunks WHERE vector_id IS NULL AND chunk_id BETWEEN :first AND :last
);

-- name: count_chunks_and_vectors
-- How many chunks a range has, and how many of them have their embedding.
SELECT count(*), count(vector_id) FROM chunks WHERE chunk_id BETWEEN :first AND :last;

-- name: has_more_vectors$
-- Whether more than so many chunks have a vector.
SELECT count(*) > :most
FROM (SELECT 1 FROM chunks WHERE vector_id IS NOT NULL LIMIT :most + 1);

-- name: chunks_with_vector
-- As `chunks_with_text`, of those that have a vector.
SELECT chunk_id, chunks.document_id, coalesce(heading_path, ''),
       chunks.start_character, chunks.end_character,
       coalesce(chunk_leads.start_character, 0), coalesce(chunk_leads.end_character, 0), text_hash
FROM chunks LEFT JOIN chunk_leads USING (chunk_id)
LEFT JOIN sections
  ON sections.document_id = chunks.document_id AND sections.position = chunks.section
WHERE vector_id IS NOT NULL AND chunk_id > :after AND chunk_id <= :last
ORDER BY chunk_id LIMIT :limit;

-- name: chunks_with_text
-- Every chunk with the range of its text, in order; for another model.
SELECT chunk_id, chunks.document_id, coalesce(heading_path, ''),
       chunks.start_character, chunks.end_character,
       coalesce(chunk_leads.start_character, 0), coalesce(chunk_leads.end_character, 0), text_hash
FROM chunks LEFT JOIN chunk_leads USING (chunk_id)
LEFT JOIN sections
  ON sections.document_id = chunks.document_id AND sections.position = chunks.section
WHERE chunk_id > :after AND chunk_id <= :last
ORDER BY chunk_id LIMIT :limit;

-- name: count_chunks$
-- All chunks of the file.
SELECT count(*) FROM chunks;
