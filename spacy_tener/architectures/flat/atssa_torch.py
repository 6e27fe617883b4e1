"""The FLAT-ATSSA encoder in torch (Hu et al., 2022), for training and for prediction on a GPU.

The encoder consists of a word fusion layer and transformer layers with selective attention. `WordFusion` implements
section 3.3 of the paper. Each character attends to the lexicon words that contain the character. For a character at
position i, and a word from position `head` to position `tail`, the attention score A is

    R = W_r [p(i - head) ; p(i - tail)]    (eq. 15)
    A = (q + u) . k + (q + v) . R          (eq. 5)

where q is the query, k is the key, u and v are learned biases, and p is the sinusoidal position embedding. The product
in eq. 15 is computed as the sum of two products, one per distance. The products are looked up in small tables, because
no distance is longer than the longest word.

The arrays have one row for each pair of a character and a word that contains the character. So there is no padding, and
the number of rows is the total word length.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from ...embedders.lattice import Lattice
from ...nn.attention_torch import Attention, interleave, sinusoids
from ...nn.layers_torch import Linear, TransformerLayer, dropout
from ...nn.ragged_torch import Ragged, Segments
from ..tener.tener_torch import AdaptedAttention, RelativePositions
from .flat_config import AtssaConfig
from .plans import Covers
from .selection_torch import Selection, SelectiveAttention


class CoverSegments:
    """The pairs of a character and a lexicon word that contains it, as index tensors for one batch.

    lattice (Lattice): Word positions.
    device (torch.device | str): Device for the tensors.

    characters (Segments): The pairs, grouped by character.
    words (Segments): The pairs, grouped by word.
    from_head (Segments): The pairs, grouped by the distance between the word's first character and the character.
    from_tail (Segments): The pairs, grouped by the distance between the character and the word's last character.
    longest (int): Maximum word length in characters.
    """

    def __init__(self, lattice: Lattice, *, device: torch.device | str = "cpu") -> None:
        covers = Covers.of(lattice)
        self.longest = covers.longest
        self.characters = Segments.of(covers.characters, lattice.n_characters, device=device)
        self.words = Segments.of(covers.words, lattice.n_words, device=device)
        self.from_head = Segments.of(covers.from_head, covers.longest, device=device)
        self.from_tail = Segments.of(covers.from_tail, covers.longest, device=device)


class WordFusion(nn.Module):
    """Multi-head attention from each character to the lexicon words that contain it (Hu et al., 2022, eq. 13 to 15).

    As in the paper, the attention scores are not scaled.

    config (AtssaConfig): Encoder hyperparameters.
    char_width (int): Character embedding width.
    word_width (int): Word embedding width.
    """

    def __init__(self, config: AtssaConfig, char_width: int, word_width: int) -> None:
        super().__init__()
        self.width = width = config.width
        self.dropout = config.attention_dropout_rate
        self.query = Linear(char_width, width, bias=False)
        self.key = Linear(word_width, width, bias=False)
        self.value = Linear(word_width, width, bias=False)
        self.from_head = Linear(width, width, bias=False)
        self.from_tail = Linear(width, width, bias=False)
        self.u = nn.Parameter(nn.init.xavier_normal_(torch.empty(config.heads, config.head_width)))
        self.v = nn.Parameter(nn.init.xavier_normal_(torch.empty(config.heads, config.head_width)))

    def forward(self, chars: Tensor, words: Tensor, covers: CoverSegments) -> Tensor:
        """Compute the attention output for each character. For characters that no word contains, the output is zero.

        chars (Tensor): Character embeddings. *Shape:* (characters, character width)
        words (Tensor): Word embeddings. *Shape:* (words, word width)
        covers (CoverSegments): The pairs of a character and a word that contains the character.
        RETURNS (Tensor): *Shape:* (characters, width)
        """
        weights = self.weights(chars, words, covers)
        weights = dropout(weights, self.dropout, training=self.training)
        values = self._by_head(covers.words.gather(self.value(words)))
        return covers.characters.sum((weights[..., None] * values).flatten(1))

    def weights(self, chars: Tensor, words: Tensor, covers: CoverSegments) -> Tensor:
        """Compute the attention weight for each character and each word that contains it, a softmax over the words.

        RETURNS (Tensor): *Shape:* (pairs, heads)
        """
        return covers.characters.softmax(self.scores(chars, words, covers))

    def scores(self, chars: Tensor, words: Tensor, covers: CoverSegments) -> Tensor:
        """Compute the attention score for each character and each word that contains it (Hu et al., 2022, eq. 5).

        RETURNS (Tensor): *Shape:* (pairs, heads)
        """
        q = self._by_head(covers.characters.gather(self.query(chars)))
        k = self._by_head(covers.words.gather(self.key(words)))
        r = self._by_head(self.positions(covers, like=chars))
        return ((q + self.u) * k + (q + self.v) * r).sum(-1)

    def positions(self, covers: CoverSegments, *, like: Tensor) -> Tensor:
        """Compute each character's position embedding relative to each word that contains it (eq. 15).

        RETURNS (Tensor): *Shape:* (pairs, width)
        """
        sin, cos = sinusoids(covers.longest, self.width, like)
        # Eq. 15 embeds i - tail, which is the distance `-from_tail`. So the sine has the opposite sign.
        behind, ahead = self.from_head(interleave(sin, cos)), self.from_tail(interleave(-sin, cos))
        return covers.from_head.gather(behind) + covers.from_tail.gather(ahead)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(len(x), *self.u.shape)


def context_attention(config: AtssaConfig) -> Attention:
    """Create the attention module for a transformer layer.

    If `config.selection` is "none", each query attends to all keys. Otherwise, the module selects the keys.
    """
    sizes: Any = {"width": config.width, "n_heads": config.heads, "dropout": config.attention_dropout_rate}
    if not config.selects:
        return AdaptedAttention(**sizes, key_projection=True)
    make: Any = SelectiveAttention if config.selection == "adaptive" else config.selection
    selection = Selection(k=config.k, alpha=config.alpha, tau=config.tau)
    return cast(Attention, make(**sizes, selection=selection, penalty=config.penalty))


class AtssaEncoder(nn.Module):
    """The FLAT-ATSSA encoder.

    `WordFusion` computes a vector for each character from the words that contain the character. A linear layer combines
    this vector with the character embedding. Transformer layers then encode the characters.

    config (AtssaConfig): Encoder hyperparameters.
    char_width (int): Character embedding width.
    word_width (int): Word embedding width.
    """

    def __init__(self, config: AtssaConfig, char_width: int, word_width: int) -> None:
        super().__init__()
        self.config = config
        self.fusion = WordFusion(config, char_width, word_width)
        self.input = Linear(char_width + config.width, config.width)
        self.layers = nn.ModuleList(TransformerLayer(context_attention(config), config) for _ in range(config.layers))

    def forward(self, chars: Tensor, words: Tensor, lattice: Lattice) -> Tensor:
        """Encode the characters in a batch of sentences.

        chars (Tensor): Character embeddings. *Shape:* (characters, character width)
        words (Tensor): Word embeddings. *Shape:* (words, word width)
        lattice (Lattice): Word positions.
        RETURNS (Tensor): Character hidden states. *Shape:* (characters, width)
        """
        lattice.check_rows(characters=len(chars), words=len(words))
        fused = self.fusion(chars, words, CoverSegments(lattice, device=chars.device))
        x = self.input(torch.cat((chars, fused), dim=-1))
        ragged = Ragged.of(lattice.lengths, heads=self.config.heads, device=x.device)
        context: tuple[Any, ...] = ragged, RelativePositions.of(ragged, self.config.head_width, x)
        if self.config.selects:
            context += (Segments.of_sequences(lattice.lengths, device=x.device),)
        for layer in self.layers:
            x = layer(x, *context)
        return x
