-- What tells a file that has its old size and time again: the next sync reads all files once.

-- One row is what a document's file was when it was read, beside its size and time: with these alone a
-- file that was changed and given its old time again would pass for unchanged. It holds on the machine
-- that read it; a file without a row, or with another, is read again, and its hash decides. Files that
-- a sync fetches or unpacks have none of their own. Written by syncs.
CREATE TABLE file_states (
  document_id INTEGER PRIMARY KEY REFERENCES documents (document_id) ON DELETE CASCADE,
  changed_ns  INTEGER NOT NULL,         -- the file's change time in nanoseconds
  inode       INTEGER NOT NULL          -- of a bundle's documents both are the bundle's
) STRICT;

-- Documents of most formats are read otherwise: with terms of definition lists as headings, tables,
-- formulas. Their texts stay until then, and so do the vectors of passages that stay the same.
UPDATE documents SET content_hash = x''
WHERE collection_id IN (SELECT collection_id FROM collections WHERE source <> '');
