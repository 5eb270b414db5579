-- Statements of kb/search/bm25.py.

-- name: index_size
-- How many documents a collection holds, and how long they are on average.
SELECT count(*) AS documents, coalesce(avg(character_count), 0) AS average_length
FROM documents WHERE collection_id = :collection_id;

-- name: term_counts
-- How often each document of a range of ids holds a term: in its text, and in extra terms.
SELECT document_id, sum(col = 'body') AS body, sum(col = 'extra') AS extra
FROM keyword_instances CROSS JOIN chunks ON chunk_id = doc
WHERE term = :term AND doc BETWEEN :first AND :last AND col IN ('body', 'extra')
GROUP BY document_id;

-- name: prefix_counts
-- How often each document of a range of ids holds extra terms between two texts.
SELECT document_id, count(*) AS extra
FROM keyword_instances CROSS JOIN chunks ON chunk_id = doc
WHERE term >= :term AND term < :after AND doc BETWEEN :first AND :last AND col = 'extra'
GROUP BY document_id;

-- name: document_lengths
-- Ids and lengths of these documents (JSON list).
SELECT document_id, path, character_count FROM documents
WHERE document_id IN (SELECT value FROM json_each(:document_ids));
