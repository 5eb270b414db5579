-- Statements of kb/store/health.py.

-- name: check_keyword_index!
-- Compare the index of passages with their texts; it is an error when they differ.
INSERT INTO keyword_index (keyword_index, rank) VALUES ('integrity-check', 1);

-- name: sampled_chunks
-- So many chunks and one more of each collection (JSON list), at even distances, with all that
-- belongs to each.
WITH RECURSIVE
steps (step) AS (SELECT 0 UNION ALL SELECT step + 1 FROM steps WHERE step < :samples),
bounds (first, last) AS MATERIALIZED (
  SELECT
    value << 32,
    (SELECT max(chunk_id) FROM chunks
     WHERE chunk_id BETWEEN value << 32 AND (value << 32) + 4294967295)
  FROM json_each(:collection_ids)
),
sampled (chunk_id) AS MATERIALIZED (
  SELECT DISTINCT (
    SELECT chunk_id FROM chunks WHERE chunk_id >= first + (last - first) * step / :samples
    ORDER BY chunk_id LIMIT 1)
  FROM bounds CROSS JOIN steps WHERE last IS NOT NULL
)
SELECT
  chunk_id,
  -- Joined, the view would be made for all chunks: 11 s at a million.
  (SELECT body FROM chunk_texts WHERE chunk_texts.chunk_id = chunks.chunk_id) AS body,
  vector_id IS NULL OR length(vectors.vector) IS width AND is_current
    AND length(signs) = length(offsets) / 2 * ((width + 63) / 64 * 8) AS fits
FROM sampled CROSS JOIN chunks USING (chunk_id)
LEFT JOIN vectors USING (vector_id)
LEFT JOIN models USING (model_id)
LEFT JOIN vector_slabs ON slab_id = chunk_id >> 10;

-- name: is_indexed$
-- Whether the keyword index finds a chunk by a word.
SELECT EXISTS (
  SELECT 1 FROM keyword_index WHERE keyword_index MATCH :match AND rowid = :chunk_id);

-- name: quick_counts
-- Of documents, of passages, and of passages that the keyword index knows the lengths of.
SELECT
  (SELECT count(*) FROM documents),
  (SELECT count(*) FROM chunks),
  (SELECT count(*) FROM keyword_index_docsize);

-- name: rebuild_keyword_index!
-- Make the index of passages anew from their texts.
INSERT INTO keyword_index (keyword_index) VALUES ('rebuild');

-- name: rebuild_indexes!
-- Make the indexes of all tables anew.
REINDEX;

-- name: count_orphan_signatures$
-- Signatures of paragraphs that are gone.
SELECT count(*) FROM report_signatures
WHERE NOT EXISTS (
  SELECT 1 FROM report_paragraphs
  WHERE report_paragraphs.paragraph_id = report_signatures.paragraph_id);

-- name: delete_orphans!
-- Delete what belongs to rows that are gone, in the order in which rows belong to each other, and
-- forget links and vectors that are gone.
DELETE FROM documents
WHERE NOT EXISTS (
  SELECT 1 FROM collections WHERE collections.collection_id = documents.collection_id);
DELETE FROM file_states
WHERE NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = file_states.document_id);
DELETE FROM sections
WHERE NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = sections.document_id);
DELETE FROM chunks
WHERE NOT EXISTS (SELECT 1 FROM documents WHERE documents.document_id = chunks.document_id);
DELETE FROM citations
WHERE NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = citations.source_document_id);
UPDATE citations SET target_document_id = NULL
WHERE target_document_id IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = citations.target_document_id);
UPDATE chunks SET vector_id = NULL
WHERE vector_id IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM vectors WHERE vectors.vector_id = chunks.vector_id);
DELETE FROM document_vectors
WHERE NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = document_vectors.document_id);
DELETE FROM document_keys
WHERE NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = document_keys.document_id);
DELETE FROM report_paragraphs
WHERE NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = report_paragraphs.document_id);
DELETE FROM report_signatures
WHERE NOT EXISTS (
  SELECT 1 FROM report_paragraphs
  WHERE report_paragraphs.paragraph_id = report_signatures.paragraph_id);
DELETE FROM session_events
WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.session_id = session_events.session_id);

-- name: delete_misshapen_vectors!
-- Delete them, once no passage has them any more.
DELETE FROM vectors
WHERE length(vector) <> (SELECT width FROM models WHERE models.model_id = vectors.model_id)
  AND NOT EXISTS (SELECT 1 FROM chunks WHERE chunks.vector_id = vectors.vector_id);

-- name: forget_misshapen_vectors!
-- Passages that have them wait for a new one.
UPDATE chunks SET vector_id = NULL
WHERE vector_id IN (
  SELECT vector_id FROM vectors JOIN models USING (model_id) WHERE length(vector) <> width);

-- name: wrong_vectors
-- How many vectors, passages, parts of the vector index and documents are not as they should be.
SELECT
  -- Vectors that are not as wide as their model says.
  (SELECT count(*) FROM vectors JOIN models USING (model_id) WHERE length(vector) <> width),
  -- Passages whose vector another model made than the current one.
  (SELECT count(*) FROM chunks JOIN vectors USING (vector_id)
  WHERE vectors.model_id <> (SELECT model_id FROM models WHERE is_current)),
  -- Parts of the vector index that do not cover the vectors of their passages, or cover none.
  (SELECT count(*) FROM (
    SELECT chunk_id >> 10 AS slab_id, count(*) AS vectors
    FROM chunks WHERE vector_id IS NOT NULL GROUP BY 1) AS covered
  FULL JOIN vector_slabs USING (slab_id)
  WHERE length(offsets) IS NOT 2 * vectors
     OR length(signs) IS NOT vectors * ((:width + 63) / 64 * 8)),
  -- Documents of several vectors without a mean direction, or with one of another width.
  (SELECT count(*) FROM (
    SELECT document_id FROM chunks WHERE vector_id IS NOT NULL
    GROUP BY document_id HAVING count(*) > 1) AS several
  LEFT JOIN document_vectors USING (document_id)
  WHERE length(vector) IS NOT :width);

-- name: health_counts
-- What there is to be looked through.
SELECT
  (SELECT count(*) FROM documents) AS documents,
  (SELECT count(*) FROM chunks) AS passages,
  (SELECT count(*) FROM chunks WHERE vector_id IS NULL) AS waiting,
  (SELECT count(*) FROM vectors) AS vectors,
  (SELECT count(*) FROM vectors JOIN models USING (model_id)
   WHERE is_current AND NOT EXISTS (
     SELECT 1 FROM chunks WHERE chunks.vector_id = vectors.vector_id)) AS unused;

-- name: unreadable
-- Columns that hold what kb never writes there: no list, no object, no time, no count.
SELECT 'collections.include' FROM collections
WHERE CASE WHEN json_valid(include) THEN json_type(include) END IS NOT 'array'
UNION
SELECT 'collections.exclude' FROM collections
WHERE CASE WHEN json_valid(exclude) THEN json_type(exclude) END IS NOT 'array'
UNION
SELECT 'collections.options' FROM collections
WHERE CASE WHEN json_valid(options) THEN json_type(options) END IS NOT 'object'
UNION
SELECT 'documents.metadata' FROM documents
WHERE CASE WHEN json_valid(metadata) THEN json_type(metadata) END IS NOT 'object'
UNION
SELECT 'file_accesses.last_accessed_at' FROM file_accesses
WHERE strftime('%Y-%m-%dT%H:%M:%SZ', last_accessed_at) IS NOT last_accessed_at
UNION
SELECT 'file_accesses.access_count' FROM file_accesses WHERE access_count < 1;
