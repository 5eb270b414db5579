-- Statements of kb/store/access_tokens.py.

-- name: insert_token!
-- Keep a token by its hash.
INSERT INTO tokens (token_hash, name, role, requests_per_minute, created_at, expires_at)
VALUES (:token_hash, :name, :role, :requests_per_minute, :created_at, :expires_at);

-- name: unrevoked_tokens
-- Every token that was not revoked, as `insert_token` takes it.
SELECT token_hash, name, role, requests_per_minute, created_at, expires_at FROM tokens
WHERE revoked_at IS NULL;

-- name: token_by_hash
-- The valid token that has this hash.
SELECT name, role, requests_per_minute, created_at AS created, expires_at AS expires,
       revoked_at AS revoked, 'valid' AS state
FROM tokens
WHERE token_hash = :token_hash AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > :now);

-- name: has_tokens$
-- Whether any token was ever made, and not forgotten.
SELECT EXISTS (SELECT 1 FROM tokens);

-- name: all_tokens
-- Every token, valid ones first.
SELECT
  name, role, requests_per_minute, created_at AS created, expires_at AS expires,
  revoked_at AS revoked,
  CASE WHEN revoked_at <> '' THEN 'revoked' WHEN expires_at <= :now THEN 'expired' ELSE 'valid'
  END AS state
FROM tokens
ORDER BY revoked_at IS NOT NULL, name, created_at;

-- name: revoke_token!
-- End the valid token of a name.
UPDATE tokens SET revoked_at = :now WHERE name = :name AND revoked_at IS NULL;

-- name: forget_tokens!
-- Forget tokens that are of no use any more.
DELETE FROM tokens WHERE revoked_at IS NOT NULL OR expires_at <= :now;

-- name: valid_tokens
-- Those of some hashes, in hexadecimal as a JSON list, that are valid.
SELECT lower(hex(token_hash)) AS token_hash FROM tokens
WHERE token_hash IN (SELECT unhex(value) FROM json_each(:hashes))
  AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now);
