"""The bus: nodes talking to nodes. Vocabulary, frames, links and membership; the bus knows no job."""
