"""Nodes talking to nodes: vocabulary, frames, links, membership. Knows no job."""
