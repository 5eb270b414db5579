-- Statements of kb/store/keyword_index.py.

-- name: merge_keyword_segments!
-- Merge the keyword index into one segment, which drops the terms of what was deleted.
INSERT INTO keyword_index (keyword_index) VALUES ('optimize');

-- name: passages_of_document
-- All that the keyword index takes of a document's passages.
SELECT title, heading, body, extra FROM chunk_texts WHERE document_id = :document_id;

-- name: passages_with
-- What passages with a word say, whatever form it has; of many the first.
SELECT title, heading, body, extra FROM keyword_index WHERE keyword_index MATCH :query LIMIT 1000;
