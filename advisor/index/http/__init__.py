"""HTTP requests to package indexes: connections, deadlines, retries and errors."""
