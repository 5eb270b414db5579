-- Statements of kb/store/session_history.py.

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
