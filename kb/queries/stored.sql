-- Statements of kb/store/stored.py.

-- name: stored_document_row
-- One document with all its columns.
SELECT path, title, summary, metadata, content_hash, encoding, file_size, modified_ns, line_count,
       content
FROM documents WHERE document_id = :document_id;

-- name: stored_places
-- Where the parts of a converted document stand in its file.
SELECT start_line, kind, label FROM places WHERE document_id = :document_id ORDER BY start_line;

-- name: stored_chunks
-- A document's passages, each with the hash of its text and its vector by the current model.
SELECT chunks.position, section, coalesce(heading_path, '') AS heading_path, chunks.start_line,
       chunks.end_line, start_character, end_character, chunks.text_hash, vectors.vector
FROM chunks
LEFT JOIN sections
  ON sections.document_id = chunks.document_id AND sections.position = chunks.section
LEFT JOIN vectors ON vectors.vector_id = chunks.vector_id
WHERE chunks.document_id = :document_id ORDER BY chunks.position;

-- name: stored_links
-- The links that somebody wrote into a document.
SELECT source_document_id, target_url, kind, line, context, start_character, end_character
FROM citations
WHERE source_document_id = :document_id AND kind <> 'similar' ORDER BY citation_id;

-- name: stored_labels
-- The labels by which a document's places are referred to in its collection.
SELECT substr(key, instr(key, '/') + 1) FROM document_keys
WHERE document_id = :document_id AND key LIKE 'label:%' ORDER BY key;

-- name: stored_tags
-- A document's tags, those in its text too, in their normal form.
SELECT substr(key, 5) FROM document_keys
WHERE document_id = :document_id AND key LIKE 'tag:%' ORDER BY key;
