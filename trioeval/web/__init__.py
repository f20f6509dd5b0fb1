"""The live view: pages that show runs while they go on, and how a run lets itself be watched and steered."""
