"""What is fixed before a number is computed: settings of encoders, and where the rows of a batch lie."""
