"""Known vulnerabilities of package versions."""
