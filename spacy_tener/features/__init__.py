"""From a Doc's text to numbers: string tables, pairs of neighbours, pretrained vectors."""
