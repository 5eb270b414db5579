-- Statements of the operators: the texts that candidates are judged by, and ranking within them.

-- name: chunk_bodies
-- The texts that each of these chunks (JSON list) is judged by.
SELECT chunk_id, document_id, title, heading, body FROM chunk_texts
WHERE chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: document_contents
-- The texts of these documents (JSON list).
SELECT document_id, path, title, metadata, content FROM documents
WHERE document_id IN (SELECT value FROM json_each(:document_ids)) ORDER BY document_id;

-- name: matching_document_ids
-- All documents of one range of ids that match, unranked.
SELECT rowid FROM document_index
WHERE document_index MATCH :match AND rowid BETWEEN :first AND :last;

-- name: chunk_places
-- Where the chunks of these documents (JSON list) lie in their text.
SELECT document_id, chunk_id, start_character, end_character FROM chunks
WHERE document_id IN (SELECT value FROM json_each(:document_ids))
ORDER BY document_id, position;

-- name: document_ids_of_chunks
-- Which document each of these chunks (JSON list) belongs to.
SELECT chunk_id, document_id FROM chunks
WHERE chunk_id IN (SELECT value FROM json_each(:chunk_ids));

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
