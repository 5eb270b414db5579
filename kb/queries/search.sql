-- Statements of the ranking: keyword list, vector candidates, distances, the rows to show.

-- name: keyword_hits
-- Chunks of one range of ids that match, best first. Weights: title, heading, body, extra.
SELECT rowid AS chunk_id, bm25(keyword_index, :title, :heading, :body, :extra) AS rank
FROM keyword_index
WHERE keyword_index MATCH :match AND rowid BETWEEN :first AND :last
ORDER BY rank, chunk_id LIMIT :limit;

-- name: document_hits
-- Documents of one range of ids that match, best first. Weights: title, heading, body, extra.
SELECT rowid AS document_id, bm25(document_index, :title, :heading, :body, :extra) AS rank
FROM document_index
WHERE document_index MATCH :match AND rowid BETWEEN :first AND :last
ORDER BY rank, document_id LIMIT :limit;

-- name: matching_chunk_ids
-- All chunks of one range of ids that match, unranked.
SELECT rowid FROM keyword_index
WHERE keyword_index MATCH :match AND rowid BETWEEN :first AND :last;

-- name: chunks_holding
-- Of each expression (JSON list): in how many chunks it is, counted to a limit, and in which of
-- some (JSON list), as a JSON list of both.
SELECT
  matches.value,
  (SELECT json_array(
     count(*),
     json_group_array(chunk_id) FILTER (
       WHERE chunk_id IN (SELECT value FROM json_each(:row_ids))))
   FROM (SELECT rowid AS chunk_id FROM keyword_index
         WHERE keyword_index MATCH matches.value LIMIT :limit))
FROM json_each(:matches) AS matches;

-- name: documents_holding
-- As chunks_holding, for documents.
SELECT
  matches.value,
  (SELECT json_array(
     count(*),
     json_group_array(document_id) FILTER (
       WHERE document_id IN (SELECT value FROM json_each(:row_ids))))
   FROM (SELECT rowid AS document_id FROM document_index
         WHERE document_index MATCH matches.value LIMIT :limit))
FROM json_each(:matches) AS matches;

-- name: count_all_chunks$
-- How many chunks the file holds.
SELECT count(*) FROM chunks;

-- name: count_all_documents$
-- How many documents the file holds.
SELECT count(*) FROM documents;

-- name: slabs
-- The vector index of one range of ids.
SELECT slab_id, offsets, signs FROM vector_slabs
WHERE slab_id BETWEEN :first >> 10 AND :last >> 10 ORDER BY slab_id;

-- name: candidates
-- Of each of these chunks (JSON list): its document, the cosine distances of the query's vector
-- (int8; NULL when there is none) to the chunk and to the mean of its document, and how the
-- document begins.
SELECT
  chunks.chunk_id,
  chunks.document_id,
  CASE WHEN vectors.vector IS NOT NULL AND :query IS NOT NULL THEN
    vec_distance_cosine(vec_int8(vectors.vector), vec_int8(:query))
  END AS distance,
  CASE WHEN vectors.vector IS NOT NULL AND :query IS NOT NULL THEN
    vec_distance_cosine(
      vec_int8(coalesce(document_vectors.vector, vectors.vector)), vec_int8(:query))
  END AS document_distance,
  documents.title || ' ' || documents.summary AS beginning
FROM chunks
JOIN documents ON documents.document_id = chunks.document_id
LEFT JOIN vectors USING (vector_id)
LEFT JOIN document_vectors ON document_vectors.document_id = chunks.document_id
WHERE chunks.chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: chunk_distances
-- Cosine distance of each of these chunks (JSON list) from the query's vector (int8); 1 for zeros.
SELECT chunk_id,
       coalesce(vec_distance_cosine(vec_int8(vector), vec_int8(:query)), 1.0) AS distance
FROM chunks JOIN vectors USING (vector_id)
WHERE chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: document_vectors
-- The stored vectors of a document's chunks.
SELECT chunk_id, vector FROM chunks JOIN vectors USING (vector_id)
WHERE document_id = :document_id ORDER BY position;

-- name: chunk_documents
-- The document of each of these chunks (JSON list).
SELECT chunk_id, path FROM chunks JOIN documents USING (document_id)
WHERE chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: hit_rows
-- What is shown of each of these chunks (JSON list).
SELECT
  chunks.chunk_id,
  documents.document_id,
  documents.collection_id,
  collections.name AS collection,
  documents.path AS document,
  documents.title,
  chunks.heading_path,
  (SELECT heading FROM sections
   WHERE sections.document_id = chunks.document_id AND sections.start_line <= chunks.end_line
     AND sections.heading_path = chunks.heading_path
   ORDER BY position DESC LIMIT 1) AS heading,
  chunk_texts.body AS content,
  chunks.position,
  (SELECT count(*) FROM chunks AS siblings
   WHERE siblings.document_id = chunks.document_id) AS chunk_count,
  chunks.start_line,
  chunks.end_line,
  (SELECT kind FROM places
   WHERE places.document_id = chunks.document_id AND places.start_line <= chunks.start_line
   ORDER BY places.start_line DESC LIMIT 1) AS place_kind,
  (SELECT label FROM places
   WHERE places.document_id = chunks.document_id AND places.start_line <= chunks.start_line
   ORDER BY places.start_line DESC LIMIT 1) AS place_label,
  (SELECT label FROM places
   WHERE places.document_id = chunks.document_id AND places.start_line <= chunks.end_line
   ORDER BY places.start_line DESC LIMIT 1) AS last_place_label
FROM chunks
JOIN chunk_texts USING (chunk_id)
JOIN documents ON documents.document_id = chunks.document_id
JOIN collections USING (collection_id)
WHERE chunks.chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: pages
-- The documents of one range of ids, to make questions from.
SELECT path, title, content FROM documents
WHERE document_id BETWEEN :first AND :last ORDER BY document_id;
