"""The contract between the API and the workers. Imports neither."""
