-- Statements that keep citations and the keys that resolve them.

-- name: collection_options$
-- The settings of a collection as JSON.
SELECT options FROM collections WHERE collection_id = :collection_id;

-- name: is_shared_collection$
-- Whether a collection belongs to no project.
SELECT project_id IS NULL FROM collections WHERE collection_id = :collection_id;

-- name: keys_of_document
-- The keys that a document answers to, with their ranks.
SELECT key, rank FROM document_keys WHERE document_id = :document_id;

-- name: documents_of_keys
-- The documents that answer to these keys (JSON list), and how well.
SELECT
  document_keys.key, documents.document_id, documents.collection_id, documents.path,
  document_keys.rank, collections.project_id IS NULL AS is_shared
FROM json_each(:keys)
CROSS JOIN document_keys ON document_keys.key = json_each.value
CROSS JOIN documents USING (document_id)
CROSS JOIN collections USING (collection_id);

-- name: delete_document_keys!
-- A document answers to nothing for the moment.
DELETE FROM document_keys WHERE document_id = :document_id;

-- name: insert_document_keys!
-- Store the keys that a document answers to (JSON list of [key, rank]).
INSERT INTO document_keys (key, document_id, rank)
SELECT json_extract(value, '$[0]'), :document_id, json_extract(value, '$[1]')
FROM json_each(:keys);

-- name: delete_citations!
-- Delete the links that a document makes.
DELETE FROM citations WHERE source_document_id = :document_id AND kind <> 'similar';

-- name: insert_citation!
-- Store one link.
INSERT INTO citations (source_document_id, target_document_id, target_url, target_key, kind,
                       context, confidence, line)
VALUES (:source_document_id, :target_document_id, :target_url, :target_key, :kind,
        :context, :confidence, :line);

-- name: citations_of_keys
-- The links whose target has one of these keys (JSON list), with where they stand.
SELECT
  citations.citation_id, citations.target_key, citations.target_document_id,
  citations.source_document_id, documents.collection_id, documents.path,
  collections.project_id IS NULL AS is_shared
FROM json_each(:keys)
CROSS JOIN citations ON citations.target_key = json_each.value
CROSS JOIN documents ON documents.document_id = citations.source_document_id
CROSS JOIN collections USING (collection_id);

-- name: set_citation_target!
-- Resolve a link, or unresolve it.
UPDATE citations SET target_document_id = :target_document_id WHERE citation_id = :citation_id;

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

-- name: update_collection_options!
-- Change the settings of a collection.
UPDATE collections SET options = :options WHERE collection_id = :collection_id;

-- name: forget_content_hashes!
-- Make the next sync read a collection's documents as if they had changed.
UPDATE documents SET content_hash = x'', modified_ns = NULL WHERE collection_id = :collection_id;
