"""What measurements say by themselves: comparisons of stacks, and the ratios that the estimator is conditioned on."""
