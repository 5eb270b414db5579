-- Statements of kb/store/places.py.

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
