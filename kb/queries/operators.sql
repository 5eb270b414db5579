-- Statements of kb/search/operators.py.

-- name: chunk_ids_tagged
-- The chunks of a range whose documents have a tag, or a tag below it.
SELECT chunk_id FROM document_keys
JOIN chunks USING (document_id)
WHERE (document_keys.key = :tag OR (document_keys.key > :below AND document_keys.key < :behind))
  AND chunks.chunk_id BETWEEN :first AND :last;

-- name: known_tags
-- The tags of the documents of a range, each once.
SELECT DISTINCT key FROM document_keys
WHERE key >= 'tag:' AND key < 'tag;' AND document_id BETWEEN :first AND :last ORDER BY key;
