-- Statements of kb/store/connection.py.

-- name: vector_extension_version$
-- The version of sqlite-vec.
SELECT vec_version();
