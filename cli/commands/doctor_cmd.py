"""`rebal doctor`: which evidence this user and this cluster can give."""

from typing import Annotated

import typer

from rebal.cli import output, params
from rebal.cli.errors import DONE, FAILED


def command(
    group: Annotated[
        str | None, typer.Argument(metavar="[GROUP]", help="The group to try the sources on.")
    ] = None,
    *,
    connection: params.Connection,
    form: params.Output = "text",
    wide: params.Wide = False,
) -> int:
    """Show the evidence you can get here, what is missing, and the ACL that would grant it.

    Each source is tried, or judged by the ACLs you have; only describe requests are sent to a
    group. It names the settings that were read, without their values, and keeps nothing. Exits
    with 0 when the login is accepted, else with 1.
    """
    from rebal.cli.render.doctor import DoctorDocument, doctor_view
    from rebal.cli.render.documents import document_of
    from rebal.inspectors.connection.managed import managed_by
    from rebal.inspectors.kafka.doctor import examine

    config = connection.config()
    settings = connection.origins()
    report = examine(config, group)
    managed = managed_by(host for host, _ in config.servers)
    code = DONE if report.logged_in else FAILED
    given = connection.given()
    switch = () if managed is not None else tuple(given.request_log(report.coordinator_id))
    if form == "text":
        again = given.inspect(group, "--probe") if report.logged_in else None
        view = doctor_view(
            output.shown(report), output.shown(settings), managed, again, switch=switch
        )
        output.page(view, wide=wide)
        output.say(given.note if again else "")
    else:
        body = document_of(
            DoctorDocument, report, settings=settings, managed=managed, request_log=switch
        )
        output.write(output.envelope("doctor", body, code, form))
    return code
