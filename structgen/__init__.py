"""structgen."""
