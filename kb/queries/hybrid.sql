-- Statements of kb/search/hybrid.py.

-- name: keyword_hits_among
-- As keyword_hits, of some chunks alone (JSON list). With a bare rowid the query would be run once
-- for each of them.
SELECT rowid AS chunk_id, bm25(keyword_index, :title, :heading, :body, :extra) AS rank
FROM keyword_index
WHERE keyword_index MATCH :match AND rowid BETWEEN :first AND :last
  AND +rowid IN (SELECT value FROM json_each(:chunk_ids))
ORDER BY rank, chunk_id LIMIT :limit;

-- name: keyword_hits_except
-- As keyword_hits, without some chunks (JSON list).
SELECT rowid AS chunk_id, bm25(keyword_index, :title, :heading, :body, :extra) AS rank
FROM keyword_index
WHERE keyword_index MATCH :match AND rowid BETWEEN :first AND :last
  AND +rowid NOT IN (SELECT value FROM json_each(:chunk_ids))
ORDER BY rank, chunk_id LIMIT :limit;

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

-- name: candidates
-- Of each of these chunks (JSON list): its document, the cosine distances of the query's vector
-- (int8; NULL when there is none) to the chunk and to the mean of its document, its
-- title and how it begins.
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
  documents.title || ' ' || documents.summary AS beginning
FROM chunks
JOIN documents ON documents.document_id = chunks.document_id
LEFT JOIN vectors USING (vector_id)
LEFT JOIN document_vectors ON document_vectors.document_id = chunks.document_id
WHERE chunks.chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: hit_rows
-- What is shown of each of these chunks (JSON list).
SELECT
  chunks.chunk_id,
  documents.document_id,
  documents.collection_id,
  collections.name AS collection,
  documents.path AS document,
  json_extract(documents.metadata, '$.archive.urls[0]') AS own_url,
  json_extract(collections.options, '$.base_url') AS base_url,
  documents.title,
  chunks.heading_path,
  (SELECT heading FROM sections
   WHERE sections.document_id = chunks.document_id AND sections.start_line <= chunks.end_line
     AND sections.heading_path = chunks.heading_path
   ORDER BY position DESC LIMIT 1) AS heading,
  CASE WHEN chunk_texts.lead = '' THEN chunk_texts.body
    ELSE chunk_texts.lead || char(10) || chunk_texts.body END AS content,
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
