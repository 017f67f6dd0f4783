"""Kafka's consumer group for long: members come and go, acknowledgements are lost, turns kill their workers."""
