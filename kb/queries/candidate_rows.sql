-- Statements of kb/search/candidate_rows.py.

-- name: candidates
-- Of each of these chunks (JSON list): its document, the cosine distances of the query's vector
-- (int8; NULL when there is none) to the chunk and to the mean of its document, its title, how it
-- begins, whether the chunk is its first, and the chunk's vector where it has a distance.
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
  documents.title,
  documents.title || ' ' || documents.summary AS beginning,
  chunks.position = 1 AS is_first,
  CASE WHEN :query IS NOT NULL THEN vectors.vector END AS vector
FROM chunks
JOIN documents ON documents.document_id = chunks.document_id
LEFT JOIN vectors USING (vector_id)
LEFT JOIN document_vectors ON document_vectors.document_id = chunks.document_id
WHERE chunks.chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: first_chunks_named
-- The first chunk of each document of a range of chunk ids that answers to a key.
SELECT chunks.chunk_id
FROM document_keys JOIN chunks USING (document_id)
WHERE document_keys.key = :key AND chunks.position = 1
  AND chunks.chunk_id BETWEEN :first AND :last
ORDER BY chunks.chunk_id LIMIT :limit;
