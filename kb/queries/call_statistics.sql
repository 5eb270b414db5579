-- Statements of kb/store/call_statistics.py.

-- name: tool_call_durations
-- The calls of each tool, the fastest first.
SELECT tool, code, duration_ms FROM tool_calls ORDER BY tool, duration_ms;
