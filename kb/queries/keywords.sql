-- Statements of kb/search/keywords.py.

-- name: keyword_hits_among
-- As keyword_hits, of some chunks alone (JSON list). With a bare rowid the query would be run once
-- for each of them.
SELECT rowid AS chunk_id, bm25(keyword_index, :title, :heading, :body, :extra) AS rank
FROM keyword_index
WHERE keyword_index MATCH :match AND rowid BETWEEN :first AND :last
  AND +rowid IN (SELECT value FROM json_each(:chunk_ids))
ORDER BY rank, chunk_id LIMIT :limit;

-- name: keyword_hits_except
-- As keyword_hits, without some chunks (JSON list).
SELECT rowid AS chunk_id, bm25(keyword_index, :title, :heading, :body, :extra) AS rank
FROM keyword_index
WHERE keyword_index MATCH :match AND rowid BETWEEN :first AND :last
  AND +rowid NOT IN (SELECT value FROM json_each(:chunk_ids))
ORDER BY rank, chunk_id LIMIT :limit;

-- name: keyword_hits
-- Chunks of one range of ids that match, best first. Weights: title, heading, body, extra.
SELECT rowid AS chunk_id, bm25(keyword_index, :title, :heading, :body, :extra) AS rank
FROM keyword_index
WHERE keyword_index MATCH :match AND rowid BETWEEN :first AND :last
ORDER BY rank, chunk_id LIMIT :limit;

-- name: keyword_hits_by_known_words
-- As keyword_hits, where the weights of the expression's words (JSON list) are known.
SELECT rowid AS chunk_id, known_bm25(keyword_index, :idf, :title, :heading, :body, :extra) AS rank
FROM keyword_index
WHERE keyword_index MATCH :match AND rowid BETWEEN :first AND :last
ORDER BY rank, chunk_id LIMIT :limit;
