"""The documentation: its pages, the scripts that write some of them, and the site that is built from them."""
