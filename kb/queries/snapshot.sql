-- Statements of kb/search/snapshot.py.

-- name: count_holding
-- In how many chunks each expression (JSON list) is, counted to a limit.
SELECT
  matches.value,
  (SELECT count(*)
   FROM (SELECT 1 FROM keyword_index WHERE keyword_index MATCH matches.value LIMIT :limit))
FROM json_each(:matches) AS matches;

-- name: count_holding_between
-- As count_holding, of the chunks of one range of ids.
SELECT
  matches.value,
  (SELECT count(*)
   FROM (SELECT 1 FROM keyword_index
         WHERE keyword_index MATCH matches.value AND rowid BETWEEN :first AND :last LIMIT :limit))
FROM json_each(:matches) AS matches;

-- name: count_chunks_between$
-- How many chunks a range of ids holds, counted to a limit.
SELECT count(*)
FROM (SELECT 1 FROM chunks WHERE chunk_id BETWEEN :first AND :last LIMIT :limit);

-- name: pages_behind_terms
-- For each of some terms (JSON object: term to the last one of interest) how many pages of the keyword
-- index lie between that on which it begins, or would begin, and the next behind the last on which a
-- term begins. The index lies in segments; in
-- each is known of every page on which terms begin what tells the first of them from that before.
WITH RECURSIVE
segments (segid) AS (
  SELECT min(segid) FROM keyword_index_idx
  UNION ALL
  SELECT (SELECT min(segid) FROM keyword_index_idx WHERE keyword_index_idx.segid > segments.segid)
  FROM segments WHERE segid IS NOT NULL
)
SELECT
  terms.key,
  coalesce(sum(
    (SELECT pgno / 2 FROM keyword_index_idx
     WHERE keyword_index_idx.segid = segments.segid AND term > CAST('0' || terms.value AS BLOB)
     ORDER BY term LIMIT 1)
    - (SELECT pgno / 2 FROM keyword_index_idx
       WHERE keyword_index_idx.segid = segments.segid AND term <= CAST('0' || terms.key AS BLOB)
       ORDER BY term DESC LIMIT 1)
    - 1
  ), 0)
FROM json_each(:terms) AS terms CROSS JOIN segments
GROUP BY terms.key;

-- name: middle_of_longest_collection$
-- The id in the middle of those of a collection, of that with the most ids.
SELECT (first + last) / 2
FROM (
  SELECT
    collection_id << 32 AS first,
    (SELECT max(chunk_id) FROM chunks
     WHERE chunk_id BETWEEN collection_id << 32 AND (collection_id << 32) + 4294967295) AS last
  FROM collections
)
ORDER BY last - first DESC LIMIT 1;

-- name: count_all_chunks$
-- How many chunks the file holds.
SELECT count(*) FROM chunks;

-- name: count_all_documents$
-- How many documents the file holds.
SELECT count(*) FROM documents;
