"""The decode engine: the target model, the sampler and the loop that joins them with the grammar."""
