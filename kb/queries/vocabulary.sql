-- Statements of kb/store/vocabulary.py.

-- name: unknown_words
-- Of these words (JSON list), those that the vocabulary lacks.
SELECT value FROM json_each(:words)
WHERE NOT EXISTS (SELECT 1 FROM vocabulary WHERE word = value);

-- name: insert_word!
-- Add a word.
INSERT INTO vocabulary (word, stem) VALUES (:word, :stem);

-- name: insert_deletion!
-- Note a word with one letter left out.
INSERT INTO word_deletions (deletion, word_id)
SELECT :deletion, word_id FROM vocabulary WHERE word = :word
ON CONFLICT DO NOTHING;

-- name: words_without_passages
-- The words whose stem no passage has any more.
SELECT word FROM vocabulary WHERE stem NOT IN (SELECT term FROM keyword_terms);

-- name: delete_word_deletions!
-- Delete a word's forms with one letter left out (JSON list).
DELETE FROM word_deletions
WHERE deletion IN (SELECT value FROM json_each(:deletions))
  AND word_id = (SELECT word_id FROM vocabulary WHERE word = :word);

-- name: delete_word!
-- Delete a word.
DELETE FROM vocabulary WHERE word = :word;
