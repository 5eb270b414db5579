-- Statements of kb/store/documents.py.

-- name: forget_content_hashes!
-- Make the next sync read a collection's documents as if they had changed.
UPDATE documents SET content_hash = x'', modified_ns = NULL WHERE collection_id = :collection_id;

-- name: touch_document!
-- The file was written again with the same content.
UPDATE documents SET file_size = :file_size, modified_ns = :modified_ns
WHERE document_id = :document_id;

-- name: insert_file_state!
-- Store what the file of a document was when it was read.
INSERT OR REPLACE INTO file_states (document_id, changed_ns, inode)
VALUES (:document_id, :changed_ns, :inode);

-- name: delete_file_state!
-- Nothing is known of the file of a document.
DELETE FROM file_states WHERE document_id = :document_id;

-- name: next_document_id$
-- The next free document id of a collection.
SELECT coalesce(
  (SELECT document_id + 1 FROM documents
   WHERE document_id BETWEEN :collection_id << 32 AND (:collection_id << 32) + 4294967295
   ORDER BY document_id DESC LIMIT 1),
  :collection_id << 32);

-- name: store_document_row!
-- Store a document's own row, in place of the one that has its id.
INSERT INTO documents (document_id, collection_id, path, title, summary, metadata, content_hash,
                       encoding, file_size, modified_ns, character_count, line_count, indexed_at,
                       content)
VALUES (:document_id, :collection_id, :path, :title, :summary, :metadata, :content_hash,
        :encoding, :file_size, :modified_ns, :character_count, :line_count, :indexed_at, :content)
ON CONFLICT (document_id) DO UPDATE SET
  path = excluded.path, title = excluded.title, summary = excluded.summary,
  metadata = excluded.metadata, content_hash = excluded.content_hash,
  encoding = excluded.encoding, file_size = excluded.file_size,
  modified_ns = excluded.modified_ns, character_count = excluded.character_count,
  line_count = excluded.line_count, indexed_at = excluded.indexed_at, content = excluded.content;

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
VALUES (:document_id, :line, :kind, :label);

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
VALUES (:chunk_id, :title, :heading_path, :body, :extra);

-- name: unindex_chunk!
-- Take a chunk out of the keyword index; with exactly the text that it was entered with.
INSERT INTO keyword_index (keyword_index, rowid, title, heading, body, extra)
VALUES ('delete', :chunk_id, :title, :heading, :body, :extra);

-- name: stored_document_row
-- One document with all its columns.
SELECT path, title, summary, metadata, content_hash, encoding, file_size, modified_ns,
       changed_ns, inode, line_count, content,
       (SELECT substr(key, 6) FROM document_keys
        WHERE document_keys.document_id = documents.document_id
          AND key BETWEEN 'date:' AND 'date;') AS date
FROM documents LEFT JOIN file_states USING (document_id)
WHERE document_id = :document_id;

-- name: stored_places
-- Where the parts of a converted document stand in its file.
SELECT start_line, kind, label FROM places WHERE document_id = :document_id ORDER BY start_line;

-- name: stored_chunks
-- A document's passages, each with its lead, the hash of its text and its vector by the current model.
SELECT chunks.position, section, coalesce(heading_path, ''), chunks.start_line, chunks.end_line,
       chunks.start_character, chunks.end_character, coalesce(chunk_leads.start_character, 0),
       coalesce(chunk_leads.end_character, 0), chunks.text_hash, vectors.vector
FROM chunks LEFT JOIN chunk_leads USING (chunk_id)
LEFT JOIN sections
  ON sections.document_id = chunks.document_id AND sections.position = chunks.section
LEFT JOIN vectors ON vectors.vector_id = chunks.vector_id
WHERE chunks.document_id = :document_id ORDER BY chunks.position;

-- name: stored_links
-- The links that somebody wrote into a document.
SELECT source_document_id, target_url, target_key, kind, line, context, start_character,
       end_character
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

-- name: delete_citations!
-- Delete the links that a document makes.
DELETE FROM citations WHERE source_document_id = :document_id AND kind <> 'similar';
