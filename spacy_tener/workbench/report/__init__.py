"""Many runs gathered into tables and figures, beside what the papers printed; model cards."""
