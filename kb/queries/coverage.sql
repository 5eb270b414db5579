-- Statements of kb/search/coverage.py.

-- name: chunks_holding
-- Of each expression (JSON list): in how many chunks it is, counted to a limit, and in which of
-- some (JSON list), as a JSON list of both.
SELECT
  matches.value,
  (SELECT json_array(
     count(*),
     json_group_array(chunk_id) FILTER (
       WHERE chunk_id IN (SELECT value FROM json_each(:row_ids))))
   FROM (SELECT rowid AS chunk_id FROM keyword_index
         WHERE keyword_index MATCH matches.value LIMIT :limit))
FROM json_each(:matches) AS matches;

-- name: documents_counted
-- Of each expression (JSON list): in how many documents it is, counted to a limit.
SELECT
  matches.value,
  (SELECT count(*)
   FROM (SELECT 1 FROM document_index WHERE document_index MATCH matches.value LIMIT :limit))
FROM json_each(:matches) AS matches;

-- name: count_all_chunks$
-- How many chunks the file holds.
SELECT count(*) FROM chunks;

-- name: count_all_documents$
-- How many documents the file holds.
SELECT count(*) FROM documents;
