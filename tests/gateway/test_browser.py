"""The console in Chromium: every page in both colour schemes, accessibility, malicious stored text, live parts.

Needs the extra `[browser]` and Debian's package of Chromium. Without them, the tests are skipped.
"""

from __future__ import annotations

import json
import shutil
from urllib.parse import quote

import pytest

pytest.importorskip("playwright", reason="the extra disque-py[browser] is not installed")
pytest.importorskip("axe_playwright_python", reason="the extra disque-py[browser] is not installed")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed", allow_module_level=True)

from axe_playwright_python.sync_playwright import Axe  # noqa: E402  # behind the checks
from playwright.sync_api import sync_playwright  # noqa: E402

from disque_py import testing  # noqa: E402
from disque_py.gateway.console.pages import PAGES  # noqa: E402
from gateways import RunningGateway, until  # noqa: E402

EVIL = "<script>document.title='hacked'</script>\"'><img src=x onerror=\"document.title='hacked'\">"
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}


@pytest.fixture(scope="module")
def browser():
    """A running Chromium."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def shop(nodes):
    """A gateway whose queues have jobs in every state, with malicious text, and the id of an errored job."""
    with nodes.client() as client:
        if not client.cluster_voters().voters:
            client.cluster_voters_init(*(node.id for node in client.hello().nodes))
        client.set_queue("shop", attempts=1)
        client.set_queue("letters", dead_letter="letters-dead")
        client.execute("SCHEDULE", "SET", f"s{EVIL}", "EVERY", "1h", "QUEUE", "shop", "BODY", EVIL)
        client.acquire_lock(f"l{EVIL}", EVIL, 600_000)
        for number in range(3):
            client.add_job("shop", EVIL, meta={f"m{EVIL}": EVIL}, key=f"browser-{number}")
        job = client.get_job("shop", timeout_ms=5000)
        client.nack(job, reason=EVIL, final=True)
        client.add_job(f"q{EVIL}", EVIL)
    gateway = RunningGateway(nodes.url, poll_ms=300)
    gateway.post("/v1/queues/shop/redrive", {"where": {"none": "x"}})
    yield gateway, job.id
    gateway.close()


ADDRESSES = {
    "queue": "queue?name=shop",
    "jobs": "jobs?queue=shop&status=errored",
    "job": "job?id={job}",
    "add": "add?from={job}",
}


@pytest.mark.parametrize("name", [*PAGES, "login"])
def test_a_page_can_be_used_by_all_on_any_screen(browser, shop, name):
    """A page obeys WCAG AA and its content policy, fits a phone, has no errors, and runs no stored script."""
    gateway, job = shop
    page = browser.new_page()
    told = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    assert page.goto(f"{gateway.address}/console/{ADDRESSES.get(name, name).format(job=quote(job))}").status == 200
    for width, scheme, rules in ((1200, "light", RULES), (360, "light", RULES), (360, "dark", CONTRAST)):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page, options=rules).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found] == []
    assert "hacked" not in page.title()
    assert page.query_selector("main img") is None
    assert told == []
    page.close()


@pytest.mark.parametrize("width", [1280, 360])
def test_long_words_without_a_blank_fit_every_page_of_a_job(browser, shop, width):
    gateway, _ = shop
    word = "w" * 300
    job = gateway.post(f"/v1/queues/{word}/jobs", {"body": word, "meta": {word: word}}).json["id"]
    page = browser.new_page(viewport={"width": width, "height": 800})
    for address in (f"job?id={quote(job)}", f"queue?name={word}", f"jobs?queue={word}", f"add?from={quote(job)}"):
        page.goto(f"{gateway.address}/console/{address}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
    page.close()


def test_a_long_name_in_a_table_breaks_no_word_of_a_button(browser, shop):
    gateway, _ = shop
    gateway.post(f"/v1/queues/{'w' * 300}/jobs", {"body": "b"})
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    button = page.locator("main table button")
    address = f"{gateway.address}/console/queues?match=w*"
    assert until(lambda: page.goto(address) and button.count())
    assert button.evaluate("it => it.scrollHeight < 2 * parseFloat(getComputedStyle(it).lineHeight || 20) + 16")
    page.close()


def test_live_parts_update_but_not_while_rows_are_selected(browser, shop):
    gateway, _ = shop
    page = browser.new_page()
    page.goto(f"{gateway.address}/console/queues?match=live")
    assert "No queue matches" in page.inner_text("main")
    gateway.post("/v1/queues/live/jobs", {"body": "b"})
    page.wait_for_selector("a:has-text('live')", timeout=60_000)
    page.goto(f"{gateway.address}/console/jobs?queue=live")
    page.check(".pick")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    part = '<div class=live hx-get="?part=live" hx-trigger="load"></div>'
    page.evaluate("part => document.body.insertAdjacentHTML('beforeend', part)", part)
    page.evaluate("htmx.process(document.body)")
    page.wait_for_timeout(400)
    assert asked == []
    page.close()


def test_a_page_says_when_its_figures_are_old(browser, shop):
    gateway, _ = shop
    page = browser.new_page()
    page.goto(f"{gateway.address}/console/")
    assert page.is_hidden("#lost")
    page.route("**/*part=live*", lambda route: route.abort())
    page.wait_for_selector("#lost", state="visible", timeout=60_000)
    assert "does not answer" in page.inner_text("#lost")
    page.unroute("**/*part=live*")
    page.wait_for_selector("#lost", state="hidden", timeout=60_000)
    page.close()


def test_a_chart_keeps_its_text_and_there_is_one_for_each_figure(browser, shop):
    gateway, _ = shop
    gateway.post("/v1/queues/live/jobs", {"body": "b"})
    page = browser.new_page()
    page.goto(f"{gateway.address}/console/queue?name=live")
    page.wait_for_selector(".uplot[role=img]", timeout=60_000)
    for _ in range(2):
        page.wait_for_event("response", lambda response: "part=live" in response.url, timeout=60_000)
    page.wait_for_timeout(400)
    assert page.get_attribute("figure.chart .uplot", "aria-label").startswith("Pending jobs: from")
    assert page.evaluate("charts.size") == page.locator(".uplot").count()
    page.close()


def test_a_job_is_canceled_with_a_few_clicks(browser, shop):
    gateway, _ = shop
    gateway.post("/v1/queues/clicks/jobs", {"body": "b"})
    page = browser.new_page()
    page.goto(f"{gateway.address}/console/jobs?queue=clicks")
    page.check(".pick")
    page.click("button[value=cancel]")
    assert "Cancel 1 job?" in page.inner_text("h1")
    page.click("main button")
    page.wait_for_selector(".said")
    assert "1 of 1 jobs changed" in page.inner_text(".said")
    assert "No job matches" in page.inner_text("main")
    page.close()


def test_a_form_of_another_site_cannot_change_anything(browser, shop, tmp_path):
    gateway, _ = shop
    page = browser.new_page()
    page.goto(f"{gateway.address}/console/")
    attack = tmp_path / "attack.html"
    target = json.dumps(f"{gateway.address}/console/do")[1:-1]
    attack.write_text(
        f"<form method=post action='{target}'><input name=do value=pause><input name=queue value=shop></form>"
    )
    page.goto(attack.as_uri())
    with page.expect_navigation() as navigation:
        page.evaluate("document.forms[0].submit()")
    assert navigation.value.status == 403
    assert gateway.get("/v1/queues/shop").json["paused"] == "none"
    page.close()


def test_the_console_works_without_javascript(browser, shop):
    gateway, job = shop
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{gateway.address}/console/job?id={quote(job)}")
    assert "errored" in page.inner_text("main")
    page.goto(f"{gateway.address}/console/queue?name=shop")
    assert page.query_selector("figure svg polyline") is not None
    page.click("button:has-text('Pause input')")
    assert "paused: in" in page.inner_text(".said")
    page.click("button:has-text('Resume')")
    context.close()


def test_the_header_leads_to_the_same_page_of_another_cluster(browser, nodes):
    """The address names the cluster, so each page and form is about one cluster."""
    with testing.node() as node:
        gateway = RunningGateway(nodes.url, clusters=f"eu={node.url}", poll_ms=300)
        try:
            gateway.post("/clusters/eu/v1/queues/only-in-eu/jobs", {"body": "b"})
            page = browser.new_page(viewport={"width": 360, "height": 800})
            page.goto(f"{gateway.address}/console/queues")
            assert page.inner_text(".clusters [aria-current]") == "main"
            assert page.query_selector("a:has-text('only-in-eu')") is None
            page.click(".clusters a:has-text('eu')")
            assert page.url.endswith("/clusters/eu/console/queues")
            assert page.inner_text(".clusters [aria-current]") == "eu"
            page.click("a:has-text('only-in-eu')")
            page.click("button:has-text('Pause input')")
            assert "paused: in" in page.inner_text(".said")
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            assert gateway.get("/clusters/eu/v1/queues/only-in-eu").json["paused"] == "in"
            assert gateway.get("/v1/queues/only-in-eu").status == 404
            page.close()
        finally:
            gateway.close()
