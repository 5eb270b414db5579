-- Statements of kb/store/link_states.py.

-- name: links_of
-- The links of these documents (JSON list of ids, NULL for all), with what tells their state.
SELECT
  citations.source_document_id, citations.target_document_id, citations.target_url,
  citations.target_key, citations.kind, citations.line, documents.path, documents.collection_id,
  collections.name AS collection, collections.source,
  coalesce(json_extract(collections.options, '$.generators'), '[]') AS generators,
  cited.path AS target_path
FROM json_each(coalesce(:document_ids, (SELECT json_group_array(document_id) FROM documents)))
CROSS JOIN citations ON citations.source_document_id = json_each.value
CROSS JOIN documents ON documents.document_id = citations.source_document_id
CROSS JOIN collections USING (collection_id)
LEFT JOIN documents AS cited ON cited.document_id = citations.target_document_id
WHERE citations.kind <> 'similar'
ORDER BY collections.name, documents.path, citations.line, citations.citation_id;
