-- Statements of kb/store/collections.py.

-- name: update_collection_options!
-- Change the settings of a collection.
UPDATE collections SET options = :options WHERE collection_id = :collection_id;

-- name: collections
-- Every collection, by name; without counting its documents, which takes time in large ones.
SELECT
  collection_id, name, kind, source, include, exclude, options, description, version, project_id,
  synced_at,
  EXISTS (SELECT 1 FROM documents
          WHERE documents.collection_id = collections.collection_id) AS has_documents
FROM collections ORDER BY name;

-- name: collection_id$
-- A collection's id by its name.
SELECT collection_id FROM collections WHERE name = :name;

-- name: collection_name$
-- A collection's name by its id.
SELECT name FROM collections WHERE collection_id = :collection_id;

-- name: collection_names_from
-- Names of collections that begin with some letters, for a shell.
SELECT name FROM collections
WHERE substr(name, 1, length(:prefix)) = :prefix ORDER BY name LIMIT :limit;

-- name: insert_collection!
-- Register a collection.
INSERT INTO collections (name, kind, source, include, exclude, options, description, project_id,
                         created_at)
VALUES (:name, :kind, :source, :include, :exclude, :options, :description, :project_id,
        :created_at);

-- name: update_collection!
-- Change a collection.
UPDATE collections
SET kind = :kind, source = :source, include = :include, exclude = :exclude, options = :options,
    description = :description
WHERE collection_id = :collection_id;

-- name: update_source!
-- Say where the documents of a collection come from.
UPDATE collections SET source = :source WHERE collection_id = :collection_id;

-- name: finish_collection_sync!
-- Note the end of a complete sync, and what the source's manifest says; a NULL keeps what there is.
-- A source may be written in another way, unless it was changed meanwhile.
UPDATE collections
SET synced_at = :synced_at, version = coalesce(:version, version),
    description = coalesce(:description, description),
    source = CASE source WHEN :source THEN :shorter ELSE source END
WHERE collection_id = :collection_id;

-- name: delete_collection!
-- Delete a collection whose documents are gone already.
DELETE FROM collections WHERE collection_id = :collection_id;

-- name: index_by_name
-- A named index.
SELECT collection_id, name, options FROM collections WHERE name = :name AND kind = 'index';

-- name: index_names
-- The names of all indexes, to suggest near ones.
SELECT name FROM collections WHERE kind = 'index' ORDER BY name;

-- name: collection_marks
-- What copies of a file have in common, a row for each collection.
SELECT name, kind, source, options ->> 'shard', created_at FROM collections
WHERE project_id IS NULL ORDER BY name;
