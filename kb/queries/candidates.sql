-- Statements of kb/search/candidates.py.

-- name: candidates
-- Of each of these chunks (JSON list): its document, the cosine distances of the query's vector
-- (int8; NULL when there is none) to the chunk and to the mean of its document, its title, how it
-- begins, whether the chunk is its first, by what copies of the document are told, and the chunk's
-- vector where it has a distance.
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
  documents.path,
  documents.content_hash,
  CASE WHEN :query IS NOT NULL THEN vectors.vector END AS vector
FROM chunks
JOIN documents ON documents.document_id = chunks.document_id
LEFT JOIN vectors USING (vector_id)
LEFT JOIN document_vectors ON document_vectors.document_id = chunks.document_id
WHERE chunks.chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: first_chunks_named
-- The first chunk of each document of some ranges (JSON list of pairs) that answers to a key.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT chunks.chunk_id
FROM ranges CROSS JOIN document_keys JOIN chunks USING (document_id)
WHERE document_keys.key = :key AND chunks.position = 1
  AND chunks.chunk_id BETWEEN ranges.first AND ranges.last
ORDER BY chunks.chunk_id LIMIT :limit;

-- name: expressions_held
-- Which of some chunks (JSON list, all from :first to :last) hold each expression (JSON list); "+"
-- for the reason in keyword_hits_among.
SELECT matches.value, keyword_index.rowid
FROM json_each(:matches) AS matches CROSS JOIN keyword_index
WHERE keyword_index MATCH matches.value AND keyword_index.rowid BETWEEN :first AND :last
  AND +keyword_index.rowid IN (SELECT value FROM json_each(:chunk_ids));

-- name: chunk_scores
-- The bm25 scores of some chunks (JSON list) and of so many of some documents' (JSON list), each with
-- its document, for each expression, as expressions_held. All are of the collections from that of the
-- chunk or document :first to that of :last. Weights as in keyword_hits.
SELECT matches.value, keyword_index.rowid, chunks.document_id,
       bm25(keyword_index, :title, :heading, :body, :extra) AS score
FROM json_each(:matches) AS matches CROSS JOIN keyword_index
CROSS JOIN chunks ON chunks.chunk_id = keyword_index.rowid
WHERE keyword_index MATCH matches.value
  AND keyword_index.rowid BETWEEN :first >> 32 << 32 AND :last | 0xFFFFFFFF
  AND +keyword_index.rowid IN (
    SELECT value FROM json_each(:chunk_ids)
    UNION ALL SELECT * FROM (
      SELECT own.chunk_id FROM json_each(:document_ids) AS documents
      CROSS JOIN chunks AS own ON own.document_id = documents.value LIMIT :most));

-- name: texts_with_links
-- What the keyword index covers of those of some chunks (JSON list) whose document has links.
SELECT chunk_texts.chunk_id, title, heading, body, extra
FROM chunk_texts
WHERE chunk_texts.chunk_id IN (SELECT value FROM json_each(:chunk_ids))
  AND EXISTS (SELECT 1 FROM citations WHERE source_document_id = chunk_texts.document_id);

-- name: count_chunks_of
-- How many chunks each of these documents (JSON list of ids) has: its last one's position.
SELECT value, (SELECT max(position) FROM chunks WHERE document_id = value)
FROM json_each(:document_ids);
