"""The campaign of envelopes: strays of all kinds are put into a queue among good turns, and what is left is judged."""
