-- Statements that write: collections, documents with all that hangs on them, vectors.

-- name: insert_collection!
-- Register a collection.
INSERT INTO collections (name, kind, source, include, exclude, options, description, version,
                         project_id, created_at)
VALUES (:name, :kind, :source, :include, :exclude, :options, :description, :version,
        :project_id, :created_at);

-- name: update_collection!
-- Change a collection and where its documents come from; a NULL keeps what there is.
UPDATE collections
SET kind = coalesce(:kind, kind), source = coalesce(:source, source),
    include = coalesce(:include, include), exclude = coalesce(:exclude, exclude),
    description = coalesce(:description, description)
WHERE collection_id = :collection_id;

-- name: finish_collection_sync!
-- Note the end of a complete sync, and what the source's manifest says; a NULL keeps what there is.
UPDATE collections
SET synced_at = :synced_at, version = coalesce(:version, version),
    description = coalesce(:description, description)
WHERE collection_id = :collection_id;

-- name: delete_collection!
-- Delete a collection whose documents are gone already.
DELETE FROM collections WHERE collection_id = :collection_id;

-- name: stored_file
-- What the file knows of one path.
SELECT document_id, path, content_hash, file_size, modified_ns
FROM documents WHERE collection_id = :collection_id AND path = :path;

-- name: stored_files
-- What the file knows of each document's source, to find what changed.
SELECT document_id, path, content_hash, file_size, modified_ns
FROM documents WHERE collection_id = :collection_id;

-- name: stored_private_keys
-- The paths of the documents of a collection whose text begins as a private key.
SELECT path FROM document_index JOIN documents ON document_id = document_index.rowid
WHERE document_index MATCH 'NEAR(begin private key, 4)'
  AND document_index.rowid BETWEEN :collection_id << 32 AND (:collection_id << 32) + 4294967295
  AND ltrim(content, char(9, 10, 32, 65279)) LIKE '-----BEGIN %';

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
INSERT INTO chunks (chunk_id, document_id, position, heading_path, start_line, end_line,
                    start_character, end_character, extra_terms, text_hash, vector_id)
VALUES (:chunk_id, :document_id, :position, :heading_path, :start_line, :end_line,
        :start_character, :end_character, :extra_terms, :text_hash, :vector_id);

-- name: indexed_document
-- A document's title and text, as the keyword index holds them.
SELECT title, content FROM documents WHERE document_id = :document_id;

-- name: indexed_chunks
-- What the keyword index holds of a document's chunks, with the range of the text.
SELECT chunk_id, heading_path, start_character, end_character, extra_terms
FROM chunks WHERE document_id = :document_id ORDER BY position;

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

-- name: index_document!
-- Enter a document into the index of whole documents.
INSERT INTO document_index (rowid, title, heading, body, extra)
SELECT document_id, title, heading, body, extra FROM document_texts
WHERE document_id = :document_id;

-- name: unindex_document!
-- Take a document out of the index of whole documents, before anything of it changes.
INSERT INTO document_index (document_index, rowid, title, heading, body, extra)
SELECT 'delete', document_id, title, heading, body, extra
FROM document_texts WHERE document_id = :document_id;

-- name: chunks_without_vector
-- Chunks behind one and up to another that wait for their embedding, in document order.
SELECT chunk_id, document_id, heading_path, start_character, end_character, text_hash
FROM chunks WHERE vector_id IS NULL AND chunk_id > :after AND chunk_id <= :last
ORDER BY chunk_id LIMIT :limit;

-- name: count_chunks_without_vector$
-- How many chunks of a range wait for their embedding.
SELECT count(*) FROM chunks WHERE vector_id IS NULL AND chunk_id BETWEEN :first AND :last;

-- name: has_more_vectors$
-- Whether more than so many chunks have a vector.
SELECT count(*) > :most
FROM (SELECT 1 FROM chunks WHERE vector_id IS NOT NULL LIMIT :most + 1);

-- name: chunks_with_vector
-- As `chunks_with_text`, of those that have a vector.
SELECT chunk_id, document_id, heading_path, start_character, end_character, text_hash
FROM chunks WHERE vector_id IS NOT NULL AND chunk_id > :after AND chunk_id <= :last
ORDER BY chunk_id LIMIT :limit;

-- name: chunks_with_text
-- Every chunk with the range of its text, in order; for another model.
SELECT chunk_id, document_id, heading_path, start_character, end_character, text_hash
FROM chunks WHERE chunk_id > :after AND chunk_id <= :last ORDER BY chunk_id LIMIT :limit;

-- name: count_chunks$
-- All chunks of the file.
SELECT count(*) FROM chunks;

-- name: vectors_by_hash
-- Embeddings that exist already for these texts (JSON list of hexadecimal hashes).
SELECT lower(hex(text_hash)) AS text_hash, vector_id FROM vectors
WHERE model_id = :model_id AND text_hash IN (SELECT unhex(value) FROM json_each(:text_hashes));

-- name: insert_vector!
-- Store one embedding.
INSERT INTO vectors (model_id, text_hash, vector) VALUES (:model_id, :text_hash, :vector)
ON CONFLICT DO NOTHING;

-- name: set_chunk_vector!
-- Give a chunk its embedding, unless its text was changed while it was embedded.
UPDATE chunks SET vector_id = :vector_id
WHERE chunk_id = :chunk_id AND text_hash = :text_hash;

-- name: delete_unused_vectors!
-- Delete the embeddings of the current model that no chunk uses any more.
DELETE FROM vectors
WHERE model_id = (SELECT model_id FROM models WHERE is_current)
  AND NOT EXISTS (SELECT 1 FROM chunks WHERE chunks.vector_id = vectors.vector_id);

-- name: slab_vectors
-- The vectors of one slab's chunks.
SELECT chunks.chunk_id & 1023, vectors.vector
FROM chunks JOIN vectors USING (vector_id)
WHERE chunks.chunk_id BETWEEN :slab_id << 10 AND (:slab_id << 10) + 1023
ORDER BY chunks.chunk_id;

-- name: replace_slab!
-- Store one slab of the vector index.
INSERT INTO vector_slabs (slab_id, offsets, signs) VALUES (:slab_id, :offsets, :signs)
ON CONFLICT (slab_id) DO UPDATE SET offsets = excluded.offsets, signs = excluded.signs;

-- name: delete_slab!
-- Delete a slab that holds nothing any more.
DELETE FROM vector_slabs WHERE slab_id = :slab_id;

-- name: replace_document_vector!
-- Store the mean direction of a document.
INSERT INTO document_vectors (document_id, vector) VALUES (:document_id, :vector)
ON CONFLICT (document_id) DO UPDATE SET vector = excluded.vector;

-- name: delete_document_vector!
-- Delete the mean direction of a document that has fewer than two vectors.
DELETE FROM document_vectors WHERE document_id = :document_id;

-- name: delete_slabs!
-- Empty the vector index, to build it anew.
DELETE FROM vector_slabs;

-- name: all_slab_ids
-- Every slab that the chunks of the file need.
SELECT DISTINCT chunk_id >> 10 AS slab_id FROM chunks;

-- name: all_document_ids
-- Every document.
SELECT document_id FROM documents;

-- name: insert_model!
-- Note an embedding model, with its newest calibration.
INSERT INTO models (name, width, sha256, slope, intercept, is_current)
VALUES (:name, :width, :sha256, :slope, :intercept, 0)
ON CONFLICT (name, sha256, width)
DO UPDATE SET slope = excluded.slope, intercept = excluded.intercept;

-- name: current_model
-- The model whose vectors are searched.
SELECT model_id, name, width, sha256, slope, intercept FROM models WHERE is_current;

-- name: beginnings_of_documents
-- The first 2,000 characters of each of these documents (JSON list of ids).
SELECT substr(content, 1, 2000)
FROM json_each(:document_ids) CROSS JOIN documents ON document_id = json_each.value;

-- name: find_model$
-- The id of a model.
SELECT model_id FROM models WHERE name = :name AND sha256 = :sha256 AND width = :width;

-- name: unset_current_models!
-- No model is current for a moment.
UPDATE models SET is_current = 0;

-- name: set_current_model!
-- Make a model the one that is searched.
UPDATE models SET is_current = 1 WHERE model_id = :model_id;

-- name: delete_other_models!
-- Delete models that are not current, with their vectors.
DELETE FROM models WHERE NOT is_current;

-- name: forget_vectors_without_model!
-- Passages whose vector no known model made wait for a new one.
UPDATE chunks SET vector_id = NULL
WHERE vector_id IN (
  SELECT vector_id FROM vectors
  WHERE NOT EXISTS (SELECT 1 FROM models WHERE models.model_id = vectors.model_id));

-- name: delete_vectors_without_model!
-- Delete the embeddings that no known model made.
DELETE FROM vectors
WHERE NOT EXISTS (SELECT 1 FROM models WHERE models.model_id = vectors.model_id);

-- name: use_vectors_of_model!
-- Give every chunk the embedding of its text by one model, none where there is none yet.
UPDATE chunks SET vector_id = (
  SELECT vectors.vector_id FROM vectors
  WHERE vectors.model_id = :model_id AND vectors.text_hash = chunks.text_hash);

-- name: insert_tool_call!
-- Count a call.
INSERT INTO tool_calls (tool, code, duration_ms, result_characters, called_at)
VALUES (:tool, :code, :duration_ms, :result_characters, :called_at);

-- name: trim_tool_calls!
-- Keep the newest 10,000 calls.
DELETE FROM tool_calls
WHERE tool_call_id <= (SELECT max(tool_call_id) FROM tool_calls) - 10000;
