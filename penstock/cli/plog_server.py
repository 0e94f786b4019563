"""``penstock plog-server``: store replicas of plogs for the owners of a cluster."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "penstock plog-server --dir ./plogs-a --listen 127.0.0.1:0"


def plog_server(
    *,
    folder: Annotated[Path, typer.Option("--dir", metavar="FOLDER", help="The folder of replicas; created if needed.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 selects a free port.")],
    cluster: Annotated[str, typer.Option(help="The cluster that the server belongs to.")] = "local",
    group: Annotated[str, typer.Option(help="Its persistence group, three servers of which hold each plog.")] = "main",
    cpo: Annotated[
        str | None,
        typer.Option(envvar="PENSTOCK_CPO", metavar="URL", help="The oracle in which the cluster is registered."),
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The address that clients use. Default: that of --listen.")
    ] = None,
    http: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where metrics are served, if at all.")] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate, to use TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key of the certificate.")] = None,
    users: Annotated[
        Path | None,
        typer.Option(metavar="FILE", exists=True, help="A file of users; without it, no password is asked for."),
    ] = None,
    allow_plain: Annotated[
        bool, typer.Option("--allow-plain", help="Permit a port without TLS on a host that others can reach.")
    ] = False,
    scrub_days: Annotated[
        float, typer.Option(metavar="DAYS", help="How often the scrub begins to read all sealed replicas.")
    ] = 7.0,
    scrub_rate: Annotated[
        int, typer.Option(metavar="BYTES", help="How many bytes a second the scrub reads at most.")
    ] = 8 << 20,
    end_with_stdin: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Store replicas of plogs in a folder, for owners that come over the network, until Ctrl-C or SIGTERM.

    Owners find their user in PENSTOCK_PLOG_USER and PENSTOCK_PLOG_PASSWORD, or a token in PENSTOCK_PLOG_TOKEN, and
    certificates that they trust in PENSTOCK_PLOG_CA; the user needs the permission admin on "*". A host that others
    can reach needs --users and TLS.

    In the background, the scrub reads all sealed replicas, slowly. Owners replace those that it finds damaged.
    """
    from penstock.plog.server import ScrubSettings
    from penstock.server import PlogServerSettings, run_plog_server

    settings = PlogServerSettings(
        folder,
        listen,
        cluster,
        group,
        cpo,
        advertise,
        http,
        tls_cert=tls_cert,
        tls_key=tls_key,
        users=users,
        allow_plain=allow_plain,
        scrub=ScrubSettings(period_s=scrub_days * 86400, rate=scrub_rate),
        end_with_stdin=end_with_stdin,
    )
    run_plog_server(settings, ready=lambda address: typer.echo(f"plog-server\t{address}"))
