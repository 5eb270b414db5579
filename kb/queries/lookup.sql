-- Statements of kb/search/lookup.py.

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

-- name: chunk_scores
-- The bm25 scores of some chunks (JSON list) for each expression (JSON list). Weights as in
-- keyword_hits; "+" for the reason in keyword_hits_among.
SELECT matches.value, keyword_index.rowid,
       bm25(keyword_index, :title, :heading, :body, :extra) AS score
FROM json_each(:matches) AS matches CROSS JOIN keyword_index
WHERE keyword_index MATCH matches.value
  AND +keyword_index.rowid IN (SELECT value FROM json_each(:chunk_ids));

-- name: count_all_chunks$
-- How many chunks the file holds.
SELECT count(*) FROM chunks;

-- name: count_all_documents$
-- How many documents the file holds.
SELECT count(*) FROM documents;
