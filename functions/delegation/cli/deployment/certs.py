"""`delegation certs …`: a private CA with the certificates of the service, its callers and its operators."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from delegation.cli.calls import Call, argument, command, defaulted, group, optional, switch
from delegation.cli.deployment.authority import CA, REVOCATION_LIST, Authority, Issued, exists, is_name
from delegation.cli.errors import CommandError
from delegation.cli.screens import Rows
from delegation.timestamps import isoformat, utc_now
from polaris_common.errors import counted

app = group("certs")
_FOLDER: Final = Path("pki")
_SOON: Final = timedelta(days=30)

DirOption = Annotated[Path, typer.Option("--dir", file_okay=False, help="The folder of the CA.")]
DaysOption = Annotated[int, typer.Option("--days", min=1, max=3650, help="The validity of a new certificate, in days.")]


def authority_stays() -> CommandError:
    return CommandError(
        "the CA in the folder is not replaced, because all its certificates would become invalid",
        "Make another CA with `delegation certs init --dir NEW`, put both CAs into the trust store, replace the "
        "certificates one by one, then remove the former CA from the trust store (page Deploying to AWS).",
        code="AUTHORITY_STAYS",
    )


@command(app, "init", "")
def init_command(
    call: Call,
    *,
    folder: DirOption = _FOLDER,
    organization: str = defaulted(
        "--organization", "The organization (O) in the subject of each certificate.", "Delegation"
    ),
    server: list[str] | None = optional(
        "--server",
        "A DNS name or IP address of the service, for a server certificate; may be repeated.",
        "HOST",
    ),
    client: list[str] | None = optional("--client", "A caller's name; may be repeated. Default: polaris.", "NAME"),
    operator: list[str] | None = optional("--operator", "An operator's name; may be repeated.", "NAME"),
    days: DaysOption = 365,
    ca_days: int = defaulted("--ca-days", "The validity of a new CA, in days.", 3650, min=1, max=7300),
) -> None:
    """Create a private CA and missing certificates; replace nothing.

    Keep ca.key off the machines that run the service.
    """
    names = [*(client or ["polaris"]), *(operator or ())]
    for name in (*names, *(["server"] if server else ())):
        if not is_name(name):
            raise typer.BadParameter(
                f"{name!r} is not a valid name. Use letters, digits, _ and -, but not ca", param_hint="--client"
            )
    now = utc_now()
    if exists(folder):
        authority = Authority.open(folder)
    else:
        authority = Authority.create(
            folder, name=f"{organization} CA", organization=organization, lifetime=timedelta(days=ca_days), now=now
        )
    lifetime = timedelta(days=days)
    made = [
        authority.issue_client(name, organization=organization, lifetime=lifetime, now=now)
        for name in names
        if not authority.has(name)
    ]
    if server and not authority.has("server"):
        made.append(authority.issue_server("server", server, organization=organization, lifetime=lifetime, now=now))
    issued = ", ".join(issued.name for issued in made) or "nothing new"
    call.output.say(f"Issued in {folder}: {issued}.")
    _show(call, authority, now, operator or ())


@command(app, "show", "")
def show_command(call: Call, *, folder: DirOption = _FOLDER) -> None:
    """List certificates with serial number and expiry."""
    errors = _show(call, Authority.open(folder), utc_now())
    if errors:
        raise CommandError("; ".join(map(str, errors)), errors[0].next_step, code=errors[0].code)


@command(app, "rotate", "")
def rotate_command(
    call: Call,
    name: Annotated[str, argument("NAME", "The certificate's name, or its serial number.")],
    *,
    folder: DirOption = _FOLDER,
    days: DaysOption = 365,
) -> None:
    """Issue a successor with a new key; NAME.former stays valid until you revoke it.

    The service admits both, unless the deployment pins serial numbers.
    """
    if name == CA:
        raise authority_stays()
    authority, now = Authority.open(folder), utc_now()
    former = authority.find(name)
    successor = authority.rotate(former.name, lifetime=timedelta(days=days), now=now)
    call.output.result({"former_serial": former.serial, **_document(successor, now)})
    call.output.say(
        f"{successor.name} has a new certificate, serial {successor.serial}, valid until {_day(successor)}."
    )
    advice = f"Once the new certificate is in use: delegation certs revoke {former.serial}"
    call.output.say(f"The former certificate is {successor.name}.former.pem. {advice}", dim=True)


@command(app, "revoke", "")
def revoke_command(
    call: Call,
    name: str | None = argument(
        "[NAME]", "The certificate's name or serial number. Leave it out with --renew.", default=None
    ),
    *,
    folder: DirOption = _FOLDER,
    list_days: int = defaulted("--list-days", "The validity of the list, in days.", 30, min=1, max=365),
    renew: bool = switch("--renew", "Only sign the list again, before it expires."),
) -> None:
    """Put a certificate on the CA's revocation list (crl.pem)."""
    if (name is None) != renew:
        raise typer.BadParameter("give either a certificate or --renew", param_hint="NAME")
    if name == CA:
        raise authority_stays()
    authority, now = Authority.open(folder), utc_now()
    certificate = None if name is None else authority.find(name)
    path = authority.revoke(certificate, lifetime=timedelta(days=list_days), now=now)
    ends = now + timedelta(days=list_days)
    revoked = [f"{entry.serial_number:x}" for entry in authority.revoked()]
    what = "Signed again" if certificate is None else f"Revoked {certificate.name}, serial {certificate.serial}"
    call.output.result(
        {"list": str(path), "next_update": isoformat(ends), "revoked": revoked},
        f"{what}: {path} has {counted(len(revoked), 'entry', 'entries')} and is valid until {ends:%Y-%m-%d}.",
        Text("The list takes effect when it is deployed (page Deploying to AWS, Who is let in).", "dim"),
    )


def _show(call: Call, authority: Authority, now: datetime, operators: Sequence[str] = ()) -> Sequence[CommandError]:
    unreadable: dict[str, CommandError] = {}
    issued = authority.issued(unreadable)
    table = Rows("name", "use", "until", "subject, serial")
    for certificate in issued:
        state = _state(certificate, now)
        until = Text(
            state or _day(certificate), "red" if state in {"revoked", "expired"} else "yellow" if state else ""
        )
        table.add(
            certificate.name,
            certificate.use,
            until,
            Text.assemble(certificate.subject, "\n", (certificate.serial, "dim")),
        )
    document = {"dir": str(authority.folder), "certificates": [_document(certificate, now) for certificate in issued]}
    call.output.result(document, table)
    if operators:
        subjects = ";".join(certificate.subject for certificate in issued if certificate.name in operators)
        call.output.say(f"Set delegation:operator-subjects to {subjects}", dim=True)
    if (authority.folder / REVOCATION_LIST).exists():
        call.output.say(f"{REVOCATION_LIST} has {counted(len(authority.revoked()), 'entry', 'entries')}.", dim=True)
    return tuple(unreadable.values())


def _document(issued: Issued, now: datetime) -> dict[str, Any]:
    return {
        "name": issued.name,
        "use": issued.use,
        "subject": issued.subject,
        "issuer": issued.certificate.issuer.rfc4514_string(),
        "serial": issued.serial,
        "not_after": isoformat(issued.certificate.not_valid_after_utc),
        "state": _state(issued, now) or "valid",
    }


def _state(issued: Issued, now: datetime) -> str:
    if issued.revoked:
        return "revoked"
    left = issued.certificate.not_valid_after_utc - now
    if left < timedelta(0):
        return "expired"
    return f"{_day(issued)}, soon" if left < _SOON else ""


def _day(issued: Issued) -> str:
    return f"{issued.certificate.not_valid_after_utc:%Y-%m-%d}"
