"""Annotated records as files: whole ones only, beside what says which of them are done."""
