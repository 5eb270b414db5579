-- Statements of kb/search/typos.py.

-- name: words_with_prefix
-- For each prefix (JSON list) the words that begin so, with their stems.
SELECT prefixes.value, word, stem FROM json_each(:prefixes) AS prefixes CROSS JOIN vocabulary
WHERE word >= prefixes.value AND word < prefixes.value || char(1114111)
ORDER BY prefixes.key, word;

-- name: words_alike
-- For each typed word (JSON object: word to how it begins, and how it ends, read from the end) those
-- of about its length that begin so, and those that end so: these reversed.
SELECT typed.key, word, FALSE FROM json_each(:words) AS typed CROSS JOIN vocabulary
WHERE word >= typed.value ->> 0 AND word < (typed.value ->> 0) || char(1114111)
  AND abs(length(word) - length(typed.key)) <= 1
UNION ALL
SELECT typed.key, ending, TRUE FROM json_each(:words) AS typed CROSS JOIN word_endings
WHERE ending >= typed.value ->> 1 AND ending < (typed.value ->> 1) || char(1114111)
  AND abs(length(ending) - length(typed.key)) <= 1;

-- name: words_of_length
-- The words of a length between two numbers of letters, one a line.
SELECT group_concat(word, char(10)) FROM vocabulary
WHERE length(word) BETWEEN :shortest AND :longest;

-- name: stems_of_words
-- The stems of these words (JSON list).
SELECT word, stem FROM vocabulary WHERE word IN (SELECT value FROM json_each(:words));
