"""The filter: every row gets a verdict, and every score that led to it is recorded."""
