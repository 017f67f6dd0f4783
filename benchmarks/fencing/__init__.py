"""The fencing campaign: workers are killed, suspended and cut off while they run turns, and what is left is judged."""
