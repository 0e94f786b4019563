"""``penstock completion``: print the completion script of a shell."""

from typing import Annotated, Final, Literal

import typer

EXAMPLE = "penstock completion bash"
_VARIABLE: Final = "_PENSTOCK_COMPLETE"
_ZSH: Final = r"""#compdef penstock

_penstock_completion() {
  local line value
  local -a found
  for line in "${(@f)$(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _TYPER_COMPLETE_FISH_ACTION=get-args \
      _PENSTOCK_COMPLETE=complete_fish penstock)}"; do
    value=${line%%$'\t'*}
    [[ -n $value ]] && found+=("${value//:/\\:}${${line#$value}/$'\t'/:}")
  done
  if (( $#found )); then
    _describe -V penstock found
  else
    compset -P '--*='
    _files
  fi
}

compdef _penstock_completion penstock
"""  # typer's own evaluates the help of commands as code, and loses the quotes in it; that for fish prints plain lines


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

    if shell == "zsh":
        typer.echo(_ZSH, nl=False)
        return
    typer.echo(get_completion_script(prog_name="penstock", complete_var=_VARIABLE, shell=shell))
