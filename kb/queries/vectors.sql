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
