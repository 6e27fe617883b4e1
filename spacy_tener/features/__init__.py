"""Features of a Doc's text: keys of strings and bigrams, lexicon words, radicals, segmentation, pretrained vectors."""
