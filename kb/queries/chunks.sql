-- Statements of kb/store/chunks.py.

-- name: chunk_ids_of_document
-- The chunks of a document.
SELECT chunk_id FROM chunks WHERE document_id = :document_id;

-- name: chunk_bounds_of_documents
-- Of each of these documents (JSON list of ids) its first and last chunk, and how many there are.
SELECT
  asked.value,
  (SELECT chunk_id FROM chunks WHERE document_id = asked.value AND position = 1),
  last.chunk_id, last.position
FROM json_each(:document_ids) AS asked
CROSS JOIN chunks AS last ON last.document_id = asked.value AND last.position = (
  SELECT max(position) FROM chunks WHERE document_id = asked.value);

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

-- name: ordered_chunk_ids
-- All chunks, or those that have a vector, in order.
SELECT chunk_id FROM chunks WHERE vector_id IS NOT NULL OR NOT :with_vector
ORDER BY chunk_id LIMIT :limit;

-- name: chunks_to_embed
-- Of some chunks (JSON list) those that wait for their embedding, or all, in their order there.
SELECT chunk_id, chunks.document_id, coalesce(heading_path, ''),
       chunks.start_character, chunks.end_character,
       coalesce(chunk_leads.start_character, 0), coalesce(chunk_leads.end_character, 0), text_hash
FROM json_each(:chunk_ids) CROSS JOIN chunks ON chunk_id = json_each.value
LEFT JOIN chunk_leads USING (chunk_id)
LEFT JOIN sections
  ON sections.document_id = chunks.document_id AND sections.position = chunks.section
WHERE :anew OR vector_id IS NULL ORDER BY json_each.key;

-- name: waiting_chunks
-- Chunks of a range that wait for their embedding: those that begin a document, then the others;
-- of the newest documents first, to which those without a time belong: they came just now.
SELECT chunk_id FROM chunks JOIN documents USING (document_id)
WHERE vector_id IS NULL AND chunk_id BETWEEN :first AND :last
ORDER BY position > 1, modified_ns IS NOT NULL, modified_ns DESC, chunk_id;

-- name: count_chunks_without_vector$
-- How many chunks of a range wait for their embedding.
SELECT count(*) FROM chunks WHERE vector_id IS NULL AND chunk_id BETWEEN :first AND :last;

-- name: has_chunk_without_vector$
-- Whether a chunk of a range waits for its embedding.
SELECT EXISTS (
  SELECT 1 FROM chunks WHERE vector_id IS NULL AND chunk_id BETWEEN :first AND :last
);

-- name: count_chunks_and_vectors
-- How many chunks some ranges (JSON list of pairs) have, and how many of them have their embedding.
SELECT count(*), count(vector_id)
FROM json_each(:ranges) CROSS JOIN chunks ON chunk_id BETWEEN value ->> 0 AND value ->> 1;

-- name: has_more_vectors$
-- Whether more than so many chunks have a vector.
SELECT count(*) > :most
FROM (SELECT 1 FROM chunks WHERE vector_id IS NOT NULL LIMIT :most + 1);

-- name: merge_keyword_segments!
-- Merge the keyword index into one segment, which drops the terms of what was deleted.
INSERT INTO keyword_index (keyword_index) VALUES ('optimize');

-- name: passages_of_document
-- All that the keyword index takes of a document's passages.
SELECT title, heading, body, extra FROM chunk_texts WHERE document_id = :document_id;

-- name: passages_with
-- What passages with a word say, whatever form it has; of many the first.
SELECT title, heading, body, extra FROM keyword_index WHERE keyword_index MATCH :query LIMIT 1000;

-- name: passages_of_documents
-- The passages of these documents (JSON list of ids), in order, with their leads.
SELECT chunks.document_id, section, start_line, end_line,
       chunks.start_character, chunks.end_character,
       coalesce(chunk_leads.start_character, 0), coalesce(chunk_leads.end_character, 0)
FROM json_each(:document_ids) CROSS JOIN chunks ON chunks.document_id = json_each.value
LEFT JOIN chunk_leads USING (chunk_id)
ORDER BY chunks.document_id, chunks.position;
