"""Reports: the results of commands as text, JSON, HTML and other formats."""
