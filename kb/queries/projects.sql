-- Statements of kb/store/projects.py.

-- name: upsert_project!
-- Note that a project on one branch in one folder is active now.
INSERT INTO projects (name, branch, path_hash, root, activated_at)
VALUES (:name, :branch, :path_hash, :root, :activated_at)
ON CONFLICT (name, branch, path_hash)
DO UPDATE SET root = excluded.root, activated_at = excluded.activated_at;

-- name: find_project$
-- The id of a project on one branch in one folder.
SELECT project_id FROM projects
WHERE name = :name AND branch = :branch AND path_hash = :path_hash;

-- name: projects
-- Every project on each branch and in each folder where it was activated.
SELECT project_id, branch, path_hash, root FROM projects ORDER BY root;

-- name: external_collection
-- The external documentation of a project.
SELECT collection_id, name, kind, source, include, exclude, options, description, version,
       project_id, synced_at
FROM collections WHERE project_id = :project_id AND kind = 'external';

-- name: external_documents
-- What is shown of the documents of these chunks (JSON list).
SELECT chunks.chunk_id, documents.document_id, documents.path, documents.title, documents.summary,
       documents.character_count, chunks.start_line, chunks.end_line,
       (SELECT substr(key, 6) FROM document_keys
        WHERE document_keys.document_id = documents.document_id
          AND key BETWEEN 'date:' AND 'date;') AS date
FROM chunks JOIN documents USING (document_id)
WHERE chunks.chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: project_roots
-- The folders in which projects of a name were activated.
SELECT DISTINCT path_hash, root FROM projects WHERE name = :name;

-- name: move_project!
-- A project, on all its branches, lies in another folder now.
UPDATE projects SET path_hash = :path_hash, root = :root
WHERE name = :name AND path_hash = :old_hash;

-- name: move_external_collections!
-- Name the external documentation of a moved project as it would be named there.
UPDATE collections SET name = replace(name, :old_hash, :path_hash)
WHERE project_id IN (SELECT project_id FROM projects WHERE name = :name AND path_hash = :path_hash);
