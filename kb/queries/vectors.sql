-- Statements of kb/store/vectors.py.

-- name: vectors_of_chunks
-- The vector of each of these chunks (JSON list) that has one, in their order.
SELECT chunk_id, vector
FROM json_each(:chunk_ids) CROSS JOIN chunks ON chunk_id = value CROSS JOIN vectors USING (vector_id);

-- name: document_vectors
-- The stored vectors of a document's chunks.
SELECT chunk_id, vector FROM chunks JOIN vectors USING (vector_id)
WHERE document_id = :document_id ORDER BY position;

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

-- name: vectors_of_document
-- The vectors that a document's passages have.
SELECT DISTINCT vector_id FROM chunks WHERE document_id = :document_id AND vector_id IS NOT NULL;

-- name: delete_unused_of_vectors!
-- Of these vectors (JSON list), delete those that no passage uses.
DELETE FROM vectors
WHERE vector_id IN (SELECT value FROM json_each(:vector_ids))
  AND NOT EXISTS (SELECT 1 FROM chunks WHERE chunks.vector_id = vectors.vector_id);

-- name: has_vectors_without_model$
-- Whether passages have vectors while no model is current: its row was deleted.
SELECT EXISTS (SELECT 1 FROM chunks WHERE vector_id > 0)
   AND NOT EXISTS (SELECT 1 FROM models WHERE is_current = 1);

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

-- name: insert_model!
-- Note an embedding model, with its newest calibration.
INSERT INTO models (name, width, sha256, slope, intercept, is_current)
VALUES (:name, :width, :sha256, :slope, :intercept, 0)
ON CONFLICT (name, sha256, width)
DO UPDATE SET slope = excluded.slope, intercept = excluded.intercept;

-- name: current_model
-- The model whose vectors are searched.
SELECT model_id, name, width, sha256, slope, intercept FROM models WHERE is_current;

-- name: find_model$
-- The id of a model.
SELECT model_id FROM models WHERE name = :name AND sha256 = :sha256 AND width = :width;

-- name: unset_current_models!
-- No model is current for a moment.
UPDATE models SET is_current = 0;

-- name: set_build_of_model!
-- Note that a model's vectors are of another build from now on, unless that one has a row already.
UPDATE OR IGNORE models SET sha256 = :sha256
WHERE model_id = :model_id AND name = :name AND width = :width;

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

-- name: slabs
-- The vector index of one range of ids.
SELECT slab_id, offsets, signs FROM vector_slabs
WHERE slab_id BETWEEN :first >> 10 AND :last >> 10 ORDER BY slab_id;
