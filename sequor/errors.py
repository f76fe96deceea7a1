"""The errors that are raised on purpose. What the world does (a failed answer, a lost replica) is a value, never one.

Exception
└── BadInput      something that a person wrote or downloaded is wrong, and a person can mend it
"""

import msgspec

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for a text that is no JSON of the kind that was asked for; the last is nested without end."""


class BadInput(Exception):
    """A file, folder or setting that cannot be used. The message is one line: where (file, line or key) and what.

    Caught by the command line alone, which prints it and exits with 2: nothing was started.
    """

    def __init__(self, message: str):
        """Line ends in it, such as a key's, are written out."""
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in message))
