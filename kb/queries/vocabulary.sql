-- Statements of the vocabulary: words as written, their stems, and their deletions for typos.

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

-- name: words_with_prefix
-- The words that begin with a prefix, with their stems; `after` is the first text behind them.
SELECT word, stem FROM vocabulary WHERE word >= :prefix AND word < :after ORDER BY word;

-- name: stems_of_other_words
-- Of these stems (JSON list), those that words without the prefix have too.
SELECT DISTINCT stem FROM vocabulary
WHERE stem IN (SELECT value FROM json_each(:stems))
  AND NOT (word >= :prefix AND word < :after);

-- name: words_near
-- The words that are one of these texts (JSON list), or one of them with a letter more.
SELECT word, stem FROM vocabulary WHERE word IN (SELECT value FROM json_each(:texts))
UNION
SELECT word, stem FROM word_deletions JOIN vocabulary USING (word_id)
WHERE deletion IN (SELECT value FROM json_each(:texts));

-- name: words_of_length
-- The words of a length between two numbers of letters, one a line.
SELECT group_concat(word, char(10)) FROM vocabulary
WHERE length(word) BETWEEN :shortest AND :longest;

-- name: stems_of_words
-- The stems of these words (JSON list).
SELECT word, stem FROM vocabulary WHERE word IN (SELECT value FROM json_each(:words));

-- name: stem_is_known$
-- Whether a word with this stem was ever stored: 1, or no row.
SELECT 1 FROM vocabulary WHERE stem = :stem LIMIT 1;

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
