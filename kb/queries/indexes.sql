-- Statements of kb/store/indexes.py.

-- name: index_by_name
-- A named index.
SELECT collection_id, name, options FROM collections WHERE name = :name AND kind = 'index';

-- name: index_names
-- The names of all indexes, to suggest near ones.
SELECT name FROM collections WHERE kind = 'index' ORDER BY name;
