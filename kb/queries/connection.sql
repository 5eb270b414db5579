-- Statements of kb/store/connection.py.

-- name: vector_extension_version$
-- The version of sqlite-vec.
SELECT vec_version();

-- name: refresh_keyword_index
-- Any question makes this connection's FTS5 see what others have merged.
SELECT rowid FROM keyword_index WHERE keyword_index MATCH 'a' LIMIT 1;
