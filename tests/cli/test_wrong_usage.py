"""Command lines that cannot be meant: each is one sentence that says what to type."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from rebal.cli import app
from rebal.groups.model import AssignorList, Cluster, GroupSnapshot, Knowledge, WorkerState
from rebal.groups.snapshot.documents import dump_snapshot
from rebal.groups.snapshot.redact import redact
from rebal.planner.paths import make_plan
from rebal.planner.plan import dump_plan
from tests.planner.worker_groups import workers

Said = pytest.CaptureFixture[str]


@pytest.fixture
def folder(here: Path, group: Callable[..., GroupSnapshot]) -> Path:
    """A group, its plan, a script, and files that do not go with them."""
    busy = workers("sessioned")
    blind = [replace(each, worker=WorkerState(url="")) for each in busy.members]
    stream = AssignorList(knowledge=Knowledge.EXACT, list=("stream",))
    programs = [replace(each, assignors=stream) for each in group().members]
    snapshots = {
        "g": group(), "other": group(group_id="billing"), "redacted": redact(group()),
        "w": busy, "blind": replace(busy, members=tuple(blind)), "nobody": group(members=()),
        "streams": group(assignor="stream", members=tuple(programs)),
        "west": group(cluster=Cluster(cluster_id="west")),
    }  # fmt: skip
    for name, snapshot in snapshots.items():
        Path(f"{name}.yaml").write_text(dump_snapshot(snapshot))
    Path("p.yaml").write_text(dump_plan(make_plan(group())))
    east = group(cluster=Cluster(cluster_id="east"))
    Path("east.yaml").write_text(dump_plan(make_plan(east)))
    Path("s.yaml").write_text("schema: rebal.script/1\nevents:\n  - kill: checkout-1\n")
    entry = {"schema": "rebal.journal/2", "at": "2026-11-20T09:00:00Z", "group_id": "checkout"}
    Path("old.jsonl").write_text(json.dumps(entry | {"plan": "of yesterday"}) + "\n")
    Path("folder.jsonl").mkdir()
    Path("utf16.jsonl").write_bytes(b"\xff\xfe{}\n")
    Path("odd.jsonl").write_text('{"schema": "rebal.journal/2", "at": 7}\n')
    Path("later.jsonl").write_text('{"schema": "rebal.journal/1"}\n')
    Path("loop.yaml").symlink_to("loop.yaml")
    return here


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.iterdir()}


USAGE = {
    "": [
        ("inspct", "there is no command inspct. Did you mean inspect? See rebal --help."),
        ("fleet repot", "Did you mean report? See rebal fleet --help."),
        ("frobnicate", "there is no command frobnicate. See rebal --help."),
        ("--nope", "--nope"),
        ("explain 102", "Did you mean RB102"),
        ("explain nothing", "there is no rule nothing; rebal explain lists them all."),
        ("completion bsh", "'bsh' is not one of 'bash', 'zsh', 'fish'."),
        ("schema plam", "Did you mean plan?"),
    ],
    "inspect": [
        ("", "no group is named: give GROUP, --all"),
        ("--nope", "rebal inspect --help"),
        ("g --timeout 1e12", "--timeout"),
        ("g --redact", "--redact changes only what is saved"),
        ("g --assignor x", "add --probe"),
        ("g -b 127.0.0.1:1 --probe --assignor=", "--assignor: expected a name, such as range."),
        ("g --snapshot g.yaml", "not both"),
        ("--snapshot g.yaml --probe", "--probe reads a live group"),
        ("--snapshot g.yaml --log-timezone ../etc/passwd", "Asia/Tokyo"),
    ],
    "groups": [
        ("--watch -o json", "--watch prints text"),
        ("--watch soon", "--watch soon: expected a duration"),
        ("--watch 0.1", "give at least 1 second"),
        ("--watch --evidence x", "--watch reads live groups"),
        ("--for never", "--for never: expected a duration"),
    ],
    "plan-upgrade": [
        ("", "no group is named: give GROUP (live) or --snapshot FILE, or save a snapshot here"),
        ("g --restart-seconds nan", "expected a number of seconds"),
        ("g --ignore RB10 --reason x", "Did you mean RB10"),
        ("g --new-attempt", "add --out FILE"),
    ],
    "plan-upgrade --snapshot g.yaml": [
        ("--to fastest", "expected cooperative"),
        ("--to cooprative", "Did you mean cooperative"),
        ("--ignore RB102", "--ignore RULE needs --reason"),
        ("--ignore RB102 --reason ' '", "--ignore RULE needs --reason"),
        ("--ignore RB000 --reason x", "no such rule"),
        ("--assume client-id=nobody:range", "no member has the client id nobody"),
        ("--assume-family a=", "expected [CLIENT_ID=]FAMILY, the family one of java"),
        ("--assume-family librdkafk", "Did you mean librdkafka?"),
        ("--assume-family confluent-kafka", "Did you mean librdkafka?"),
        ("--to-client Confluent-Kafka-Python", "Did you mean librdkafka?"),
        ("--to-client kafka-go", "Did you mean segmentio?"),
        ("--departed checkout-1", "checkout-1 is a member of the group"),
        ("--max-downtime soon", "expected a duration such as 90s"),
        ("--batch none", "--batch none"),
        ("--out plan.txt", "use .yaml, .yml or .json"),
        ("--expect-members 0", "--expect-members"),
        ("checkout", "not both"),
        ("-o csv", "--output"),
    ],
    "show p.yaml": [
        ("--step 9", "there is no step 9; its last step is 2."),
        ("--set --as toml", "--as toml: there is java-properties, spring-yaml"),
        ("--as spring-yaml", "add --set."),
        ("--family java", "add --set."),
        ("--set -o json", "-o json prints the whole plan"),
        ("--step 1 -o markdown", "-o markdown prints the whole plan"),
        ("-o html", "add --timeline"),
        ("--timeline -o sarif", "text, json, yaml or html"),
        ("--timeline --set", "leave out --step and --set"),
        ("--journal x.jsonl", "add --timeline"),
    ],
    "verify p.yaml": [
        ("--snapshot g.yaml --watch", "leave --snapshot out"),
        ("--watch --client-log -", "standard input can be read only once"),
        ("--until gate --request-log -", "give the file's name instead"),
        ("--watch --inventory -", "--watch looks again and again"),
        ("--watch -o json", "-o jsonl"),
        ("--for soon", "expected a duration"),
        ("--watch --for 99999999h", "99999999h is longer than 365 days"),
        ("--watch --every nan", "expected a number of seconds"),
        ("--until done --snapshot g.yaml", "--until reads the live group"),
        ("--until gate -o json", "use -o jsonl"),
        ("--until gate --timeout 15m", "'--timeout': '15m' is not a valid"),
        ("--step 7 --snapshot g.yaml", "last step of the plan is 2"),
        ("--out b.yaml", "add --abort"),
        ("--abort --out p.yaml", "give it another name"),
        ("--abort --out back.txt", "use .yaml, .yml or .json"),
        ("--abort --step 1", "leave out --watch"),
        ("--abort --until gate", "leave out --watch"),
        ("--abort -o jsonl", "text, json or yaml"),
        ("--confirm 1 --reason a --watch", "cannot be combined with"),
    ],
    "verify p.yaml --snapshot g.yaml": [
        ("--confirm 1 --reason ' '", "--reason"),
        ("--confirm 7 --reason a", "last step of the plan is 2"),
        ("--confirm 1 --reason a", "is recorded in a journal"),
        ("--confirm 2 --reason a --journal b.jsonl", "is in step 1"),
        ("--assume client-id=nobody:range", "no member has the client id nobody"),
    ],
    "simulate": [
        ("", "no assignor is named: add --assignor range|roundrobin|sticky|cooperative-sticky|"),
        ("--assignor cooperative-stiky", "Did you mean cooperative-sticky"),
        ("--assignor com.example.RackAssignor", "consumer:range."),
        ("--assignor range", "no group is named"),
        ("--assignor range --add-partitions orders", "write TOPIC=N, such as"),
        ("--assignor range --add-topic =4", "--add-topic =4: write TOPIC=N"),
        ("--assignor range g --snapshot g.yaml", "not both"),
    ],
    "simulate --assignor range --snapshot g.yaml": [
        ("--remove-member nobody", "no member is called nobody; there are checkout-1, "),
        ("--add-partitions ghost=1", "--add-partitions ghost: the snapshot has no such topic"),
        ("--rack a=", "--rack a=: write MEMBER=RACK, or RACK for added members."),
        ("--topics orders", "--topics says what added members subscribe to"),
    ],
    "simulate --assignor sessioned --snapshot w.yaml": [
        ("--restart-member x", "no member is called x; there are w0, w1"),
        ("--add-member 1", "only --restart-member applies"),
        ("--assignor range", "cannot be combined"),
    ],
    "simulate --assignor eager --snapshot": [
        ("blind.yaml", "what its workers run is not known"),
        ("g.yaml", "is no group of Connect workers"),
    ],
    "rehearse --snapshot g.yaml": [
        ("--script roling", "there are rolling, "),
        ("--script crash --compare eger", "--compare eger: there is eager, cooperat"),
        ("--script crash --compare plan", "rehearses a plan: name the PLAN."),
        ("--compare eager", "nothing to rehearse: name a PLAN, or add --script"),
        ("--script crash --param poll", "--param poll: write NAME=TIME; names are rest"),
        ("--script crash --restart-seconds 9 --param restart=5s", "--restart-seconds is restart."),
        ("--script crash --param pol=1s", "Did you mean poll?"),
        ("--script crash --param poll=x", "--param poll=x: expected a duration such as"),
        ("--script crash --param heartbeat=0", "heartbeat=0: expected at least 0.01 s."),
        ("--script crash --batch none", "--batch none: give a number of members"),
        (f"--script crash --batch {'9' * 5000}", "--batch 9"),
        ("p.yaml --script crash", "leave out the plan (a live group: --group NAME), or"),
        ("p.yaml --script s.yaml", "no event of s.yaml is a step of the plan"),
        ("--script crash --compare eager,now -o html", "name one protocol with --compare"),
    ],
    "rehearse --script rolling --snapshot": [
        ("w.yaml --compare eager", "assign tasks by their own protocol: only plan and now"),
        ("streams.yaml --compare consumer", "assign tasks by their own protocol: only plan and"),
    ],
    "rehearse p.yaml": [("--probe", "--probe reads a live group: give GROUP")],
    "diff g.yaml": [("nothing.yaml", "there is no file nothing.yaml")],
}
FAILS = {
    "inspect": [("--snapshot none.yaml", "there is no such file")],
    "verify": [
        ("none.yaml --snapshot g.yaml", "there is no such file"),
        ("g.yaml --snapshot g.yaml", "expected rebal.plan/1"),
        ("p.yaml --snapshot other.yaml", "is for group checkout"),
        ("east.yaml --snapshot west.yaml", "made on cluster east, but this is cluster west"),
    ],
    "verify p.yaml --snapshot g.yaml --journal": [
        ("g.yaml", "is no journal: name another file with --journal"),
        ("old.jsonl", "belongs to another plan"),
        ("folder.jsonl", "is a directory"),
        ("utf16.jsonl", "is UTF-16 text"),
        ("odd.jsonl", "line 1"),
        ("later.jsonl", "rebal.journal/2"),
    ],
    "plan-upgrade --snapshot g.yaml": [
        ("--out loop.yaml", "cannot write loop.yaml: too many levels"),
    ],
    "simulate --assignor range --snapshot": [
        ("none.yaml", "there is no such file"),
        ("nobody.yaml", "cannot simulate checkout: it has no members"),
    ],
    "rehearse": [
        ("checkout", "there is no such plan file. A live group without a plan"),
        ("x" * 5000, "there is no such plan file. A live group without a plan"),
    ],
    "diff": [
        ("nothing.yaml", "nothing.yaml"),
        ("g.yaml redacted.yaml", "holds pseudonyms"),
        ("p.yaml other.yaml", "the plan is for group checkout"),
    ],
}


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        pytest.param(f"{begin} {words}", code, says, id=f"{begin} {words[:60]}")
        for code, table in ((2, USAGE), (1, FAILS))
        for begin, rows in table.items()
        for words, says in rows
    ],
)
def test_a_wrong_command_line_is_one_sentence(
    line: str, code: int, says: str, *, folder: Path, capsys: Said
) -> None:
    before = contents(folder)
    assert app.run(shlex.split(line)) == code
    out, err = capsys.readouterr()
    assert out == ""
    *notes, last = err.splitlines()
    assert says in last
    assert all(each.startswith("rebal: ") for each in (*notes, last))
    assert len(notes) == (1 if "shows the group as of" in err else 0)
    assert contents(folder) == before
