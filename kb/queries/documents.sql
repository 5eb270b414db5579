-- Statements of the documents tools and of the command line's browsing.

-- name: collections
-- Every collection, by name; without counting its documents, which takes time in large ones.
SELECT
  collection_id, name, kind, source, include, exclude, options, description, version, project_id,
  synced_at,
  EXISTS (SELECT 1 FROM documents
          WHERE documents.collection_id = collections.collection_id) AS has_documents
FROM collections ORDER BY name;

-- name: count_collections$
-- How many collections there are, of every kind.
SELECT count(*) FROM collections;

-- name: collection_id$
-- A collection's id by its name.
SELECT collection_id FROM collections WHERE name = :name;

-- name: collection_documents
-- One page of a collection's documents, by id.
SELECT path AS id, title, character_count AS size
FROM documents WHERE collection_id = :collection_id
ORDER BY path LIMIT :limit OFFSET :offset;

-- name: count_documents$
-- How many documents a collection holds.
SELECT count(*) FROM documents WHERE collection_id = :collection_id;

-- name: document_paths
-- The ids of a collection's documents, to suggest near ones.
SELECT path FROM documents WHERE collection_id = :collection_id ORDER BY path;

-- name: document
-- A document with its text.
SELECT document_id, path, title, summary, metadata, line_count, content
FROM documents WHERE collection_id = :collection_id AND path = :path;

-- name: document_sections
-- A document's headings in order.
SELECT
  position, level, heading, heading_path, start_line, end_line, body_end_line,
  (SELECT kind FROM places
   WHERE places.document_id = sections.document_id AND places.start_line <= sections.start_line
   ORDER BY places.start_line DESC LIMIT 1) AS place_kind,
  (SELECT label FROM places
   WHERE places.document_id = sections.document_id AND places.start_line <= sections.start_line
   ORDER BY places.start_line DESC LIMIT 1) AS place_label,
  NULL AS last_place_label
FROM sections WHERE document_id = :document_id ORDER BY position;

-- name: places_of_lines
-- Where the first and the last of some lines of a document stand in its file.
SELECT
  (SELECT kind FROM places
   WHERE document_id = :document_id AND start_line <= :start_line
   ORDER BY start_line DESC LIMIT 1) AS place_kind,
  (SELECT label FROM places
   WHERE document_id = :document_id AND start_line <= :start_line
   ORDER BY start_line DESC LIMIT 1) AS place_label,
  (SELECT label FROM places
   WHERE document_id = :document_id AND start_line <= :end_line
   ORDER BY start_line DESC LIMIT 1) AS last_place_label;

-- name: status_counts
-- The sizes that `kb status` prints.
SELECT
  (SELECT count(*) FROM collections) AS collections,
  (SELECT count(*) FROM documents) AS documents,
  (SELECT coalesce(sum(character_count), 0) FROM documents) AS characters,
  (SELECT count(*) FROM chunks) AS chunks,
  (SELECT count(vector_id) FROM chunks) AS embedded_chunks,
  (SELECT count(*) FROM vectors) AS vectors;

-- name: collection_names_from
-- Names of collections that begin with some letters, for a shell.
SELECT name FROM collections
WHERE substr(name, 1, length(:prefix)) = :prefix ORDER BY name LIMIT :limit;

-- name: document_paths_from
-- Ids of documents, of one collection if it is named, that begin with some letters, for a shell.
SELECT DISTINCT path FROM documents JOIN collections USING (collection_id)
WHERE (:collection = '' OR name = :collection)
  AND substr(path, 1, length(:prefix)) = :prefix
ORDER BY path LIMIT :limit;
