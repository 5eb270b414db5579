"""A query becomes lists, evidence, one order; and what is shown of it."""
