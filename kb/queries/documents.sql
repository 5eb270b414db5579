-- Statements of kb/store/documents.py.

-- name: forget_content_hashes!
-- Make the next sync read a collection's documents as if they had changed.
UPDATE documents SET content_hash = x'', modified_ns = NULL WHERE collection_id = :collection_id;

-- name: touch_document!
-- The file was written again with the same content.
UPDATE documents SET file_size = :file_size, modified_ns = :modified_ns
WHERE document_id = :document_id;

-- name: next_document_id$
-- The next free document id of a collection.
SELECT coalesce(
  (SELECT document_id + 1 FROM documents
   WHERE document_id BETWEEN :collection_id << 32 AND (:collection_id << 32) + 4294967295
   ORDER BY document_id DESC LIMIT 1),
  :collection_id << 32);

-- name: insert_document!
-- Store a document's own row.
INSERT INTO documents (document_id, collection_id, path, title, summary, metadata, content_hash, encoding,
                       file_size, modified_ns, character_count, line_count, indexed_at, content)
VALUES (:document_id, :collection_id, :path, :title, :summary, :metadata, :content_hash, :encoding,
        :file_size, :modified_ns, :character_count, :line_count, :indexed_at, :content);

-- name: update_document!
-- Replace a document's own row and keep its id.
UPDATE documents
SET path = :path, title = :title, summary = :summary, metadata = :metadata, content_hash = :content_hash,
    encoding = :encoding, file_size = :file_size, modified_ns = :modified_ns,
    character_count = :character_count, line_count = :line_count, indexed_at = :indexed_at,
    content = :content
WHERE document_id = :document_id;

-- name: delete_document!
-- Delete a document's own row; sections, chunks and citations go with it.
DELETE FROM documents WHERE document_id = :document_id;

-- name: insert_section!
-- Store one heading.
INSERT INTO sections (document_id, position, level, heading, heading_path, start_line, end_line,
                      body_end_line)
VALUES (:document_id, :position, :level, :heading, :heading_path, :start_line, :end_line,
        :body_end_line);

-- name: insert_place!
-- Store where a part of a converted document stands in its file.
INSERT OR REPLACE INTO places (document_id, start_line, kind, label)
VALUES (:document_id, :start_line, :kind, :label);

-- name: delete_places!
-- Delete the places of a document.
DELETE FROM places WHERE document_id = :document_id;

-- name: delete_sections!
-- Delete a document's headings.
DELETE FROM sections WHERE document_id = :document_id;

-- name: next_chunk_id$
-- The next free chunk id of a collection.
SELECT coalesce(
  (SELECT chunk_id + 1 FROM chunks
   WHERE chunk_id BETWEEN :collection_id << 32 AND (:collection_id << 32) + 4294967295
   ORDER BY chunk_id DESC LIMIT 1),
  :collection_id << 32);

-- name: insert_chunk!
-- Store one chunk.
INSERT INTO chunks (chunk_id, document_id, position, section, start_line, end_line,
                    start_character, end_character, extra_terms, text_hash, vector_id)
VALUES (:chunk_id, :document_id, :position, :section, :start_line, :end_line,
        :start_character, :end_character, :extra_terms, :text_hash, :vector_id);

-- name: indexed_chunks
-- What the keyword index holds of a document's chunks, with the ranges of their text and lead.
SELECT chunk_id, coalesce(heading_path, ''), chunks.start_character, chunks.end_character,
       coalesce(chunk_leads.start_character, 0), coalesce(chunk_leads.end_character, 0),
       extra_terms
FROM chunks LEFT JOIN chunk_leads USING (chunk_id)
LEFT JOIN sections
  ON sections.document_id = chunks.document_id AND sections.position = chunks.section
WHERE chunks.document_id = :document_id ORDER BY chunks.position;

-- name: insert_lead!
-- Store what a chunk needs in front of it.
INSERT INTO chunk_leads (chunk_id, start_character, end_character)
VALUES (:chunk_id, :start_character, :end_character);

-- name: delete_chunks!
-- Delete a document's chunks.
DELETE FROM chunks WHERE document_id = :document_id;

-- name: index_chunk!
-- Enter a chunk into the keyword index, as `chunk_texts` has it.
INSERT INTO keyword_index (rowid, title, heading, body, extra)
VALUES (:chunk_id, :title, :heading, :body, :extra);

-- name: unindex_chunk!
-- Take a chunk out of the keyword index; with exactly the text that it was entered with.
INSERT INTO keyword_index (keyword_index, rowid, title, heading, body, extra)
VALUES ('delete', :chunk_id, :title, :heading, :body, :extra);
