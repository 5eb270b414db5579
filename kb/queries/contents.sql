-- Statements of kb/store/contents.py.

-- name: archive_documents
-- What is shown of these documents (JSON list of ids).
SELECT
  documents.document_id, collections.name AS collection, collections.source AS folder,
  documents.path, documents.title,
  json_extract(documents.metadata, '$.archive.urls[0]') AS own_url,
  json_extract(collections.options, '$.base_url') AS base_url,
  json_extract(documents.metadata, '$.archive.source') AS source,
  json_extract(documents.metadata, '$.archive.date') AS date,
  json_extract(documents.metadata, '$.archive.query') AS query,
  collections.options
FROM documents JOIN collections USING (collection_id)
WHERE documents.document_id IN (SELECT value FROM json_each(:document_ids));

-- name: resource_documents
-- One page of the documents that a project sees of these kinds (JSON list) and of its own.
SELECT collections.name AS collection, documents.path,
       coalesce(nullif(documents.title, ''), documents.path) AS title, documents.summary
FROM documents JOIN collections USING (collection_id)
WHERE (collections.project_id IS NULL AND kind IN (SELECT value FROM json_each(:kinds)))
   OR collections.project_id = :project_id
ORDER BY collections.name, documents.path LIMIT :limit OFFSET :offset;

-- name: collection_texts
-- The texts of a collection's documents, by path.
SELECT path, content FROM documents WHERE collection_id = :collection_id ORDER BY path;

-- name: stored_text
-- The text of one document and its size in bytes on disk.
SELECT content, coalesce(file_size, octet_length(content)) AS size
FROM documents WHERE collection_id = :collection_id AND path = :path;

-- name: collection_documents
-- One page of a collection's documents, by id.
SELECT path AS id, title, character_count AS size
FROM documents WHERE collection_id = :collection_id
ORDER BY path LIMIT :limit OFFSET :offset;

-- name: collection_documents_by_date
-- One page of a collection's documents, the newest first, those without a date at the end.
SELECT path AS id, title, character_count AS size,
       (SELECT substr(max(key), 6) FROM document_keys
        WHERE document_keys.document_id = documents.document_id
          AND key >= 'date:' AND key < 'date;') AS date
FROM documents WHERE collection_id = :collection_id
ORDER BY date DESC NULLS LAST, path LIMIT :limit OFFSET :offset;

-- name: newest_documents
-- The documents of some collections (JSON list of ids) with the newest dates.
SELECT collections.name AS collection, documents.path AS id, documents.title,
       substr(key, 6) AS date
FROM document_keys CROSS JOIN documents USING (document_id) JOIN collections USING (collection_id)
WHERE key >= 'date:' AND key < 'date;'
  AND documents.collection_id IN (SELECT value FROM json_each(:collection_ids))
ORDER BY key DESC, collections.name, documents.path LIMIT :limit;

-- name: count_documents$
-- How many documents a collection holds.
SELECT count(*) FROM documents WHERE collection_id = :collection_id;

-- name: documents_of_collections
-- How many documents each collection has.
SELECT collection_id, count(*) FROM documents GROUP BY collection_id;

-- name: document_paths
-- The ids of a collection's documents, to suggest near ones.
SELECT path FROM documents WHERE collection_id = :collection_id ORDER BY path;

-- name: document_paths_at_both_ends
-- The first and the last ids of a collection's documents.
SELECT path FROM (SELECT path FROM documents WHERE collection_id = :collection_id
                  ORDER BY path LIMIT :limit)
UNION ALL
SELECT path FROM (SELECT path FROM documents WHERE collection_id = :collection_id
                  ORDER BY path DESC LIMIT :limit);

-- name: document
-- A document with its text.
SELECT
  document_id, path, title, summary, metadata, line_count,
  json_extract(documents.metadata, '$.archive.urls[0]') AS own_url,
  json_extract(collections.options, '$.base_url') AS base_url,
  content
FROM documents JOIN collections USING (collection_id)
WHERE collection_id = :collection_id AND path = :path;

-- name: document_sections
-- A document's headings in order.
SELECT position, level, heading, heading_path, start_line, end_line, body_end_line
FROM sections WHERE document_id = :document_id ORDER BY position;

-- name: status_counts
-- The sizes that `kb status` prints.
SELECT
  (SELECT count(*) FROM collections) AS collections,
  (SELECT count(*) FROM documents) AS documents,
  (SELECT coalesce(sum(character_count), 0) FROM documents) AS characters,
  (SELECT count(*) FROM chunks) AS chunks,
  (SELECT count(vector_id) FROM chunks) AS embedded_chunks,
  (SELECT count(*) FROM vectors) AS vectors;

-- name: document_paths_from
-- Ids of documents, of one collection if it is named, that begin with some letters, for a shell.
SELECT DISTINCT path FROM documents JOIN collections USING (collection_id)
WHERE (:collection = '' OR name = :collection)
  AND substr(path, 1, length(:prefix)) = :prefix
ORDER BY path LIMIT :limit;

-- name: visible_documents
-- How many documents of each kind a project sees.
SELECT kind AS name, count(*) AS doc_count
FROM collections JOIN documents USING (collection_id)
WHERE project_id IS NULL OR project_id = :project_id
GROUP BY kind ORDER BY kind;

-- name: stored_document
-- What an index holds under a document id, to replace it.
SELECT document_id, content_hash, metadata FROM documents
WHERE collection_id = :collection_id AND path = :path;

-- name: document_contents
-- The texts of these documents (JSON list).
SELECT document_id, path, title, metadata, content FROM documents
WHERE document_id IN (SELECT value FROM json_each(:document_ids)) ORDER BY document_id;

-- name: pages
-- The documents of one range of ids, to make questions from.
SELECT path, title, content FROM documents
WHERE document_id BETWEEN :first AND :last ORDER BY document_id;

-- name: stored_file
-- What the file knows of one path.
SELECT document_id, path, content_hash, file_size, modified_ns, changed_ns, inode
FROM documents LEFT JOIN file_states USING (document_id)
WHERE collection_id = :collection_id AND path = :path;

-- name: stored_files
-- What the file knows of each document's source, to find what changed.
SELECT document_id, path, content_hash, file_size, modified_ns, changed_ns, inode, indexed_at
FROM documents LEFT JOIN file_states USING (document_id)
WHERE collection_id = :collection_id;

-- name: stored_private_keys
-- The paths of the documents of a collection whose text begins as a private key.
SELECT DISTINCT path
FROM keyword_index
JOIN chunks ON chunk_id = keyword_index.rowid
JOIN documents USING (document_id)
WHERE keyword_index MATCH 'NEAR(begin private key, 4)'
  AND keyword_index.rowid BETWEEN :collection_id << 32 AND (:collection_id << 32) + 4294967295
  AND ltrim(content, char(9, 10, 32, 65279)) LIKE '-----BEGIN %';

-- name: indexed_document
-- A document's title and text, as the keyword index holds them.
SELECT title, content FROM documents WHERE document_id = :document_id;

-- name: all_document_ids
-- Every document.
SELECT document_id FROM documents;

-- name: beginnings_of_documents
-- The first 2,000 characters of each of these documents (JSON list of ids).
SELECT substr(content, 1, 2000)
FROM json_each(:document_ids) CROSS JOIN documents ON document_id = json_each.value;

-- name: documents_changed_since
-- The documents of a collection whose file is newer than a time, the newest first; those without
-- a file by when they came.
SELECT path, title, changed_at FROM (
  SELECT path, title,
         coalesce(strftime('%Y-%m-%dT%H:%M:%SZ', modified_ns / 1000000000, 'unixepoch'),
                  indexed_at) AS changed_at
  FROM documents WHERE collection_id = :collection_id)
WHERE changed_at >= :since ORDER BY changed_at DESC, path LIMIT :limit;

-- name: document_hashes
-- Which text every document of these kinds (JSON list) has, to see what changed.
SELECT collections.name, documents.path, documents.content_hash
FROM documents JOIN collections USING (collection_id)
WHERE collections.kind IN (SELECT value FROM json_each(:kinds));

-- name: passages_of_collections
-- How many passages each collection has, and how many of them a vector.
SELECT chunk_id >> 32 AS collection_id, count(*) AS passages, count(vector_id) AS embedded
FROM chunks GROUP BY collection_id;

-- name: places_of_documents
-- Where the parts of these documents (JSON list of ids) stand in their files, in order.
SELECT document_id, start_line, kind, label FROM places
WHERE document_id IN (SELECT value FROM json_each(:document_ids))
ORDER BY document_id, start_line;

-- name: sections_of_documents
-- The headings of these documents (JSON list of ids), in order.
SELECT document_id, position, heading_path, start_line, end_line FROM sections
WHERE document_id IN (SELECT value FROM json_each(:document_ids))
ORDER BY document_id, position;

-- name: indexed_texts
-- What the keyword index covers of some chunks (JSON list).
SELECT chunk_texts.chunk_id, title, heading, body, extra
FROM chunk_texts
WHERE chunk_texts.chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: chunk_ids_of_document
-- The chunks of a document.
SELECT chunk_id FROM chunks WHERE document_id = :document_id;

-- name: chunk_bounds_of_documents
-- Of each of these documents (JSON list of ids) its first and last chunk, and how many there are.
SELECT
  asked.value,
  (SELECT chunk_id FROM chunks WHERE document_id = asked.value AND position = 1),
  last.chunk_id, last.position
FROM json_each(:document_ids) AS asked
CROSS JOIN chunks AS last ON last.document_id = asked.value AND last.position = (
  SELECT max(position) FROM chunks WHERE document_id = asked.value);

-- name: has_vectors$
-- Whether any passage of one range of ids has a vector.
SELECT EXISTS (
  SELECT 1 FROM chunks WHERE chunk_id BETWEEN :first AND :last AND vector_id IS NOT NULL);

-- name: document_ids_of_chunks
-- Which document each of these chunks (JSON list) belongs to.
SELECT chunk_id, document_id FROM chunks
WHERE chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: chunk_documents
-- The document of each of these chunks (JSON list).
SELECT chunk_id, path FROM chunks JOIN documents USING (document_id)
WHERE chunk_id IN (SELECT value FROM json_each(:chunk_ids));

-- name: ordered_chunk_ids
-- All chunks, or those that have a vector, in order.
SELECT chunk_id FROM chunks WHERE vector_id IS NOT NULL OR NOT :with_vector
ORDER BY chunk_id LIMIT :limit;

-- name: chunks_to_embed
-- Of some chunks (JSON list) those that wait for their embedding, or all, in their order there.
SELECT chunk_id, chunks.document_id, coalesce(heading_path, ''),
       chunks.start_character, chunks.end_character,
       coalesce(chunk_leads.start_character, 0), coalesce(chunk_leads.end_character, 0), text_hash
FROM json_each(:chunk_ids) CROSS JOIN chunks ON chunk_id = json_each.value
LEFT JOIN chunk_leads USING (chunk_id)
LEFT JOIN sections
  ON sections.document_id = chunks.document_id AND sections.position = chunks.section
WHERE :anew OR vector_id IS NULL ORDER BY json_each.key;

-- name: waiting_chunks
-- Chunks of a range that wait for their embedding: those that begin a document, then the others;
-- of the newest documents first, to which those without a time belong: they came just now.
SELECT chunk_id FROM chunks JOIN documents USING (document_id)
WHERE vector_id IS NULL AND chunk_id BETWEEN :first AND :last
ORDER BY position > 1, modified_ns IS NOT NULL, modified_ns DESC, chunk_id;

-- name: count_chunks_without_vector$
-- How many chunks of a range wait for their embedding.
SELECT count(*) FROM chunks WHERE vector_id IS NULL AND chunk_id BETWEEN :first AND :last;

-- name: has_chunk_without_vector$
-- Whether a chunk of a range waits for its embedding.
SELECT EXISTS (
  SELECT 1 FROM chunks WHERE vector_id IS NULL AND chunk_id BETWEEN :first AND :last
);

-- name: count_chunks_and_vectors
-- How many chunks some ranges (JSON list of pairs) have, and how many of them have their embedding.
SELECT count(*), count(vector_id)
FROM json_each(:ranges) CROSS JOIN chunks ON chunk_id BETWEEN value ->> 0 AND value ->> 1;

-- name: has_more_vectors$
-- Whether more than so many chunks have a vector.
SELECT count(*) > :most
FROM (SELECT 1 FROM chunks WHERE vector_id IS NOT NULL LIMIT :most + 1);

-- name: merge_keyword_segments!
-- Merge the keyword index into one segment, which drops the terms of what was deleted.
INSERT INTO keyword_index (keyword_index) VALUES ('optimize');

-- name: passages_of_document
-- All that the keyword index takes of a document's passages.
SELECT title, heading, body, extra FROM chunk_texts WHERE document_id = :document_id;

-- name: passages_with
-- What passages with a word say, whatever form it has; of many the first.
SELECT title, heading, body, extra FROM keyword_index WHERE keyword_index MATCH :query LIMIT 1000;

-- name: passages_of_documents
-- The passages of these documents (JSON list of ids), in order, with their leads.
SELECT chunks.document_id, section, start_line, end_line,
       chunks.start_character, chunks.end_character,
       coalesce(chunk_leads.start_character, 0), coalesce(chunk_leads.end_character, 0)
FROM json_each(:document_ids) CROSS JOIN chunks ON chunks.document_id = json_each.value
LEFT JOIN chunk_leads USING (chunk_id)
ORDER BY chunks.document_id, chunks.position;
