"""``penstock completion``: print the completion script of a shell."""

from typing import Annotated, Literal

import typer

EXAMPLE = "penstock completion bash"


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print a script for a shell, which completes commands and options with the Tab key.

    \b
    bash, in ~/.bashrc:  eval "$(penstock completion bash)"
    zsh, in ~/.zshrc, after compinit:  eval "$(penstock completion zsh)"
    fish, once:  penstock completion fish > ~/.config/fish/completions/penstock.fish
    """  # noqa: D301 - it keeps lines as they are
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="penstock", complete_var="_PENSTOCK_COMPLETE", shell=shell))
