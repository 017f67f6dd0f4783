"""The demonstration: a plan that is run on a throwaway repository, by agents that stand in for real ones."""
