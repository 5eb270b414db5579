-- Statements of kb/search/filters.py.

-- name: documents_dated
-- The documents of some ranges (JSON list of pairs) whose date lies between two.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT document_id FROM ranges CROSS JOIN document_keys
WHERE key >= 'date:' || :since AND key < 'date:' || :until AND document_id BETWEEN ranges.first AND ranges.last;

-- name: documents_tagged
-- The documents of some ranges (JSON list of pairs) that have a tag, or a tag below it.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT document_id FROM ranges CROSS JOIN document_keys
WHERE (key = :tag OR (key > :below AND key < :behind))
  AND document_id BETWEEN ranges.first AND ranges.last;

-- name: documents_with_metadata
-- The documents of some ranges (JSON list of pairs) whose metadata has one of some values (JSON list)
-- under a key, alone or in a list.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT document_id
FROM ranges CROSS JOIN documents ON document_id BETWEEN ranges.first AND ranges.last
JOIN json_each(metadata) AS field ON field.key = :key
WHERE EXISTS (
  SELECT 1 FROM json_tree(metadata, field.fullkey) AS node
  WHERE CASE WHEN node.type IN ('true', 'false') THEN node.type ELSE CAST(node.atom AS TEXT) END
    IN (SELECT value FROM json_each(:alternatives)));

-- name: paths_of_range
-- The paths of the documents of one range of ids.
SELECT document_id, collection_id, path FROM documents WHERE document_id BETWEEN :first AND :last;

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
