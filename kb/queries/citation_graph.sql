-- Statements of kb/store/citation_graph.py.

-- name: citations_made
-- The citations that a document makes, in order. A link to itself cites nothing: no target, and
-- one to its own sections is left out.
SELECT
  source_document_id, nullif(target_document_id, :document_id) AS target_document_id,
  target_url, target_key, context, start_character, end_character, confidence, kind, line
FROM citations WHERE source_document_id = :document_id AND target_url NOT LIKE '#%'
ORDER BY line, citation_id LIMIT :limit;

-- name: citations_received
-- The citations that other documents make to one, the surest first.
SELECT source_document_id, target_document_id, target_url, context, start_character,
       end_character, confidence, kind, line
FROM citations
WHERE target_document_id = :document_id AND source_document_id <> :document_id
ORDER BY confidence DESC, source_document_id, line, citation_id LIMIT :limit;

-- name: citations_without_target
-- The citations of these keys (JSON list) that have no target.
SELECT source_document_id, target_document_id, target_url, target_key, context, start_character,
       end_character, confidence, kind, line
FROM json_each(:keys)
CROSS JOIN citations ON citations.target_key = json_each.value
WHERE citations.target_document_id IS NULL AND citations.kind <> 'similar';

-- name: citation_graph
-- Edges within some steps of these documents (JSON list of ids), both ways, one for each pair.
-- A document that was reached before is reached again at a greater depth at most, and the depth
-- is bounded: a cycle ends.
WITH RECURSIVE
reached (document_id, depth) AS (
  SELECT value, 0 FROM json_each(:document_ids)
  UNION
  SELECT citations.target_document_id, reached.depth + 1
  FROM reached JOIN citations ON citations.source_document_id = reached.document_id
  WHERE reached.depth < :depth AND citations.target_document_id IS NOT NULL
  UNION
  SELECT citations.source_document_id, reached.depth + 1
  FROM reached JOIN citations ON citations.target_document_id = reached.document_id
  WHERE reached.depth < :depth
),
near (document_id) AS (SELECT DISTINCT document_id FROM reached WHERE depth < :depth),
edges (citation_id) AS (
  SELECT citation_id FROM near CROSS JOIN citations ON source_document_id = near.document_id
  UNION
  SELECT citation_id FROM near CROSS JOIN citations ON target_document_id = near.document_id
)
SELECT
  citations.source_document_id AS source,
  citations.target_document_id AS target,
  citations.target_key,
  min(citations.target_url) AS target_url,
  max(citations.confidence) AS confidence
FROM edges CROSS JOIN citations USING (citation_id)
WHERE citations.target_document_id IS NOT citations.source_document_id
GROUP BY citations.source_document_id, coalesce(citations.target_document_id, citations.target_key)
ORDER BY source, target, citations.target_key;

-- name: whole_citation_graph
-- Every edge of the file, one for each pair.
SELECT
  source_document_id AS source,
  target_document_id AS target,
  target_key,
  min(target_url) AS target_url,
  max(confidence) AS confidence
FROM citations
WHERE target_document_id IS NOT source_document_id
GROUP BY source_document_id, coalesce(target_document_id, target_key)
ORDER BY source, target, target_key;

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
