-- Statements of kb/search/keywords.py. Ranges are read once: as JSON they would be for every row.

-- name: keyword_hits_among
-- As keyword_hits, of some chunks alone (JSON list). With a bare rowid the query would be run once
-- for each of them.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT keyword_index.rowid AS chunk_id, bm25(keyword_index, :title, :heading, :body, :extra) AS rank
FROM ranges CROSS JOIN keyword_index
WHERE keyword_index MATCH :match
  AND keyword_index.rowid BETWEEN ranges.first AND ranges.last
  AND +keyword_index.rowid IN (SELECT value FROM json_each(:chunk_ids))
ORDER BY rank, chunk_id LIMIT :limit;

-- name: keyword_hits_except
-- As keyword_hits, without some chunks (JSON list).
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT chunk_id, rank FROM (
  SELECT keyword_index.rowid AS chunk_id, bm25(keyword_index, :title, :heading, :body, :extra) AS rank
  FROM ranges CROSS JOIN keyword_index
  WHERE keyword_index MATCH :match
    AND keyword_index.rowid BETWEEN ranges.first AND ranges.last
    AND +keyword_index.rowid NOT IN (SELECT value FROM json_each(:chunk_ids))
  LIMIT :most)
ORDER BY rank, chunk_id LIMIT :limit;

-- name: keyword_hits
-- Chunks of some ranges of ids (JSON list of pairs) that match, best first, of the first :most that
-- match. Weights: title, heading, body, extra.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT chunk_id, rank FROM (
  SELECT keyword_index.rowid AS chunk_id, bm25(keyword_index, :title, :heading, :body, :extra) AS rank
  FROM ranges CROSS JOIN keyword_index
  WHERE keyword_index MATCH :match
    AND keyword_index.rowid BETWEEN ranges.first AND ranges.last
  LIMIT :most)
ORDER BY rank, chunk_id LIMIT :limit;

-- name: keyword_hits_by_known_words
-- As keyword_hits, where the weights of the expression's words (JSON list) are known.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT keyword_index.rowid AS chunk_id, bm25_of_weights(keyword_index, :idf, :title, :heading, :body, :extra) AS rank
FROM ranges CROSS JOIN keyword_index
WHERE keyword_index MATCH :match
  AND keyword_index.rowid BETWEEN ranges.first AND ranges.last
ORDER BY rank, chunk_id LIMIT :limit;
