"""A twin whose sites nothing joins but their producers, which send to both."""
