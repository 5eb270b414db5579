-- Statements of kb/store/sign_codes.py.

-- name: slabs
-- The vector index of one range of ids.
SELECT slab_id, offsets, signs FROM vector_slabs
WHERE slab_id BETWEEN :first >> 10 AND :last >> 10 ORDER BY slab_id;
