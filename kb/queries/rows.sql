-- Statements of kb/search/rows.py.

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
  (SELECT substr(key, 6) FROM document_keys
   WHERE document_keys.document_id = documents.document_id
     AND key BETWEEN 'date:' AND 'date;') AS date,
  chunk_texts.heading AS heading_path,
  (SELECT heading FROM sections
   WHERE sections.document_id = chunks.document_id AND position = chunks.section) AS heading,
  CASE WHEN chunk_texts.lead = '' THEN chunk_texts.body
    ELSE chunk_texts.lead || char(10) || chunk_texts.body END AS content,
  chunks.position,
  (SELECT count(*) FROM chunks AS siblings
   WHERE siblings.document_id = chunks.document_id) AS chunk_count,
  chunks.start_line,
  chunks.end_line,
  EXISTS (SELECT 1 FROM places WHERE places.document_id = documents.document_id) AS has_origins
FROM chunks
JOIN chunk_texts USING (chunk_id)
JOIN documents ON documents.document_id = chunks.document_id
JOIN collections USING (collection_id)
WHERE chunks.chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: documents_by_hash
-- All documents that come from a source, with what tells copies.
SELECT collections.name, path, content_hash FROM documents JOIN collections USING (collection_id)
WHERE source != '' AND length(content_hash) > 0 ORDER BY 1, 2;
