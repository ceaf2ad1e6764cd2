"""Publishing a frontier, and opening one: consumed only when proven."""
