"""python -m llamatap RUN/activations.stream | unix:PATH: lists the tensors of a stream, also while it is written."""

import os
import sys

from .stream import read


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"{len(sys.argv) - 1} arguments: give RUN/activations.stream, whose index is next to it, or unix:PATH")
    try:
        for t in read(sys.argv[1]):
            print(t.name, t.layer, t.tokens, t.positions, t.array.shape, t.array.dtype)
        sys.stdout.flush()
    except BrokenPipeError:  # as of "| head": nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as e:
        sys.exit(f"{e}: give RUN/activations.stream, whose index is next to it, or unix:PATH")
    except (ValueError, ImportError) as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main()
