-- Statements of kb/store/calls.py.

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
