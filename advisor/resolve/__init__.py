"""Resolution of requirements to the best stack: candidates, baseline, exact optimum, verification, explanation."""
