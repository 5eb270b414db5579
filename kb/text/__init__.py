"""Characters, words and sentences, for all who need them."""
