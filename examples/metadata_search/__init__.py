"""Rows of an application and a full-text index that is kept in step with them."""
