"""The checks of ``penstock doctor`` for a server: its settings, ports and certificate.

Penstock works without a server, so a problem here is at most a warning.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cli._check import Check
from penstock.errors import AddressUnusable, CertificateUnusable, PenstockError

if TYPE_CHECKING:
    from penstock.server import Config

__all__ = ["check_server"]

_EXPIRES_SOON: Final = timedelta(days=30)


def check_server() -> list[Check]:
    """Check the server that ``penstock serve`` would start here."""
    from penstock.server import load_config

    try:
        config = load_config(environ=os.environ)
    except (PenstockError, OSError) as error:
        return [
            Check(name="server settings", status="warn", found=str(error), fix="to run a server: correct the setting")
        ]
    how = "TLS" if config.uses_tls else "plain"
    found = f"{config.host}, ports {config.port} and {config.http_port}, {how}, store {config.store}"
    return [Check(name="server settings", status="ok", found=found), _check_ports(config), _check_certificate(config)]


def _check_ports(config: Config) -> Check:
    from penstock.server import listen

    try:
        for port in (config.port, config.http_port):
            listen(config.host, port).close()
    except AddressUnusable as error:
        fix = "if that is not your server: stop it, or choose another port"
        return Check(name="server ports", status="warn", found=f"{error.address}: {error.reason}", fix=fix)
    return Check(name="server ports", status="ok", found="free")


def _check_certificate(config: Config) -> Check:
    name = "server certificate"
    if not config.uses_tls:
        return Check(name=name, status="ok", found="not needed")
    own = Path(config.store)
    cert = Path(config.tls_cert or own / "server.crt")
    if config.tls_cert is None and not cert.exists():
        return Check(name=name, status="ok", found="created at the first start")
    try:
        from penstock.ports import SystemClock
        from penstock.server import load_certificate

        expires = load_certificate(cert, Path(config.tls_key or own / "server.key"), clock=SystemClock()).expires
    except ImportError as error:
        fix = "to run a server: in a clone of Penstock, run pip install '.[server]'"
        return Check(name=name, status="warn", found=f"cannot be read: {error}", fix=fix)
    except CertificateUnusable as error:
        return Check(
            name=name,
            status="warn",
            found=str(error),
            fix="configure another one, or remove the generated one to have it created again",
        )
    found = f"{cert}, valid until {expires:%Y-%m-%d}"
    if expires - datetime.now(UTC) < _EXPIRES_SOON:
        return Check(name=name, status="warn", found=found, fix="renew it soon")
    return Check(name=name, status="ok", found=found)
