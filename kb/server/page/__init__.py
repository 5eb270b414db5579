"""The page in the browser: made on the server, usable without scripts, everything escaped."""
