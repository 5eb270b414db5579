"""Text becomes title, outline, blocks, links and chunks."""
