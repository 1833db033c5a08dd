"""The one exception of the converter, and how text that a hostile file chose is shown in its message."""


class ConvertError(Exception):
    """The checkpoint, or what was asked of it, cannot be converted. Its text is one line for a person."""


def show(text, limit=80):
    """Text from a file, fit for a message: quoted, no control characters, not long."""
    text = str(text)
    if len(text) > limit:
        text = text[:limit] + "..."
    return "'" + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text) + "'"


def shape_text(shape):
    return "[" + ", ".join(str(n) for n in shape) + "]"
