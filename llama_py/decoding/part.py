"""Part of a sequence in a batch: pending tokens and rows of images, then a draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_py.batch.entries import Entries, MediaRows
from llama_py.decoding.track import Track


@dataclass(slots=True)
class Part:
    """Entries of a sequence in a batch.

    tokens   ids, -1 for each row of an image;  n_rows  number of last tokens with logits
    n_ids    number of pending ids that the batch completes
    entries  the tokens with rows of images; None for tokens only
    images   images, and the number of their rows in the batch
    """

    track: Track
    tokens: list[int]
    n_rows: int
    n_ids: int
    entries: Entries | None = None
    images: Sequence[tuple[MediaRows, int]] = ()

    def append_entries(self, entries: Entries) -> None:
        """Append this part to the entries of a batch."""
        if self.entries is None:
            entries.add_tokens(self.tokens, self.track.pos)
        else:
            entries.add(self.entries)

    def note_images(self) -> None:
        """Count the rows of images as computed, and forget complete images."""
        for image, n in self.images:
            image.n_done += n
        for at in [at for at, image in self.track.images.items() if not image.n_left]:
            del self.track.images[at]


def part_with_images(track: Track, most: int, most_ids: int, n_axes: int) -> Part:
    """Return pending tokens and rows of placed images, in order.

    most      maximum number of entries
    most_ids  maximum number of ids, except that an image is not cut there
    n_axes    number of position axes of the model
    """
    entries, i = Entries(n_axes), 0
    images = list[tuple[MediaRows, int]]()
    end = min(len(track.pending), most_ids)
    while i < end and len(entries) < most:
        room, image = most - len(entries), track.images.get(track.pos + i)
        if image is None:
            following = [at - track.pos for at in track.images if at > track.pos + i]
            n = min(room, min(following, default=end) - i, end - i)
            entries.add_tokens(track.pending[i : i + n], track.pos + i)
            i += n
            continue
        n = min(room, image.n_left)
        entries.add_rows(image, image.n_done, n)
        images.append((image, n))
        if n < image.n_left:
            break
        i += image.n_pos
    return Part(track, entries.tokens, int(i == len(track.pending)), i, entries, images)
