"""Follow what was made back to where it came from, and say what there is: from the files alone, without Dagster."""
