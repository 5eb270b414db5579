-- Statements of kb/store/copies.py.

-- name: delete_all_events!
-- Forget what happened in sessions.
DELETE FROM session_events;

-- name: delete_all_sessions!
-- Forget the sessions.
DELETE FROM sessions;

-- name: delete_all_accesses!
-- Forget which files were read.
DELETE FROM file_accesses;

-- name: delete_all_calls!
-- Forget the calls of tools.
DELETE FROM tool_calls;

-- name: delete_all_tokens!
-- Forget whom a server answers.
DELETE FROM tokens;

-- name: detach_from_projects!
-- Let what belongs to a project belong to the file.
UPDATE collections SET project_id = NULL WHERE project_id IS NOT NULL;

-- name: delete_all_projects!
-- Forget the projects, which nothing belongs to any more.
DELETE FROM projects;

-- name: sources_as_kept
-- Each collection's source as it is written.
SELECT collection_id, name, source FROM collections WHERE source <> '' ORDER BY name;
