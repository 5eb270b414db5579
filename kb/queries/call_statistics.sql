-- Statements of kb/store/call_statistics.py.

-- name: tool_call_durations
-- How each call ended and how long it took.
SELECT tool, code, duration_ms FROM tool_calls;
