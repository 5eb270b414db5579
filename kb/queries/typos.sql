-- Statements of kb/search/typos.py.

-- name: words_with_prefix
-- The words that begin with a prefix, with their stems; `after` is the first text behind them.
SELECT word, stem FROM vocabulary WHERE word >= :prefix AND word < :after ORDER BY word;

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
