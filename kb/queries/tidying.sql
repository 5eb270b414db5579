-- Statements of kb/store/tidying.py.

-- name: keyword_segments
-- The segments of the keyword index with about as many pages as each has.
SELECT segid, count(*) FROM keyword_index_idx GROUP BY segid;

-- name: merge_keyword_index!
-- Merge some pages of the keyword index's segments.
INSERT INTO keyword_index (keyword_index, rank) VALUES ('merge', :pages);

-- name: leaf_pages$
-- How many pages of a table hold rows.
SELECT count(*) FROM dbstat WHERE name = :table AND pagetype = 'leaf';

-- name: document_sizes
-- The bytes of each document's row, but for its numbers.
SELECT
  octet_length(path) + octet_length(title) + octet_length(summary) + octet_length(metadata)
  + octet_length(content_hash) + octet_length(encoding) + octet_length(indexed_at)
  + octet_length(content)
FROM documents ORDER BY document_id;

-- name: chunk_sizes
-- The bytes of each chunk's row, but for its numbers.
SELECT octet_length(extra_terms) + octet_length(text_hash)
FROM chunks ORDER BY chunk_id;
