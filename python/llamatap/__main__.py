"""python -m llamatap RUN/activations.stream | unix:PATH: lists the tensors of a stream, also while it is written."""

import sys

from .stream import read


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"{len(sys.argv) - 1} arguments: give RUN/activations.stream, whose index is next to it, or unix:PATH")
    try:
        for t in read(sys.argv[1]):
            print(t.name, t.layer, t.tokens, t.positions, t.array.shape, t.array.dtype)
    except (OSError, ValueError, ImportError) as e:
        cause = str(e)
        if "give RUN" not in cause:
            cause += ": give RUN/activations.stream, whose index is next to it, or unix:PATH"
        sys.exit(cause)


if __name__ == "__main__":
    main()
