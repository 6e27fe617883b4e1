"""From a Doc's text to ids: keys of strings and pairs, words of lexicons, word pieces, segments, pretrained vectors."""
