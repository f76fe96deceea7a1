"""Texts that every file can hold."""


def whole(text: str) -> str:
    r"""JSON can name half a character (`\ud83d` alone), as where an answer was cut within an emoji, and UTF-8 cannot
    hold one: each becomes the replacement character. Two halves that belong together become their character."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
