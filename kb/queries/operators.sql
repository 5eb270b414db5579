-- Statements of kb/search/operators.py.

-- name: chunk_ids_tagged
-- The chunks of some ranges (JSON list of pairs) whose documents have a tag, or a tag below it.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT chunk_id FROM ranges
CROSS JOIN document_keys
JOIN chunks USING (document_id)
WHERE (document_keys.key = :tag OR (document_keys.key > :below AND document_keys.key < :behind))
  AND chunks.chunk_id BETWEEN ranges.first AND ranges.last;

-- name: known_tags
-- The tags of the documents of some ranges (JSON list of pairs), each once.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT DISTINCT document_keys.key FROM ranges CROSS JOIN document_keys
WHERE document_keys.key >= 'tag:' AND document_keys.key < 'tag;'
  AND document_id BETWEEN ranges.first AND ranges.last
ORDER BY document_keys.key;
