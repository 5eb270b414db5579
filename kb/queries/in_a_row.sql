-- Statements of kb/search/in_a_row.py.

-- name: some_matching_chunk_ids
-- So many of the chunks of one range of ids that match.
SELECT rowid FROM keyword_index
WHERE keyword_index MATCH :match AND rowid BETWEEN :first AND :last LIMIT :limit;

-- name: indexed_texts
-- What the keyword index covers of some chunks (JSON list).
SELECT chunk_texts.chunk_id, title, heading, body, extra
FROM chunk_texts
WHERE chunk_texts.chunk_id IN (SELECT value FROM json_each(:chunk_ids));
