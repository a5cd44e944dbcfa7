"""labkit: a course and lab kit on pre-training and transfer learning in NLP.

The alphabet of shapes.  A tensor whose shape is worth knowing ends in it: `tokens_BT`, `q_BHQE`.

    B batch    T positions of the text    Q queries    K keys    M remembered positions
    R distances    D width of the model    H heads    E width of a head
    F width of the feed-forward    V vocabulary    N items picked from a batch
    1 a broadcast axis

Masks and scalars have plain names.  A mask is boolean, and True always means: takes part.
"""

__version__ = "0.1.0"
