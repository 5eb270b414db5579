-- Where the parts of converted documents stand in their files.
CREATE TABLE places (
  document_id INTEGER NOT NULL REFERENCES documents (document_id) ON DELETE CASCADE,
  start_line  INTEGER NOT NULL,         -- of the converted text
  kind        TEXT NOT NULL CHECK (kind IN ('page', 'slide', 'sheet', 'cell')),
  label       TEXT NOT NULL,            -- a number from 1; the name of a sheet
  PRIMARY KEY (document_id, start_line)
) STRICT, WITHOUT ROWID;
