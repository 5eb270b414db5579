-- Statements of kb/store/similar.py.

-- name: paragraphs_of_report
-- The paragraphs of a report with their words.
SELECT paragraph_id, words FROM report_paragraphs WHERE document_id = :document_id;

-- name: delete_report_signatures!
-- Delete the numbers (JSON list) by which a paragraph is found.
DELETE FROM report_signatures
WHERE paragraph_id = :paragraph_id AND signature IN (SELECT value FROM json_each(:signatures));

-- name: delete_report_paragraphs!
-- Delete the paragraphs of a report.
DELETE FROM report_paragraphs WHERE document_id = :document_id;

-- name: delete_similar_citations!
-- Delete the implicit citations from a report and to it.
DELETE FROM citations
WHERE kind = 'similar'
  AND (source_document_id = :document_id OR target_document_id = :document_id);

-- name: insert_report_paragraph!
-- Store one paragraph of a report.
INSERT INTO report_paragraphs (document_id, line, word_count, words)
VALUES (:document_id, :line, :word_count, :words);

-- name: insert_report_signatures!
-- Store the numbers by which a paragraph is found (JSON list).
INSERT INTO report_signatures (signature, paragraph_id)
SELECT DISTINCT value, :paragraph_id FROM json_each(:signatures);

-- name: paragraphs_with_signatures
-- Paragraphs of a like length that share one of these signatures (JSON list), oldest first.
SELECT paragraph_id, document_id, line, word_count, words FROM report_paragraphs
WHERE paragraph_id IN (
    SELECT report_signatures.paragraph_id FROM json_each(:signatures)
    CROSS JOIN report_signatures ON report_signatures.signature = json_each.value)
  AND word_count BETWEEN :least AND :most
ORDER BY paragraph_id LIMIT :limit;

-- name: report_age
-- What says which of two reports is the younger one.
SELECT document_id, path, coalesce(json_extract(metadata, '$.archive.date'), '') AS date
FROM documents WHERE document_id = :document_id;
