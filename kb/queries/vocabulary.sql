-- Statements of kb/store/vocabulary.py.

-- name: unknown_words
-- Of these words (JSON list), those that the vocabulary lacks.
SELECT value FROM json_each(:words)
WHERE NOT EXISTS (SELECT 1 FROM vocabulary WHERE word = value);

-- name: insert_word!
-- Add a word.
INSERT INTO vocabulary (word, stem) VALUES (:word, :stem);

-- name: insert_ending!
-- Add a word read from its end.
INSERT OR IGNORE INTO word_endings (ending) VALUES (:ending);

-- name: words_without_passages
-- The words whose stem no passage has any more.
SELECT word FROM vocabulary WHERE stem NOT IN (SELECT term FROM keyword_terms);

-- name: delete_ending!
-- Delete a word read from its end.
DELETE FROM word_endings WHERE ending = :ending;

-- name: delete_word!
-- Delete a word.
DELETE FROM vocabulary WHERE word = :word;

-- name: all_words
-- Every word.
SELECT word FROM vocabulary;

-- name: all_endings
-- Every word that is kept read from its end.
SELECT ending FROM word_endings;
