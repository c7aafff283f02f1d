"""Samples: what a user of Slackwater writes."""
