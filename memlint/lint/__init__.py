"""Rules: what they are, where they come from, and how they run over sources and traces. No torch here."""
