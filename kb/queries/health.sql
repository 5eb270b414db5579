-- Statements of kb/store/health.py.

-- name: check_keyword_index!
-- Compare the index of passages with their texts; it is an error when they differ.
INSERT INTO keyword_index (keyword_index, rank) VALUES ('integrity-check', 1);

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

-- name: delete_orphan_documents!
-- Delete documents whose collection is gone.
DELETE FROM documents
WHERE NOT EXISTS (
  SELECT 1 FROM collections WHERE collections.collection_id = documents.collection_id);

-- name: delete_orphan_sections!
-- Delete headings whose document is gone.
DELETE FROM sections
WHERE NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = sections.document_id);

-- name: delete_orphan_chunks!
-- Delete passages whose document is gone.
DELETE FROM chunks
WHERE NOT EXISTS (SELECT 1 FROM documents WHERE documents.document_id = chunks.document_id);

-- name: delete_orphan_citations!
-- Delete links whose document is gone.
DELETE FROM citations
WHERE NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = citations.source_document_id);

-- name: forget_orphan_targets!
-- Links to documents that are gone lead nowhere.
UPDATE citations SET target_document_id = NULL
WHERE target_document_id IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = citations.target_document_id);

-- name: forget_orphan_vectors!
-- Passages whose vector is gone wait for a new one.
UPDATE chunks SET vector_id = NULL
WHERE vector_id IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM vectors WHERE vectors.vector_id = chunks.vector_id);

-- name: delete_orphan_document_vectors!
-- Delete the mean directions of documents that are gone.
DELETE FROM document_vectors
WHERE NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = document_vectors.document_id);

-- name: delete_orphan_keys!
-- Delete the names of documents that are gone.
DELETE FROM document_keys
WHERE NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = document_keys.document_id);

-- name: delete_orphan_paragraphs!
-- Delete paragraphs of reports that are gone.
DELETE FROM report_paragraphs
WHERE NOT EXISTS (
  SELECT 1 FROM documents WHERE documents.document_id = report_paragraphs.document_id);

-- name: delete_orphan_signatures!
-- Delete signatures of paragraphs that are gone.
DELETE FROM report_signatures
WHERE NOT EXISTS (
  SELECT 1 FROM report_paragraphs
  WHERE report_paragraphs.paragraph_id = report_signatures.paragraph_id);

-- name: delete_orphan_events!
-- Delete events of sessions that are gone.
DELETE FROM session_events
WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.session_id = session_events.session_id);

-- name: count_misshapen_vectors$
-- Vectors that are not as wide as their model says.
SELECT count(*) FROM vectors JOIN models USING (model_id) WHERE length(vector) <> width;

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

-- name: count_chunks_of_other_models$
-- Passages whose vector another model made than the current one.
SELECT count(*) FROM chunks JOIN vectors USING (vector_id)
WHERE vectors.model_id <> (SELECT model_id FROM models WHERE is_current);

-- name: count_wrong_slabs$
-- Parts of the vector index that do not cover the vectors of their passages, or cover none.
SELECT count(*) FROM (
  SELECT chunk_id >> 10 AS slab_id, count(*) AS vectors
  FROM chunks WHERE vector_id IS NOT NULL GROUP BY 1) AS covered
FULL JOIN vector_slabs USING (slab_id)
WHERE length(offsets) IS NOT 2 * vectors
   OR length(signs) IS NOT vectors * ((:width + 63) / 64 * 8);

-- name: count_wrong_document_vectors$
-- Documents of several vectors without a mean direction, or with one of another width.
SELECT count(*) FROM (
  SELECT document_id FROM chunks WHERE vector_id IS NOT NULL
  GROUP BY document_id HAVING count(*) > 1) AS several
LEFT JOIN document_vectors USING (document_id)
WHERE length(vector) IS NOT :width;

-- name: health_counts
-- What there is to be looked through.
SELECT
  (SELECT count(*) FROM documents) AS documents,
  (SELECT count(*) FROM chunks) AS chunks,
  (SELECT count(*) FROM chunks WHERE vector_id IS NULL) AS waiting,
  (SELECT count(*) FROM vectors) AS vectors;

-- name: unreadable_values
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
