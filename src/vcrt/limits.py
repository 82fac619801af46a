"""State each limit on how long episodes may be, and on how many orders or contexts of one are handled, with its reason.

A limit belongs here if it bounds operations, orders, contexts or sequences. Bounds of bytes, seconds or batches stand
with the code that keeps them.
"""

from __future__ import annotations

#: The most operations of an episode: a set of them is the bits of one 64-bit word, and there are as many pointers.
MAX_OPERATIONS = 64
#: The most operations whose linear extensions are counted: 20! is the largest factorial below 2^63.
MAX_COUNTED = 20
#: The most operations of which a probability is estimated from many paths: beyond, each path takes too long for that.
MAX_MANY_PATHS = 16
#: The most operations of which every reachable context is replayed, at most 2^10; beyond, contexts are sampled.
MAX_COMPLETE = 10
#: The most operations of a window of a run or a proof, all of whose 40,320 orders are put together from merged replay,
#: and of a generated theory with one dependent pair: more seldom hold an episode.
MAX_LIFTED = 8
#: The most operations of which a sampler walks every context of a candidate, at most 256: it looks at many candidates.
MAX_WALKED = 8
#: The most operations whose orders are all listed with their scores: 720, and seven times as many of one more.
MAX_LISTED = 6
#: The most operations of which every order is replayed by itself, shown to a second engine, and compared by the
#: conformance kit: 120.
MAX_EXHAUSTIVE = 5
#: The most operations whose orders are drawn as the corners of one figure: of 720, none could be told from the next.
MAX_DRAWN = 5
#: The most operations of which training and evaluation enumerate all orders, as columns: 24. Each order's probability
#: is exact, and one more operation would take five times the memory.
MAX_ENUMERATED = 4
#: The most contexts of one episode that are replayed completely: more take hours of a verifier such as Lean.
MAX_CONTEXTS = 50_000
#: The most sequences that one episode's evidence may have: as JSON, some 20 MiB.
MAX_SEQUENCES = 1_000_000
#: The most representatives of classes of orders that an episode's certification replays as a whole.
MAX_REPRESENTATIVES = 20_000
