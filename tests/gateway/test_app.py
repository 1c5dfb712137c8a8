"""The console without a browser: pages, roles, forms, logins, headers, and text that producers choose."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote, unquote

import pytest

from console_forms import Visitor
from disque_py import testing
from disque_py.gateway.console.pages import PAGES
from disque_py.gateway.logins.access_file import token_entry
from disque_py.gateway.logins.grants import ROLES
from gateways import RunningGateway, basic, until

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}"


@pytest.fixture(scope="module")
def guarded(nodes, tmp_path_factory):
    """A gateway with a token per role, for queues that begin with `con`."""
    path = tmp_path_factory.mktemp("access") / "access.toml"
    entries = [token_entry(role, f"dq_{role}", [f"{role}:con*"], None) for role in ROLES]
    path.write_text("".join([*entries, token_entry("all", "dq_all", ["admin"], None)]))
    running = RunningGateway(nodes.url, access_file=path)
    yield running
    running.close()


def logged_in(gateway, token):
    visitor = Visitor(gateway)
    word = visitor.token("login")
    reply = visitor.send("login", {"form": word, "token": token})
    assert reply.status == 303, reply.text
    return visitor


@pytest.fixture
def visitor(gateway):
    """A visitor with all permissions."""
    return Visitor(gateway)


def add(gateway, queue, **words):
    return gateway.post(f"/v1/queues/{queue}/jobs", {"body": "b"} | words).json["id"]


def depth(gateway, queue, status):
    return gateway.get(f"/v1/queues/{queue}/depth").json[status]


ADDRESSES = {"queue": "queue?name={queue}", "jobs": "jobs?queue={queue}", "job": "job?id={job}"}


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_served_without_javascript_from_outside(gateway, visitor, queue, page, voters):
    job = add(gateway, queue)
    reply = visitor.get(ADDRESSES.get(page, page).format(queue=queue, job=quote(job)))
    assert reply.status == 200, reply.text
    assert "<h1" in reply.text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', reply.text)
    assert not re.search(r"<script(?! src)|\son\w+=|style=|javascript:", reply.text)
    assert "'unsafe" not in reply.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]


@pytest.mark.parametrize(
    "page", ["queues?sort=bogus", "queues?status=bogus", "queue", "queue?name=", "job", "jobs?queue=q&status=x"]
)
def test_an_address_that_makes_no_sense_is_refused(visitor, page, caplog):
    reply = visitor.get(page)
    assert (reply.status, "<h1" in reply.text) == (400, True)
    assert not caplog.records


@pytest.mark.parametrize("page", ["queues?page=x", "queues?self=x", "jobs?queue=q&page=x&self=y"])
def test_an_address_may_have_words_that_a_page_does_not_know(visitor, page):
    assert visitor.get(page).status == 200


def test_bulk_work_on_a_state_that_does_not_exist_is_refused(visitor):
    fields = {"form": visitor.token(), "do": "cancel", "scope": "all", "queue": "q", "status": "bogus"}
    assert visitor.send("bulk", fields).status == 400


def test_without_voters_the_page_of_locks_has_the_command_that_chooses_them(make_gateway):
    """Visitors run it as it is there."""
    with testing.node() as node, node.client() as client:
        gateway = make_gateway(node.url)
        page = gateway.get("/console/locks").text
        assert "no voters" in page
        words = re.search(r"<pre[^>]*>disque-cli ([^<]*)</pre>", page)[1].split()
        client.execute(*words)
        assert "No lock is held" in gateway.get("/console/locks").text


def test_without_voters_the_list_of_locks_asks_no_one_to_retry(make_gateway):
    with testing.node() as node:
        reply = make_gateway(node.url).get("/v1/locks")
    assert (reply.status, reply.json["code"], "VOTERS INIT" in reply.json["detail"]) == (503, "NOQUORUM", True)
    assert "retry-after" not in reply.headers


@pytest.fixture(scope="module")
def voters(nodes):
    """Nodes with voters, which locks need."""
    with nodes.client() as client:
        if not client.cluster_voters().voters:
            client.cluster_voters_init(*(node.id for node in client.hello().nodes))


@pytest.mark.parametrize("role", ROLES)
def test_a_role_sees_the_pages_that_it_may_see(guarded, role):
    guarded.post("/v1/queues/con1/jobs", {"body": "the body"}, login="Bearer dq_all")
    guarded.post("/v1/queues/other/jobs", {"body": "b"}, login="Bearer dq_all")
    visitor = logged_in(guarded, f"dq_{role}")
    reads = role in ("read", "bodies", "consume", "operate", "admin")
    assert (visitor.get("queues").status == 200) == reads
    assert (visitor.get("jobs?queue=con1").status == 200) == reads
    assert ("the body" in visitor.get("jobs?queue=con1").text) == (role in ("bodies", "admin"))
    assert visitor.get("queue?name=other").status == 403
    assert ("Purge" in visitor.get("queue?name=con1").text) == (role in ("operate", "admin"))
    assert (visitor.get("audit").status == 200) == (role == "admin")


@pytest.mark.parametrize("role", ROLES)
def test_a_form_that_a_role_does_not_see_is_refused_as_well(guarded, role):
    visitor = logged_in(guarded, f"dq_{role}")
    paused = visitor.do("pause", queue="con1", direction="in", back="queues")
    assert (paused.status == 303) == (role in ("operate", "admin"))
    visitor.do("resume", queue="con1", back="queues")
    assert (visitor.do("enqueue", queue="con1", body="b").status == 303) == (role in ("produce", "admin"))
    assert visitor.do("enqueue", queue="other", body="b").status == 403


def test_the_audit_page_shows_what_an_admin_may_see(guarded, make_gateway, tmp_path):
    for queue in ("con1", "other"):
        guarded.post(f"/v1/queues/{queue}/move", {"to": "con-to"}, login="Bearer dq_all")
    page = logged_in(guarded, "dq_admin").get("audit").text
    assert ("con1 con-to" in page, "other con-to" in page) == (True, False)
    with testing.node(requirepass="boss") as node, node.client() as client:
        client.execute("ACL", "SETUSER", "bot", "on", ">pw", "~mail", "+addjob", "+@connection")
        path = tmp_path / "access.toml"
        path.write_text(token_entry("all", "dq_all", ["admin"], None))
        gateway = make_gateway(node.url, broker_users="yes", access_file=path, read_only="yes")
        assert gateway.get("/console/audit", login=basic("bot", "pw")).status == 403
        assert ">Audit<" not in gateway.get("/console/nodes", login=basic("bot", "pw")).text
        assert ">Audit<" in gateway.get("/console/audit", login="Bearer dq_all").text


@pytest.mark.parametrize("page", ["queues", "queue", "jobs", "job", "dead", "schedules", "audit", "operations"])
def test_a_name_that_turns_text_around_is_shown_with_escapes(gateway, visitor, nodes, page):
    name = f"con-{page}-\u202eliam"
    job = add(gateway, quote(name, safe=""))
    gateway.post(f"/v1/queues/{quote(name, safe='')}/redrive", {})
    with nodes.client() as client:
        client.execute("QUEUE", "SET", name, "dead-letter", f"{name}-dead")
        client.execute("SCHEDULE", "SET", name, "EVERY", "1h", "QUEUE", name, "BODY", "b")
    address = {"queue": f"queue?name={quote(name)}", "jobs": f"jobs?queue={quote(name)}", "job": f"job?id={quote(job)}"}

    def seen():
        """Return the text of the page, without addresses and fields, which have the name itself."""
        return re.sub(r"<[^>]*>", "", visitor.get(address.get(page, page)).text)

    assert until(lambda: page == "jobs" or rf"con-{page}-\u202eliam" in seen())
    assert "\u202e" not in seen()


def test_an_empty_state_of_jobs_is_the_usual_one(gateway, visitor, queue):
    """A form sends its empty fields, too."""
    add(gateway, queue)
    page = visitor.get(f"jobs?queue={queue}&status=")
    assert (page.status, page.text.count("job?id=")) == (200, visitor.get(f"jobs?queue={queue}").text.count("job?id="))


def test_without_a_login_every_page_leads_to_it(guarded):
    visitor = Visitor(guarded)
    for page in PAGES:
        reply = visitor.get(page)
        assert (reply.status, reply.headers["location"]) == (303, "/console/login")
    assert visitor.do("pause", queue="con1").status == 303
    assert "dq_" not in visitor.get("login").text


def test_without_a_login_a_live_part_sends_the_whole_page_to_it(guarded):
    """htmx follows a redirect, and would put the page of the login into the part."""
    reply = guarded.get("/console/?part=live", headers={"HX-Request": "true"})
    assert (reply.status, reply.headers["hx-redirect"], reply.body) == (401, "/console/login", b"")


def test_a_wrong_token_is_reported_and_a_logout_ends_the_session(guarded):
    visitor = Visitor(guarded)
    reply = visitor.send("login", {"form": visitor.token("login"), "token": "dq_wrong"})
    assert (reply.status, "unknown" in reply.text) == (401, True)
    visitor = logged_in(guarded, "dq_all")
    assert visitor.send("logout", {"form": visitor.token("queues")}).status == 303
    assert visitor.get("queues").status == 303


@pytest.mark.parametrize("field", ["user", "password", "token"])
def test_a_login_has_no_escaped_fields(guarded, field):
    """Names of queues may have bytes that are not UTF-8. In a login, such a field has no meaning."""
    visitor = Visitor(guarded)
    reply = visitor.send("login", {"form": visitor.token("login"), f"{field}%": "%ff"})
    assert (reply.status, "does not support this kind of login" in reply.text) == (401, True)


def test_cookies_are_for_tls_only_if_a_proxy_has_it(guarded):
    visitor = Visitor(guarded)
    form = {"form": visitor.token("login"), "token": "dq_all"}
    reply = visitor.send("login", form, {"Origin": "https://localhost"})
    kept = [each for each in reply.cookies if "Max-Age" not in each]
    assert kept
    assert all("; Secure" in each for each in kept)
    reply = visitor.send("login", form, {"Origin": f"http://127.0.0.1:{guarded.port}"})
    assert not any("; Secure" in each for each in reply.cookies)


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "none"}]
)
def test_a_form_of_another_site_changes_nothing(gateway, visitor, queue, headers):
    fields = {"form": visitor.token(), "do": "pause", "queue": queue}
    assert visitor.send("do", fields, headers).status == 403
    assert visitor.send("do", fields | {"form": "0" * 64}).status == 403
    assert visitor.send("bulk", fields | {"form": ""}).status == 403
    assert gateway.get(f"/v1/queues/{queue}").status == 404


def test_a_page_cannot_send_its_visitor_elsewhere(visitor, queue):
    for back in ("//evil.example/", "https://evil.example/", "\\\\evil", "queues\r\nX: y", "/console//evil"):
        location = visitor.do("enqueue", queue=queue, body="b", back=back).headers["location"]
        assert location.startswith("/console/job?id=")
        location = visitor.do("resume", queue=queue, back=back).headers["location"]
        assert location.startswith("/console/")
        assert "evil" not in location.partition("?")[0].removeprefix("/console/") or "://" not in location


@pytest.mark.parametrize(
    "page", ["overview", "queues", "queue", "jobs", "job", "dead", "add", "audit", "operations", "error"]
)
def test_text_that_producers_choose_is_never_markup(gateway, visitor, page):
    name = f"x{EVIL}"
    path = f"/v1/queues/{quote(name, safe='')}"
    reply = gateway.post(f"{path}/jobs", {"body": EVIL, "meta": {"tenant": EVIL}, "key": f"{page}{EVIL}"})
    job = reply.json["id"]
    gateway.post(f"{path}/dequeue", {"wait_ms": 1000, "lease_ms": 60_000})
    gateway.post(f"/v1/jobs/{job}/fail", {"final": True, "reason": EVIL})
    gateway.post(f"{path}/pause", {"direction": "in"})
    gateway.post(f"{path}/resume", {})
    gateway.post(f"{path}/redrive", {"where": {"tenant": "none"}})
    address = {
        "overview": "",
        "queue": f"queue?name={quote(name)}",
        "jobs": f"jobs?queue={quote(name)}&status=errored&reason={quote(EVIL)}&where={quote('tenant:' + EVIL)}",
        "job": f"job?id={quote(job)}",
        "add": f"add?from={quote(job)}",
        "error": f"queue?name={quote('none' + EVIL)}",
        "queues": f"queues?match={quote(EVIL)}",
    }.get(page, page)
    for _ in range(5):
        text = visitor.get(address).text
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "x<script" not in text
        assert "49" not in text or "{{7*7}}" in text or page != "job"


def test_the_form_of_jobs_has_each_pair_of_metadata(gateway, visitor, queue):
    """So a further filter does not lose one. One more field is empty, and an empty field filters nothing."""
    for kind in ("a", "b"):
        add(gateway, queue, meta={"tenant": "x", "kind": kind})
    page = visitor.get(f"jobs?queue={queue}&where=tenant:x&where=kind:a&where=").text
    fields = re.findall(r'<input name="where" value="([^"]*)"', page)
    assert fields == ["tenant:x", "kind:a", ""]
    assert "all that match (1)" in page


def test_selected_jobs_are_changed_after_their_number_is_confirmed(gateway, visitor, queue):
    jobs = [add(gateway, queue) for _ in range(3)]
    fields = {
        "form": visitor.token(),
        "do": "cancel",
        "queue": queue,
        "status": "pending",
        "id": jobs[:2],
        "back": "jobs",
    }
    shown = visitor.send("bulk", fields)
    assert "Cancel 2 jobs?" in shown.text
    assert gateway.get(f"/v1/queues/{queue}/depth").json["pending"] == 3
    assert visitor.send("bulk", fields | {"counted": "2"}).status == 303
    assert gateway.get(f"/v1/queues/{queue}/depth").json["pending"] == 1
    assert "2 of 2 jobs changed" in visitor.get("jobs").text


def test_a_large_number_has_to_be_typed_and_is_counted_again(gateway, visitor, queue):
    lines = b"\n".join(b'{"body":"%d"}' % number for number in range(120))
    gateway.post(f"/v1/queues/{queue}/jobs:batch", body=lines, headers={"Content-Type": "application/x-ndjson"})
    fields = {
        "form": visitor.token(),
        "do": "cancel",
        "scope": "all",
        "queue": queue,
        "status": "pending",
        "back": "jobs",
    }
    assert "Type the number 120" in visitor.send("bulk", fields).text
    assert visitor.send("bulk", fields | {"counted": "120"}).status == 409
    add(gateway, queue)
    reply = visitor.send("bulk", fields | {"counted": "120", "typed": "120"})
    assert (reply.status, "121 jobs match now" in reply.text) == (409, True)
    assert visitor.send("bulk", fields | {"counted": "121", "typed": "121"}).status == 303
    assert "Operation" in visitor.get("jobs").text


def test_a_filter_by_reason_applies_to_all_that_match(gateway, visitor, queue):
    for reason in ("timeout", "timeout", "other"):
        job = add(gateway, queue)
        gateway.post(f"/v1/queues/{queue}/dequeue", {"wait_ms": 2000})
        gateway.post(f"/v1/jobs/{job}/fail", {"final": True, "reason": reason})
    page = visitor.get(f"jobs?queue={queue}&status=errored&reason=timeout").text
    assert "all that match (2)" in page
    fields = {"form": visitor.token(), "do": "requeue", "scope": "all", "queue": queue, "status": "errored"}
    fields |= {"reason": "timeout", "counted": "2"}
    assert visitor.send("bulk", fields).status == 303
    assert until(lambda: depth(gateway, queue, "pending") == 2)
    assert until(lambda: depth(gateway, queue, "errored") == 1)


def errored(gateway, queue, reason):
    """Add a job and fail it for good. Return its id."""
    job = add(gateway, queue)
    gateway.post(f"/v1/queues/{queue}/dequeue", {"wait_ms": 5000})
    gateway.post(f"/v1/jobs/{job}/fail", {"final": True, "reason": reason})
    return job


def test_errored_jobs_are_deleted_all_at_once(gateway, visitor, queue):
    for _ in range(3):
        errored(gateway, queue, "broken")
    fields = {"form": visitor.token(), "do": "delete", "scope": "all", "queue": queue, "status": "errored"}
    assert "Delete 3 jobs?" in visitor.send("bulk", fields).text
    assert visitor.send("bulk", fields | {"counted": "3"}).status == 303
    assert until(lambda: depth(gateway, queue, "errored") == 0)


def test_delayed_jobs_are_retried_all_at_once(gateway, visitor, queue):
    for _ in range(3):
        add(gateway, queue, delay_ms=3_600_000)
    fields = {"form": visitor.token(), "do": "requeue", "scope": "all", "queue": queue, "status": "invisible"}
    assert visitor.send("bulk", fields | {"counted": "3"}).status == 303
    assert until(lambda: depth(gateway, queue, "pending") == 3)
    operations = visitor.get("operations").text
    assert "3 of 3" in operations


def test_selected_jobs_are_moved(gateway, visitor, queue):
    jobs = [add(gateway, queue, delay_ms=3_600_000) for _ in range(3)]
    fields = {"form": visitor.token(), "do": "move", "queue": queue, "status": "invisible", "to": f"{queue}-b"}
    fields |= {"scope": "selected", "id": jobs[:2]}
    assert "Move 2 jobs?" in visitor.send("bulk", fields).text
    assert visitor.send("bulk", fields | {"counted": "2"}).status == 303
    assert until(lambda: depth(gateway, f"{queue}-b", "invisible") == 2)
    assert depth(gateway, queue, "invisible") == 1


def test_jobs_that_failed_for_a_reason_are_moved(gateway, visitor, queue):
    for reason in ("broken pipe", "full", "broken wheel"):
        errored(gateway, queue, reason)
    assert until(lambda: depth(gateway, queue, "errored") == 3)
    fields = {"form": visitor.token(), "do": "move", "scope": "all", "queue": queue, "status": "errored"}
    fields |= {"reason": "broken", "to": f"{queue}-b"}
    assert "Move 2 jobs?" in visitor.send("bulk", fields).text
    assert visitor.send("bulk", fields | {"counted": "2"}).status == 303
    assert until(lambda: depth(gateway, f"{queue}-b", "errored") == 2)
    assert until(lambda: "2 of 2" in visitor.get("operations").text)
    assert until(lambda: depth(gateway, queue, "errored") == 1)


def test_a_job_is_moved_on_its_own_page(gateway, visitor, queue):
    job = add(gateway, queue)
    assert 'name="do" value="move_job"' in visitor.get(f"job?id={quote(job)}").text
    assert visitor.do("move_job", id=job, to=f"{queue}-b").status == 303
    assert until(lambda: gateway.get(f"/v1/jobs/{quote(job, safe='')}").json["queue"] == f"{queue}-b")


def test_a_job_is_added_again_with_its_bytes_and_its_priority(gateway, visitor, queue):
    again = {
        "body_base64": "AP8B",
        "priority": -7,
        "attempts": 4,
        "backoff": "fixed:2000:60000",
        "meta": {"a": "b", "c:d": "e"},
    }
    job = gateway.post(f"/v1/queues/{queue}/jobs", again).json["id"]
    text = visitor.get(f"add?from={quote(job)}").text
    found = dict(re.findall(r'<input name="(\w+)"[^>]* value="([^"]*)"', text))
    assert (found["priority"], found["attempts"], found["backoff"]) == ("-7", "4", "fixed:2000:60000")
    assert '<option value="base64" selected>' in text
    assert ">AP8B</textarea>" in text
    assert ("a:b" in text, "left out: c:d" in text) == (True, True)
    reply = visitor.do("enqueue", queue=queue, encoding="base64", body="AP8B", priority=found["priority"])
    job_id = unquote(reply.headers["location"].partition("id=")[2].partition("&")[0])  # A job id may contain a slash.
    copy = gateway.get(f"/v1/jobs/{quote(job_id, safe='')}").json
    assert (copy["body_base64"], copy["priority"]) == ("AP8B", -7)
    plain = add(gateway, queue)
    assert '<input name="priority" inputmode="numeric" value="">' in visitor.get(f"add?from={quote(plain)}").text


def test_a_body_that_no_form_can_send_is_not_put_into_one(gateway, make_gateway, queue):
    job = quote(add(gateway, queue, body="x" * 2000))
    visitor = Visitor(make_gateway(body_max=1000))
    assert visitor.get(f"job?id={job}").status == 200
    reply = visitor.get(f"add?from={job}")
    assert (reply.status, "too long for a form" in reply.text) == (413, True)


def settings_form(page):
    """Return the fields of the form of settings, as a browser sends them."""
    form = page.partition('value="put_queue">')[2].partition("</form>")[0]
    return {name: unescape(value) for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form)}


def test_emptying_a_setting_switches_it_off(gateway, visitor, queue):
    visitor.do("put_queue", queue=queue, dead_letter="letters", attempts="3", require_meta="a, b")
    fields = settings_form(visitor.get(f"queue?name={queue}").text)
    assert fields["require_meta"] == "a, b"
    visitor.do("put_queue", **fields | {"dead_letter": "", "attempts": "", "require_meta": "", "maxlen": "9"})
    found = gateway.get(f"/v1/queues/{queue}").json["settings"]
    assert [found[name] for name in ("attempts", "dead_letter", "require_meta", "maxlen")] == [0, "", [], 9]


def test_a_setting_that_another_user_has_changed_meanwhile_stays(gateway, visitor, queue):
    path = f"/v1/queues/{queue}"
    gateway.request("PUT", path, {"maxlen": 5, "attempts": 3})
    fields = settings_form(visitor.get(f"queue?name={queue}").text)
    gateway.request("PUT", path, {"maxlen": 7})
    visitor.do("put_queue", **fields | {"attempts": "4"})
    found = gateway.get(path).json["settings"]
    assert (found["maxlen"], found["attempts"]) == (7, 4)
    reply = visitor.do("put_queue", **fields)
    assert reply.status == 303
    assert gateway.get(path).json["settings"]["attempts"] == 4
    assert "No setting was changed" in visitor.get(f"queue?name={queue}").text


def test_a_user_without_the_role_on_the_dead_letters_changes_other_settings(guarded):
    settings = {"dead_letter": "letters", "maxlen": 5}
    assert guarded.request("PUT", "/v1/queues/con-dead", settings, login="Bearer dq_all").status == 200
    visitor = logged_in(guarded, "dq_operate")
    fields = settings_form(visitor.get("queue?name=con-dead").text)
    assert visitor.do("put_queue", **fields | {"maxlen": "6"}).status == 303
    found = guarded.get("/v1/queues/con-dead", login="Bearer dq_all").json["settings"]
    assert (found["maxlen"], found["dead_letter"]) == (6, "letters")
    assert visitor.do("put_queue", **fields | {"dead_letter": "others"}).status == 403


def test_a_queue_is_paused_in_the_list(gateway, visitor, queue):
    add(gateway, queue)
    address = f"queues?match={queue}"
    assert until(lambda: ">Pause</button>" in visitor.get(address).text)
    assert visitor.do("pause", queue=queue, back=address).headers["location"] == f"/console/{address}"
    assert until(lambda: ">Resume</button>" in visitor.get(address).text)
    visitor.do("resume", queue=queue)


def test_a_leaving_node_shows_what_it_waits_for():
    """Spec V5. The last of two nodes that leaves has no node to give its jobs to."""
    with testing.cluster(2) as cluster:
        with cluster.client() as client:
            client.add_job("stays", "b")
        gateway = RunningGateway(cluster.url)
        try:
            for node in cluster:
                with node.client(discover=False) as client:
                    client.cluster_leaving(True)
            visitor = Visitor(gateway)
            shown = ("Waits: no other node is usable", "1 jobs left")
            # The page shows the latest picture of the nodes, which may be older than the second CLUSTER LEAVING.
            assert until(lambda: all(text in visitor.get("nodes").text for text in shown), 60)
        finally:
            gateway.close()


def test_behind_the_last_page_of_schedules_there_is_a_way_back(visitor, nodes, queue):
    with nodes.client() as client:
        client.execute("SCHEDULE", "SET", queue, "EVERY", "1h", "QUEUE", queue, "BODY", "tick")
        page = visitor.get("schedules?cursor=9000").text
        assert "There are no more schedules" in page
        assert "First page" in page
        client.execute("SCHEDULE", "DEL", queue)


def test_a_job_is_added_by_a_form(gateway, visitor, queue):
    reply = visitor.do("enqueue", queue=queue, body="line 1\r\nline 2", meta="tenant:a\nkind:b:c", priority="5")
    assert reply.status == 303
    [job] = gateway.post(f"/v1/queues/{queue}/dequeue", {"wait_ms": 2000}).json["jobs"]
    assert (job["body"], job["meta"]) == ("line 1\nline 2", {"tenant": "a", "kind": "b:c"})
    assert "was added" in visitor.get(reply.headers["location"].removeprefix("/console/")).text


def test_a_body_may_be_empty(gateway, visitor, queue):
    assert visitor.do("enqueue", queue=queue, body="").status == 303
    [job] = gateway.post(f"/v1/queues/{queue}/dequeue", {"wait_ms": 2000}).json["jobs"]
    assert job["body"] == ""


def test_a_live_part_is_a_part(visitor):
    assert "<html" not in visitor.get("?part=live").text
    assert "<html" in visitor.get("add?part=live").text


def test_static_files_come_from_the_package(visitor):
    assert visitor.get("static/x/console.css").headers["content-type"].startswith("text/css")
    for name in ("static/x/../app.py", "static/x/..%2fapp.py", "static/app.py", "static/"):
        assert visitor.get(name).status == 404


def test_a_read_only_gateway_offers_no_change(make_gateway, queue):
    gateway = make_gateway(read_only="yes")
    visitor = Visitor(gateway)
    assert "Purge" not in visitor.get(f"queue?name={queue}").text
    assert visitor.do("pause", queue=queue).status == 403


def test_the_console_can_be_left_out(make_gateway):
    gateway = make_gateway(console="no")
    assert [gateway.get(path).status for path in ("/", "/console/")] == [404, 404]


def test_the_first_path_leads_to_the_console(gateway):
    assert gateway.get("/").headers["location"] == "/console/"


def test_a_cluster_that_does_not_answer_does_not_look_healthy(make_gateway):
    visitor = Visitor(make_gateway(url="disque://127.0.0.1:1/?patience=0.2"))
    text = visitor.get().text
    assert "No answer from 1 of 1 nodes: 127.0.0.1:1" in text
    assert "healthy" not in text
    assert "No queue has jobs" not in text
    assert visitor.get("queues").status == 503


def test_a_login_of_the_gateway_that_nodes_refuse_is_an_error_page(make_gateway):
    """A visitor can't mend it with another login."""
    with testing.node(requirepass="open sesame") as node:
        visitor = Visitor(make_gateway(url=f"disque://:wrong@{node.address}"))
        assert "refuses" not in visitor.get().text
        reply = visitor.get("queues")
    assert (reply.status, "refuse the gateway" in reply.text) == (401, True)


LATIN = b"caf\xe9"


@pytest.fixture
def latin(nodes):
    """The name of a queue that is not UTF-8, with a pending job, in the form of addresses."""
    with nodes.client() as client:
        client.add_job(LATIN, "b", ttl=600)
    return "caf%E9"


def test_the_page_of_a_queue_whose_name_is_not_utf_8_is_linked_and_shown(gateway, visitor, latin):
    """Addresses have its bytes, percent-encoded, as for any other name. Its text on pages has `\\xe9`."""
    assert until(lambda: f'queue?name={latin}">caf\\xe9</a>' in visitor.get("queues?match=caf*").text)
    page = visitor.get(f"queue?name={latin}")
    assert (page.status, "<h1>caf\\xe9</h1>" in page.text) == (200, True)
    assert f"jobs?queue={latin}" in page.text
    assert visitor.get(f"jobs?queue={latin}").text.count('type="checkbox"') >= 1
    assert gateway.get(f"/v1/queues/{latin}").json["pending"] >= 1


def test_forms_change_a_queue_whose_name_is_not_utf_8(visitor, nodes, latin):
    """A form can't have such bytes, so its field is percent-encoded and has another name."""
    page = visitor.get(f"queue?name={latin}").text
    assert page.count(f'name="queue%" value="{latin}"') >= 4
    assert not re.search(r'name="queue" value="caf', page)
    visitor.do("pause", **{"queue%": latin, "direction": "in"})
    with nodes.client() as client:
        assert client.qstat(LATIN, cluster=True).pause == "in"
    visitor.do("resume", **{"queue%": latin})
    assert f"Type {latin} to cancel" in page
    visitor.do("purge_queue", **{"queue%": latin, "confirm%": latin, "status": "pending"})
    with nodes.client() as client:
        assert until(lambda: client.qlen(LATIN, cluster=True) == 0)


def test_only_names_may_be_other_than_utf_8(gateway, queue):
    for path in (f"/v1/queues/{queue}/jobs?where=%e9:a", f"/v1/queues/{queue}/jobs?cursor=%e9", "/v1/queues?match=%e9"):
        reply = gateway.get(path)
        assert (reply.status, "is not UTF-8" in reply.text) == (400, True)


def test_a_queue_with_a_name_of_blanks_has_a_visible_link(visitor, nodes):
    with nodes.client() as client:
        client.add_job("  ", "b", ttl=600)
    assert until(lambda: 'queue?name=++">&#34;\u2423\u2423&#34;</a>' in visitor.get("queues?match=%20%20").text)
    assert "<h1>&#34;\u2423\u2423&#34;</h1>" in visitor.get("queue?name=++").text
