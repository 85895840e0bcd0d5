"""MLPerf Training's published results as observations."""
