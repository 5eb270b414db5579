-- Statements of kb/store/graph_picture.py.

-- name: drawn_citations
-- Every citation with what a picture shows of both ends.
SELECT
  citing_collections.name AS collection, citing.path, citing.title,
  citing_collections.source,
  cited_collections.name AS target_collection, cited.path AS target_path,
  cited.title AS target_title, cited_collections.source AS target_source,
  citations.target_url, citations.target_key, citations.kind, citations.source_document_id,
  citations.context, citations.start_character, citations.end_character, citations.confidence,
  citations.line
FROM citations
JOIN documents AS citing ON citing.document_id = citations.source_document_id
JOIN collections AS citing_collections ON citing_collections.collection_id = citing.collection_id
LEFT JOIN documents AS cited ON cited.document_id = citations.target_document_id
LEFT JOIN collections AS cited_collections
  ON cited_collections.collection_id = cited.collection_id
WHERE citations.target_document_id IS NOT citations.source_document_id
ORDER BY citing_collections.name, citing.path, citations.line, citations.citation_id;
