-- Statements of kb/store/sessions.py.

-- name: upsert_session!
-- Store a session, or how far it has come.
INSERT INTO sessions (session_id, client, started_at, last_active_at, ended_at)
VALUES (:session_id, :client, :started_at, :last_active_at, :ended_at)
ON CONFLICT (session_id)
DO UPDATE SET client = excluded.client, last_active_at = excluded.last_active_at,
              ended_at = excluded.ended_at;

-- name: insert_session_event!
-- Note what happened in a session.
INSERT INTO session_events (session_id, kind, tool, detail, happened_at)
VALUES (:session_id, :kind, :tool, :detail, :happened_at);

-- name: end_idle_sessions!
-- End the sessions whose server was killed.
UPDATE sessions SET ended_at = last_active_at
WHERE ended_at IS NULL AND last_active_at < :idle_since;

-- name: trim_sessions!
-- Keep the newest 500 sessions.
DELETE FROM sessions WHERE started_at < (
  SELECT started_at FROM sessions ORDER BY started_at DESC LIMIT 1 OFFSET 499);

-- name: trim_session_events!
-- Keep the newest 20,000 events.
DELETE FROM session_events
WHERE session_event_id <= (SELECT max(session_event_id) FROM session_events) - 20000;

-- name: count_access!
-- Count reads of a file, which are active again by that.
INSERT INTO file_accesses (path, module, token_count, access_count, last_accessed_at)
VALUES (:path, :module, :token_count, :reads, :last_accessed_at)
ON CONFLICT (path) DO UPDATE SET
  module = excluded.module, token_count = excluded.token_count,
  access_count = access_count + excluded.access_count,
  last_accessed_at = excluded.last_accessed_at, is_archived = 0;

-- name: file_accesses
-- Every file that was read.
SELECT path, module, token_count, access_count, last_accessed_at, is_archived
FROM file_accesses;

-- name: archive_file!
-- Take a file out of the active context, or back into it.
UPDATE file_accesses SET is_archived = :is_archived WHERE path = :path;
