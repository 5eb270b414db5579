-- The file says the same in less room, and whom a server answers.

-- What documents hold follows from what their passages hold.
DROP TABLE document_instances;
DROP TABLE document_index;
DROP VIEW document_texts;
CREATE VIRTUAL TABLE keyword_instances USING fts5vocab (keyword_index, instance);

-- A word that is one typo away is found by its beginning or its end, which takes one row a word. One
-- for each of its letters took a twelfth of the file.
DROP TABLE word_deletions;
DROP INDEX vocabulary_by_stem;
ALTER TABLE vocabulary RENAME TO old_vocabulary;
CREATE TABLE vocabulary (
  word TEXT PRIMARY KEY,
  stem TEXT NOT NULL                    -- the keyword index's term for it
) STRICT, WITHOUT ROWID;
INSERT INTO vocabulary (word, stem) SELECT word, stem FROM old_vocabulary ORDER BY word;
DROP TABLE old_vocabulary;
CREATE INDEX vocabulary_by_stem ON vocabulary (stem);
CREATE TABLE word_endings (
  ending TEXT PRIMARY KEY               -- "enav" for "vane"
) STRICT, WITHOUT ROWID;
-- Words of 3 to 40 characters without a digit, as kb/store/vocabulary.py has it.
WITH RECURSIVE reversed (word, ending, at) AS (
  SELECT word, '', length(word) FROM vocabulary
  WHERE length(word) BETWEEN 3 AND 40 AND word NOT GLOB '*[0-9]*'
  UNION ALL
  SELECT word, ending || substr(word, at, 1), at - 1 FROM reversed WHERE at > 0
)
INSERT INTO word_endings (ending) SELECT ending FROM reversed WHERE at = 0 ORDER BY ending;

-- Tokens of the people whom a server answers over HTTP.
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
