-- Statements of kb/store/tidying.py.

-- name: keyword_segments
-- The segments of the keyword index with about as many pages as each has.
SELECT segid, count(*) FROM keyword_index_idx GROUP BY segid;

-- name: merge_keyword_index!
-- Merge some pages of the keyword index's segments.
INSERT INTO keyword_index (keyword_index, rank) VALUES ('merge', :pages);
