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
-- Every file that was read, but for counts and times that kb never writes.
SELECT path, module, token_count, access_count, last_accessed_at, is_archived
FROM file_accesses
WHERE access_count > 0
  AND strftime('%Y-%m-%dT%H:%M:%SZ', last_accessed_at) IS last_accessed_at;

-- name: archive_file!
-- Take a file out of the active context, or back into it.
UPDATE file_accesses SET is_archived = :is_archived WHERE path = :path;

-- name: all_session_details
-- Every question, path and id of a discovery that is noted of sessions.
SELECT session_event_id, detail FROM session_events;

-- name: delete_session_events!
-- Delete what is noted of sessions (JSON list of ids).
DELETE FROM session_events
WHERE session_event_id IN (SELECT value FROM json_each(:session_event_ids));

-- name: recent_sessions
-- The newest sessions with the numbers of what happened in them.
SELECT
  session_id AS id, client, started_at AS startedAt, last_active_at AS lastActiveAt,
  ended_at AS endedAt,
  (SELECT count(DISTINCT detail) FROM session_events
   WHERE session_events.session_id = sessions.session_id AND kind = 'read') AS filesRead,
  (SELECT count(*) FROM session_events
   WHERE session_events.session_id = sessions.session_id AND kind = 'query') AS queries,
  (SELECT count(*) FROM session_events
   WHERE session_events.session_id = sessions.session_id AND kind = 'discovery') AS discoveries
FROM sessions ORDER BY started_at DESC, session_id LIMIT :limit;

-- name: session_files
-- The files a session read, most often read first.
SELECT detail AS path, count(*) AS reads, max(happened_at) AS lastRead
FROM session_events WHERE session_id = :session_id AND kind = 'read'
GROUP BY detail ORDER BY reads DESC, path LIMIT :limit;

-- name: session_details
-- The newest queries or discoveries of a session.
SELECT tool, detail, happened_at FROM session_events
WHERE session_id = :session_id AND kind = :kind ORDER BY session_event_id DESC LIMIT :limit;

-- name: insert_tool_call!
-- Count a call.
INSERT INTO tool_calls (tool, code, duration_ms, result_characters, called_at)
VALUES (:tool, :code, :duration_ms, :result_characters, :called_at);

-- name: trim_tool_calls!
-- Keep the newest 10,000 calls.
DELETE FROM tool_calls
WHERE tool_call_id <= (SELECT max(tool_call_id) FROM tool_calls) - 10000;

-- name: tool_call_durations
-- How each call ended and how long it took.
SELECT tool, code, duration_ms FROM tool_calls;
