-- Statements of kb/store/citations.py.

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

-- name: unresolved_keys
-- The keys of links of these documents (JSON list of ids, NULL for all) that have no target.
SELECT DISTINCT citations.target_key
FROM json_each(coalesce(:document_ids, (SELECT json_group_array(document_id) FROM documents)))
CROSS JOIN citations ON citations.source_document_id = json_each.value
WHERE citations.target_document_id IS NULL AND citations.kind <> 'similar';

-- name: delete_document_keys!
-- A document answers to nothing for the moment.
DELETE FROM document_keys WHERE document_id = :document_id;

-- name: insert_document_keys!
-- Store the keys that a document answers to (JSON list of [key, rank]).
INSERT INTO document_keys (key, document_id, rank)
SELECT json_extract(value, '$[0]'), :document_id, json_extract(value, '$[1]')
FROM json_each(:keys);

-- name: insert_citation!
-- Store one link.
INSERT INTO citations (source_document_id, target_document_id, target_url, target_key, kind,
                       context, start_character, end_character, confidence, line)
VALUES (:source_document_id, :target_document_id, :target_url, :target_key, :kind,
        :context, :start_character, :end_character, :confidence, :line);

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

-- name: unresolved_links
-- The links of a collection that may lead to something else than a document of their key: those
-- without a target, or all.
SELECT
  citations.citation_id, citations.target_url, citations.target_key, citations.kind,
  citations.target_document_id, documents.path
FROM documents
CROSS JOIN citations ON citations.source_document_id = documents.document_id
WHERE documents.collection_id = :collection_id
  AND (citations.target_document_id IS NULL OR :resolved)
  AND citations.target_key NOT LIKE 'url:%' AND citations.kind <> 'similar';

-- name: documents_for_links
-- What tells where the documents of a collection are read.
SELECT document_id, path, metadata FROM documents WHERE collection_id = :collection_id;

-- name: labels_of_collection
-- The labels that documents of a collection answer to.
SELECT document_keys.key, documents.path
FROM documents JOIN document_keys USING (document_id)
WHERE documents.collection_id = :collection_id AND document_keys.key LIKE 'label:%';

-- name: set_citation_key!
-- Say where a link leads, by its key and if it does by its document.
UPDATE citations SET target_key = :target_key, target_document_id = :target_document_id
WHERE citation_id = :citation_id;
