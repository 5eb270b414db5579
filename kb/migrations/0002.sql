-- Every reference names the column it refers to: Datasette answered with an error for the seven
-- tables whose references did not.
--
-- Nothing that is stored changes, only the text of the tables' definitions, so that text alone is
-- edited, as SQLite's documentation of ALTER TABLE describes for constraints. However large the
-- file, this takes milliseconds. Making and dropping a table tells other connections to read the
-- schema again.
PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = replace(
  sql, 'REFERENCES projects ON', 'REFERENCES projects (project_id) ON') WHERE type = 'table';
UPDATE sqlite_schema SET sql = replace(
  sql, 'REFERENCES collections ON', 'REFERENCES collections (collection_id) ON')
WHERE type = 'table';
UPDATE sqlite_schema SET sql = replace(
  sql, 'REFERENCES documents ON', 'REFERENCES documents (document_id) ON') WHERE type = 'table';
UPDATE sqlite_schema SET sql = replace(
  sql, 'REFERENCES models ON', 'REFERENCES models (model_id) ON') WHERE type = 'table';
UPDATE sqlite_schema SET sql = replace(
  sql, 'REFERENCES sessions ON', 'REFERENCES sessions (session_id) ON') WHERE type = 'table';
UPDATE sqlite_schema SET sql = replace(
  sql, 'REFERENCES vectors,', 'REFERENCES vectors (vector_id),') WHERE type = 'table';

CREATE TABLE migrating (marker);
DROP TABLE migrating;
PRAGMA writable_schema = RESET;
