-- Statements of kb/search/occurrences.py.

-- name: matching_document_ids
-- For each expression (JSON list) the documents with a chunk in some ranges (JSON list of pairs) that
-- matches it.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges))
SELECT DISTINCT matches.value, chunks.document_id
FROM json_each(:matches) AS matches CROSS JOIN ranges
CROSS JOIN keyword_index CROSS JOIN chunks ON chunks.chunk_id = keyword_index.rowid
WHERE keyword_index MATCH matches.value
  AND keyword_index.rowid BETWEEN ranges.first AND ranges.last;

-- name: stems_of_other_words
-- Of these stems (JSON object: stem to how all its words begin), those that words without the
-- prefix have too.
SELECT DISTINCT stem
FROM json_each(:stems) CROSS JOIN vocabulary
  ON word >= json_each.value AND word < json_each.value || char(1114111) AND stem = json_each.key
WHERE NOT (word >= :prefix AND word < :after);

-- name: chunk_borders
-- Of each of these chunks (JSON list) its document, and where it and the next one begin there.
SELECT document_id, start_character, coalesce(
  (SELECT start_character FROM chunks AS next
   WHERE next.document_id = chunks.document_id AND next.position = chunks.position + 1),
  start_character)
FROM chunks WHERE chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: chunks_overlapping
-- The chunks of a document that hold some of its text from a character to another.
SELECT chunk_id FROM chunks
WHERE document_id = :document_id AND start_character < :end AND end_character > :start;

-- name: chunks_with_words_apart
-- The chunks of some ranges (JSON list of pairs) that match, and whose extra terms may be one of some
-- words (JSON list, folded): those of other letters than ASCII are not looked through.
WITH
ranges (first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(:ranges)),
words (word) AS MATERIALIZED (SELECT value FROM json_each(:words))
SELECT chunk_id FROM ranges CROSS JOIN keyword_index CROSS JOIN chunks
  ON chunk_id = keyword_index.rowid
WHERE keyword_index MATCH :match AND keyword_index.rowid BETWEEN ranges.first AND ranges.last
  AND extra_terms <> ''
  AND (extra_terms GLOB '*[^ -~' || char(10) || ']*'
       OR EXISTS (SELECT 1 FROM words WHERE instr(lower(extra_terms), word)));
