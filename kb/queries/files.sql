-- Statements of kb/search/files.py.

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

-- name: chunk_bodies
-- The texts that each of these chunks (JSON list) is judged by; the first of a document with the
-- front matter, whose aliases and tags are indexed with it.
SELECT chunk_texts.chunk_id, chunk_texts.document_id, chunk_texts.title, heading, lead,
       CASE WHEN chunks.position = 1 THEN documents.metadata ELSE '{}' END, body
FROM chunk_texts JOIN chunks USING (chunk_id)
JOIN documents ON documents.document_id = chunk_texts.document_id
WHERE chunk_texts.chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: matching_chunk_ids
-- Chunks of some ranges of ids (JSON list of pairs) that match, unranked; -1 for all.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT keyword_index.rowid FROM ranges CROSS JOIN keyword_index
WHERE keyword_index MATCH :match
  AND keyword_index.rowid BETWEEN ranges.first AND ranges.last LIMIT :limit;

-- name: known_stems
-- Of these stems (JSON object: stem to how all its words begin), those of words that were ever stored.
SELECT stems.key FROM json_each(:stems) AS stems
WHERE EXISTS (
  SELECT 1 FROM vocabulary
  WHERE word >= stems.value AND word < stems.value || char(1114111) AND stem = stems.key);
