-- Statements of kb/search/candidates.py.

-- name: chunk_bodies
-- The texts that each of these chunks (JSON list) is judged by; the first of a document with the
-- front matter, whose aliases and tags are indexed with it.
SELECT chunk_texts.chunk_id, chunk_texts.document_id, chunk_texts.title, heading, lead,
       CASE WHEN chunks.position = 1 THEN documents.metadata ELSE '{}' END, body
FROM chunk_texts JOIN chunks USING (chunk_id)
JOIN documents ON documents.document_id = chunk_texts.document_id
WHERE chunk_texts.chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: matching_chunk_ids
-- All chunks of one range of ids that match, unranked.
SELECT rowid FROM keyword_index
WHERE keyword_index MATCH :match AND rowid BETWEEN :first AND :last;

-- name: stems_of_other_words
-- Of these stems (JSON object: stem to how all its words begin), those that words without the
-- prefix have too.
SELECT DISTINCT stem
FROM json_each(:stems) CROSS JOIN vocabulary
  ON word >= json_each.value AND word < json_each.value || char(1114111) AND stem = json_each.key
WHERE NOT (word >= :prefix AND word < :after);
