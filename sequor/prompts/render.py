"""Every prompt is a Jinja file beside this one; this is the one function that fills them in.

Values are put in as they are: braces, tags or template syntax inside an answer stay plain text. A field that a
template names and nobody gives is an error, never an empty string in a prompt.
"""

from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import StrictUndefined, Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

_environment = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, keep_trailing_newline=False, trim_blocks=True, lstrip_blocks=True, autoescape=False
)


def source(name: str) -> str:
    """The template's text. Raises FileNotFoundError."""
    return files("sequor.prompts").joinpath(f"{name}.jinja").read_text("utf-8")


def digest(name: str) -> str:
    """Names the template's wording in a run's fingerprint."""
    return sha256(source(name).encode()).hexdigest()[:16]


@cache
def _template(name: str) -> Template:
    return _environment.from_string(source(name))


def render(name: str, **fields: object) -> str:
    """Raises jinja2.UndefinedError when a field is missing."""
    return _template(name).render(**fields)
