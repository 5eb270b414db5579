-- Statements of kb/search/typos.py.

-- name: words_with_prefix
-- The words that begin with a prefix, with their stems; `after` is the first text behind them.
SELECT word, stem FROM vocabulary WHERE word >= :prefix AND word < :after ORDER BY word;

-- name: words_between
-- The words from one text to another, of a length between two numbers of letters.
SELECT word FROM vocabulary
WHERE word >= :prefix AND word < :after AND length(word) BETWEEN :shortest AND :longest;

-- name: endings_between
-- As words_between, read from their ends.
SELECT ending FROM word_endings
WHERE ending >= :prefix AND ending < :after AND length(ending) BETWEEN :shortest AND :longest;

-- name: words_of_length
-- The words of a length between two numbers of letters, one a line.
SELECT group_concat(word, char(10)) FROM vocabulary
WHERE length(word) BETWEEN :shortest AND :longest;

-- name: stems_of_words
-- The stems of these words (JSON list).
SELECT word, stem FROM vocabulary WHERE word IN (SELECT value FROM json_each(:words));

-- name: stem_is_known$
-- Whether a word with this stem was ever stored: 1, or no row.
SELECT 1 FROM vocabulary WHERE word >= :prefix AND word < :after AND stem = :stem LIMIT 1;
