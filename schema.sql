-- The kb file, newest version. One SQLite file holds a project's whole knowledge.
--
-- Source tables come first: they are the truth, migrated from version to version. Derived
-- tables and views follow: everything in them can be rebuilt from the source tables, and a
-- migration drops and rebuilds them. Every table here opens in a plain sqlite3 shell.
--
-- Times are UTC text, YYYY-MM-DDTHH:MM:SSZ. Positions count code points, lines count from 1.

PRAGMA application_id = 0x6b62646f;  -- "kbdo"
PRAGMA user_version = 7;

-------------------------------------------------------------------------------- source tables

-- One row is a project on one branch in one folder, as activated by a client. Collections that
-- belong to a project are seen only while it is active. Written by activation.
CREATE TABLE projects (
  project_id   INTEGER PRIMARY KEY,
  name         TEXT NOT NULL,
  branch       TEXT NOT NULL,           -- a detached head is detached-<first 8 of the commit>
  path_hash    TEXT NOT NULL,           -- first 16 hex digits of SHA-256 of the absolute root
  root         TEXT NOT NULL,           -- absolute folder at the last activation
  activated_at TEXT NOT NULL,           -- the last activation that found something changed
  UNIQUE (name, branch, path_hash)
) STRICT;

-- One row is a set of documents with one origin: a folder, an archive, a project's external
-- documentation, a named index filled by tool calls, or the discoveries of an assistant.
-- Written by adding and syncing; deleting it deletes all that hangs on it. A source inside the
-- project whose .kb folder holds this file is kept as ./path, relative to the project.
CREATE TABLE collections (
  collection_id   INTEGER PRIMARY KEY,  -- below 2^31: it is the upper half of every chunk_id
  name            TEXT NOT NULL UNIQUE, -- what clients call the collection
  kind            TEXT NOT NULL CHECK (kind IN
                    ('documents', 'archive', 'external', 'index', 'discoveries')),
  source          TEXT NOT NULL DEFAULT '',    -- absolute folder or file; '' when filled by calls
  include         TEXT NOT NULL DEFAULT '[]',  -- JSON list of globs; [] means every known format
  exclude         TEXT NOT NULL DEFAULT '[]',  -- JSON list of globs; wins over include
  options         TEXT NOT NULL DEFAULT '{}',  -- JSON: settings of one kind, such as min_length
  description     TEXT,
  version         TEXT,
  project_id      INTEGER               -- NULL: seen in every project
                    REFERENCES projects (project_id) ON DELETE CASCADE,
  created_at      TEXT NOT NULL,
  synced_at       TEXT                  -- end of the last complete sync; NULL: never
) STRICT;
CREATE INDEX collections_by_project ON collections (project_id);

-- One row is one document with its whole text. Written by the store step alone, which replaces
-- a document together with all that hangs on it in one transaction. document_id and chunk_id
-- hold the collection in their upper half (collection_id * 2^32 + n), so that one collection is
-- one range of row ids in every index.
CREATE TABLE documents (
  document_id     INTEGER PRIMARY KEY,
  collection_id   INTEGER NOT NULL REFERENCES collections (collection_id) ON DELETE CASCADE,
  path            TEXT NOT NULL,        -- the document's id for clients; "/" on every system
  title           TEXT NOT NULL,
  summary         TEXT NOT NULL,        -- first paragraph, 500 characters at most; '' if none
  metadata        TEXT NOT NULL DEFAULT '{}',  -- JSON object: front matter, or given by the caller
  content_hash    BLOB NOT NULL,        -- SHA-256 of the source's raw bytes
  encoding        TEXT NOT NULL DEFAULT 'utf-8',
  file_size       INTEGER,              -- bytes on disk; NULL when it came by a call
  modified_ns     INTEGER,              -- file time in nanoseconds; NULL when it came by a call,
                                        -- or the file was too young for its time to be trusted
  character_count INTEGER NOT NULL,
  line_count      INTEGER NOT NULL,
  indexed_at      TEXT NOT NULL,
  content         TEXT NOT NULL,        -- decoded, no BOM, "\n" line ends; last: it may be long
  UNIQUE (collection_id, path)
) STRICT;

-- One row is what a document's file was when it was read, beside its size and time: with these alone a
-- file that was changed and given its old time again would pass for unchanged. It holds on the machine
-- that read it; a file without a row, or with another, is read again, and its hash decides. Files that
-- a sync fetches or unpacks have none of their own. Written by syncs.
CREATE TABLE file_states (
  document_id INTEGER PRIMARY KEY REFERENCES documents (document_id) ON DELETE CASCADE,
  changed_ns  INTEGER NOT NULL,         -- the file's change time in nanoseconds
  inode       INTEGER NOT NULL          -- of a bundle's documents both are the bundle's
) STRICT;

-- One row is a heading with everything up to the next heading of its level or above, or a term of a
-- definition list with its definition.
CREATE TABLE sections (
  document_id   INTEGER NOT NULL REFERENCES documents (document_id) ON DELETE CASCADE,
  position      INTEGER NOT NULL,       -- from 0 in document order
  level         INTEGER NOT NULL CHECK (level BETWEEN 1 AND 6),
  heading       TEXT NOT NULL,          -- plain text
  heading_path  TEXT NOT NULL,          -- "Install > Linux"
  start_line    INTEGER NOT NULL,       -- the heading's own line
  end_line      INTEGER NOT NULL,       -- with subsections, trailing blank lines excluded
  body_end_line INTEGER NOT NULL,       -- without subsections; terms are in the body around them
  PRIMARY KEY (document_id, position)
) STRICT, WITHOUT ROWID;

-- One row is where a part of a converted document stands in its file: the text from this line on,
-- up to the next row's, is on this page, slide or sheet, or in this cell. Documents that were text
-- already have none. Replaced with its document.
CREATE TABLE places (
  document_id INTEGER NOT NULL REFERENCES documents (document_id) ON DELETE CASCADE,
  start_line  INTEGER NOT NULL,         -- of the converted text
  kind        TEXT NOT NULL CHECK (kind IN ('page', 'slide', 'sheet', 'cell')),
  label       TEXT NOT NULL,            -- a number from 1; the name of a sheet
  PRIMARY KEY (document_id, start_line)
) STRICT, WITHOUT ROWID;

-- One row is an embedding model that vectors of this file were made with. Exactly one is
-- current; a second one exists while `kb reembed` works.
CREATE TABLE models (
  model_id    INTEGER PRIMARY KEY,
  name        TEXT NOT NULL,
  width       INTEGER NOT NULL,         -- dimensions of a vector
  sha256      TEXT NOT NULL,            -- of the model file; '' when it is not known
  slope       REAL NOT NULL,            -- score = 1 / (1 + exp(-(slope * cosine + intercept)))
  intercept   REAL NOT NULL,
  is_current  INTEGER NOT NULL CHECK (is_current IN (0, 1)),
  UNIQUE (name, sha256, width)
) STRICT;
CREATE UNIQUE INDEX one_current_model ON models (is_current) WHERE is_current = 1;

-- One row is the embedding of one text by one model. Equal texts share a row, so nothing is
-- embedded twice. Rows that no chunk uses any more go at the end of a sync.
CREATE TABLE vectors (
  vector_id  INTEGER PRIMARY KEY,
  model_id   INTEGER NOT NULL REFERENCES models (model_id) ON DELETE CASCADE,
  text_hash  BLOB NOT NULL,             -- first 10 bytes of SHA-256 of the embedded text: so
                                        -- ten rows of 384 dimensions fill a page
  vector     BLOB NOT NULL,             -- int8 a dimension, scaled so that the largest is 127
  UNIQUE (model_id, text_hash)
) STRICT;

-- One row is a passage that is found as one: a range of its document's text.
CREATE TABLE chunks (
  chunk_id        INTEGER PRIMARY KEY,
  document_id     INTEGER NOT NULL REFERENCES documents (document_id) ON DELETE CASCADE,
  position        INTEGER NOT NULL,     -- from 1 in document order
  section         INTEGER,              -- position of the one it lies in; NULL before any heading
  start_line      INTEGER NOT NULL,
  end_line        INTEGER NOT NULL,
  start_character INTEGER NOT NULL,     -- from 0; the text is content[start:end]
  end_character   INTEGER NOT NULL,
  extra_terms     TEXT NOT NULL,        -- terms that the tokenizer cannot see: see kb/text/terms.py
  text_hash       BLOB NOT NULL,        -- of the embedded text (title, path, text); as in vectors
  vector_id       INTEGER REFERENCES vectors (vector_id),  -- NULL: not embedded yet
  UNIQUE (document_id, position)
) STRICT;
CREATE INDEX chunks_by_vector ON chunks (vector_id);

-- One row is what stands in front of a passage in its document and is needed to understand it: the
-- header row of its table, the line that introduces its list, the sentence before its code. Most
-- passages have none. Embedded, indexed and shown with the passage; replaced with it.
CREATE TABLE chunk_leads (
  chunk_id        INTEGER PRIMARY KEY REFERENCES chunks (chunk_id) ON DELETE CASCADE,
  start_character INTEGER NOT NULL,     -- as in chunks
  end_character   INTEGER NOT NULL
) STRICT;

-- One row is a link that a document makes. Replaced with its document; the target is resolved
-- when it arrives and NULL again when it goes. The sentence round it is a range of the document's
-- text, or stands here where it is none; citation_texts has it either way.
CREATE TABLE citations (
  citation_id        INTEGER PRIMARY KEY,
  source_document_id INTEGER NOT NULL REFERENCES documents (document_id) ON DELETE CASCADE,
  target_document_id INTEGER REFERENCES documents (document_id) ON DELETE SET NULL,
  target_url         TEXT NOT NULL,     -- as written
  target_key         TEXT NOT NULL,     -- normalised path, page name or URL: what resolves it; where a
                                        -- sync knows it to be no document file:, external:, elsewhere:
  kind               TEXT NOT NULL,     -- inline, reference, autolink, wiki, footnote, metadata, similar,
                                        -- attachment (Org); of Sphinx: doc, ref, term, toctree, include
  context            TEXT,              -- the sentence round the link; NULL: it is the range
  start_character    INTEGER,           -- as in chunks; NULL: the sentence is in `context`
  end_character      INTEGER,
  confidence         REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1),
  line               INTEGER NOT NULL
) STRICT;
CREATE INDEX citations_by_source ON citations (source_document_id);
CREATE INDEX citations_by_target ON citations (target_document_id);
CREATE INDEX citations_by_key ON citations (target_key);

-- One row is one call of a tool: how it ended and how long it took, never what was in it. The
-- newest 10,000 are kept. Written by the server.
CREATE TABLE tool_calls (
  tool_call_id      INTEGER PRIMARY KEY,
  tool              TEXT NOT NULL,
  code              TEXT NOT NULL,      -- '' for success, else the error's code
  duration_ms       REAL NOT NULL,
  result_characters INTEGER NOT NULL,
  called_at         TEXT NOT NULL
) STRICT;

-- One row is one conversation of a client with the server: from its connection to its end, or
-- to 30 minutes without a call. Written by the server once something happened in it; the newest
-- 500 are kept.
CREATE TABLE sessions (
  session_id     TEXT PRIMARY KEY,      -- random UUID
  client         TEXT NOT NULL,         -- name and version the client gave; '' when it gave none
  started_at     TEXT NOT NULL,
  last_active_at TEXT NOT NULL,
  ended_at       TEXT                   -- NULL: under way, or the server was killed
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_start ON sessions (started_at);

-- One row is one thing that happened in a session: a file was read, a question was asked, a
-- discovery was recorded. Written by the server; goes with its session, and the newest 20,000 are
-- kept. How often a file was read stays counted in file_accesses.
CREATE TABLE session_events (
  session_event_id INTEGER PRIMARY KEY,
  session_id       TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
  kind             TEXT NOT NULL CHECK (kind IN ('read', 'query', 'discovery')),
  tool             TEXT NOT NULL,
  detail           TEXT NOT NULL,       -- the file's path, the query, or the discovery's id
  happened_at      TEXT NOT NULL
) STRICT;
CREATE INDEX session_events_by_session ON session_events (session_id);

-- One row is a file of the project that was read, and how often. Its score is 0.6 x recency +
-- 0.4 x access; the best files within the context budget are active, the others archived.
-- Written by read_file.
CREATE TABLE file_accesses (
  path             TEXT PRIMARY KEY,    -- relative to the project's root, "/" on every system
  module           TEXT NOT NULL,       -- '' when it belongs to none
  token_count      INTEGER NOT NULL,    -- about what the file takes of an assistant's context
  access_count     INTEGER NOT NULL,
  last_accessed_at TEXT NOT NULL,
  is_archived      INTEGER NOT NULL DEFAULT 0 CHECK (is_archived IN (0, 1))
) STRICT, WITHOUT ROWID;

-- One row is a token that a person or program shows to a server of this file over HTTP: who it is
-- for and what it may do. The token itself is nowhere; it has 256 random bits, so nobody can try
-- out what has this hash. A revoked one stays, so that the file goes on asking for tokens. Written
-- by `kb token`; left out of a copy for others.
CREATE TABLE tokens (
  token_hash          BLOB PRIMARY KEY, -- SHA-256 of the token
  name                TEXT NOT NULL,    -- of its owner; one of a name is valid at a time
  role                TEXT NOT NULL CHECK (role IN ('read', 'write')),
  requests_per_minute INTEGER,          -- NULL: as the server has it
  created_at          TEXT NOT NULL,
  expires_at          TEXT,             -- NULL: never
  revoked_at          TEXT              -- NULL: valid
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX one_valid_token_of_a_name ON tokens (name) WHERE revoked_at IS NULL;

------------------------------------------------------------------------------- derived tables

-- What the keyword index covers: one row a chunk, with its text cut out of the document. Its lead
-- is among the extra terms, so that `body` begins where the passage does.
CREATE VIEW chunk_texts AS
SELECT
  chunks.chunk_id,
  chunks.document_id,
  documents.title,
  coalesce(sections.heading_path, '') AS heading,
  coalesce(substr(documents.content, chunk_leads.start_character + 1,
                  chunk_leads.end_character - chunk_leads.start_character), '') AS lead,
  substr(documents.content, chunks.start_character + 1,
         chunks.end_character - chunks.start_character) AS body,
  CASE WHEN chunk_leads.chunk_id IS NULL THEN chunks.extra_terms
    ELSE chunks.extra_terms || char(10)
      || substr(documents.content, chunk_leads.start_character + 1,
                chunk_leads.end_character - chunk_leads.start_character)
  END AS extra
FROM chunks
JOIN documents USING (document_id)
LEFT JOIN sections
  ON sections.document_id = chunks.document_id AND sections.position = chunks.section
LEFT JOIN chunk_leads USING (chunk_id);

-- The keyword index. Its text lives in chunk_texts. M* keeps vowel signs and accents inside
-- words (Thai, Hindi, Hebrew); porter stems English endings. Rebuild it from a shell with
--   INSERT INTO keyword_index (keyword_index) VALUES ('rebuild');
CREATE VIRTUAL TABLE keyword_index USING fts5 (
  title, heading, body, extra,
  content = 'chunk_texts', content_rowid = 'chunk_id',
  tokenize = "porter unicode61 remove_diacritics 2 categories 'L* N* Co M*'"
);

-- The terms of the keyword index with the number of chunks that hold them.
CREATE VIRTUAL TABLE keyword_terms USING fts5vocab (keyword_index, row);

-- The occurrences of the keyword index's terms: doc, col, offset. Named indexes count with it.
CREATE VIRTUAL TABLE keyword_instances USING fts5vocab (keyword_index, instance);

-- One row is a word of the keyword index as it is written, lower case and without accents. Added
-- to whenever a document is stored. A word stays when the last document that holds it goes; that
-- does no harm, since whatever is looked up here is then searched in the keyword index. A word
-- begins as its stem does but for the stem's last letter, so it is found by that as well.
CREATE TABLE vocabulary (
  word TEXT PRIMARY KEY,
  stem TEXT NOT NULL                    -- the keyword index's term for it
) STRICT, WITHOUT ROWID;

-- One row is a word of the vocabulary read from its end, if typos of it are looked for. A word with
-- one typo in it begins or ends as it should, so it is found among the words that begin or end as it
-- does. See kb/search/typos.py.
CREATE TABLE word_endings (
  ending TEXT PRIMARY KEY               -- "enav" for "vane"
) STRICT, WITHOUT ROWID;

-- The vector index: the signs of 1,024 consecutive chunks' vectors, packed to one bit a
-- dimension. Candidates come from here by Hamming distance, their exact order from `vectors`.
-- Rebuilt slab by slab in the transaction that changes a vector of it.
CREATE TABLE vector_slabs (
  slab_id INTEGER PRIMARY KEY,          -- chunk_id >> 10
  offsets BLOB NOT NULL,                -- uint16 each: chunk_id & 1023
  signs   BLOB NOT NULL                 -- width / 8 bytes each, in the order of offsets
) STRICT;

-- The mean direction of the vectors of a document that has several chunks; int8 as in
-- `vectors`. Rebuilt in the transaction that changes a vector of it.
CREATE TABLE document_vectors (
  document_id INTEGER PRIMARY KEY REFERENCES documents (document_id) ON DELETE CASCADE,
  vector      BLOB NOT NULL
) STRICT;

-- What a document answers to when it is cited, and its tags: one row a name. Rebuilt with its
-- document.
CREATE TABLE document_keys (
  key         TEXT NOT NULL,            -- "path:", "page:", "url:", "tag:" or "date:" and its form
  document_id INTEGER NOT NULL REFERENCES documents (document_id) ON DELETE CASCADE,
  rank        INTEGER NOT NULL,         -- 0 for the most literal name; of two the lower wins
  PRIMARY KEY (key, document_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX document_keys_by_document ON document_keys (document_id);

-- The longer paragraphs of research reports, to find those that say the same.
CREATE TABLE report_paragraphs (
  paragraph_id INTEGER PRIMARY KEY,
  document_id  INTEGER NOT NULL REFERENCES documents (document_id) ON DELETE CASCADE,
  line         INTEGER NOT NULL,
  word_count   INTEGER NOT NULL,        -- different words
  words        BLOB NOT NULL            -- uint32 hashes of them, ascending
) STRICT;
CREATE INDEX report_paragraphs_by_document ON report_paragraphs (document_id);

-- Numbers by which alike paragraphs are found: most pairs of them share one (see kb/store/similar.py).
-- They follow from a paragraph's words, so an index to delete them by would be waste.
CREATE TABLE report_signatures (
  signature    INTEGER NOT NULL,        -- hash of one band of the paragraph's MinHash values
  paragraph_id INTEGER NOT NULL,
  PRIMARY KEY (signature, paragraph_id)
) STRICT, WITHOUT ROWID;

---------------------------------------------------------------------------- views for people

-- Collections with their sizes.
CREATE VIEW collection_overview AS
SELECT
  name, kind, source,
  (SELECT count(*) FROM documents WHERE collection_id = collections.collection_id) AS documents,
  (SELECT count(*) FROM documents JOIN chunks USING (document_id)
    WHERE collection_id = collections.collection_id) AS chunks,
  (SELECT count(vector_id) FROM documents JOIN chunks USING (document_id)
    WHERE collection_id = collections.collection_id) AS embedded_chunks,
  synced_at
FROM collections;

-- Links with the sentence round each.
CREATE VIEW citation_texts AS
SELECT
  citation_id, source_document_id, target_document_id, target_url, kind, line,
  coalesce(context, replace(substr(content, start_character + 1, end_character - start_character),
                            char(10), ' ')) AS context
FROM citations JOIN documents ON document_id = source_document_id;

-- Documents with the name of their collection, without their text.
CREATE VIEW document_overview AS
SELECT
  collections.name AS collection, documents.path, documents.title, documents.summary,
  documents.character_count, documents.line_count, documents.encoding, documents.indexed_at
FROM documents JOIN collections USING (collection_id);
