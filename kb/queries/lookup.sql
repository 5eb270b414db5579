-- Statements of kb/search/lookup.py.

-- name: chunks_holding
-- Which of some chunks (JSON list, all from :first to :last) hold each expression (JSON list); "+"
-- for the reason in keyword_hits_among.
SELECT matches.value, keyword_index.rowid
FROM json_each(:matches) AS matches CROSS JOIN keyword_index
WHERE keyword_index MATCH matches.value AND keyword_index.rowid BETWEEN :first AND :last
  AND +keyword_index.rowid IN (SELECT value FROM json_each(:chunk_ids));

-- name: chunk_scores
-- The bm25 scores of some chunks (JSON list) and of so many of some documents' (JSON list), each with
-- its document, for each expression, as chunks_holding. Weights as in keyword_hits.
SELECT matches.value, keyword_index.rowid, chunks.document_id,
       bm25(keyword_index, :title, :heading, :body, :extra) AS score
FROM json_each(:matches) AS matches CROSS JOIN keyword_index
CROSS JOIN chunks ON chunks.chunk_id = keyword_index.rowid
WHERE keyword_index MATCH matches.value AND keyword_index.rowid BETWEEN :first AND :last
  AND +keyword_index.rowid IN (
    SELECT value FROM json_each(:chunk_ids)
    UNION ALL SELECT * FROM (
      SELECT own.chunk_id FROM json_each(:document_ids) AS documents
      CROSS JOIN chunks AS own ON own.document_id = documents.value LIMIT :most));
