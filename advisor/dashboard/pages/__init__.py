"""The pages: each module has what a page shows, as JSON-ready values, and its addresses."""
