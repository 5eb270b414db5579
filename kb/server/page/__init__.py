"""The page in the browser: made on the server, plain without scripts, everything escaped."""
