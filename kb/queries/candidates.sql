-- Statements of kb/search/candidates.py.

-- name: chunk_bodies
-- The texts that each of these chunks (JSON list) is judged by.
SELECT chunk_id, document_id, title, heading, body FROM chunk_texts
WHERE chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: matching_document_ids
-- All documents of one range of ids that match, unranked.
SELECT rowid FROM document_index
WHERE document_index MATCH :match AND rowid BETWEEN :first AND :last;

-- name: matching_chunk_ids
-- All chunks of one range of ids that match, unranked.
SELECT rowid FROM keyword_index
WHERE keyword_index MATCH :match AND rowid BETWEEN :first AND :last;

-- name: stems_of_other_words
-- Of these stems (JSON list), those that words without the prefix have too.
SELECT DISTINCT stem FROM vocabulary
WHERE stem IN (SELECT value FROM json_each(:stems))
  AND NOT (word >= :prefix AND word < :after);
