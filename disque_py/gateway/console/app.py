"""The console: pages, forms, logins and files, below /console/.

The pages are HTML that the gateway renders; JavaScript only refreshes parts of them. A GET shows a page of the table
`PAGES` (pages.py) and changes nothing. A POST of a form executes an operation (service.py), with the caller's rights,
and the answer redirects to a page. Its outcome is one sentence in a cookie, which the next page shows once. A change of
many jobs shows a page with the number of jobs first, and the visitor has to confirm it.

Each form has a token of its session (sessions.py), so that another site can't send it. A login in a cookie is valid for
the consoles of all clusters, except a password, which is for the nodes of one cluster only. Pages are sent with a
policy that allows no script, style or image from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl

import jinja2

from disque_py import __version__
from disque_py.gateway.console import charts, code_flow, forms, shown
from disque_py.gateway.console.pages import INTERFACE, MENU, PAGES, View
from disque_py.gateway.console.sessions import ISSUER, LOGIN, SAID, SAID_MAX, WORD, Session, cookie
from disque_py.gateway.http.exchange import Answer, Exchange, refusal_headers
from disque_py.gateway.logins.grants import Principal
from disque_py.gateway.problems import RefusedError
from disque_py.gateway.service import Service

HTML: Final = "text/html; charset=utf-8"
CSP: Final = (
    "content-security-policy",
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
)
TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
    "svg": "image/svg+xml",
}
FORM: Final = "application/x-www-form-urlencoded"
FIELDS_MAX: Final = 2000
SAID_S: Final = 60
# Pages with a part that is refreshed.
LIVE: Final = frozenset(("", "queues", "queue", "nodes", "operations"))


class Console:
    """The console of a cluster.

    clusters   name and path of each cluster of the gateway, for the switch in the header
    """

    def __init__(self, service: Service, clusters: list[tuple[str, str]] | None = None) -> None:
        self._service = service
        self._path = f"{service.path}/console/"
        # A login is valid for the consoles of all clusters that accept it.
        self._cookie_path = f"{service.settings.base_path}/"
        self._clusters = clusters or []
        self._stranger = Principal("", (), service.logins.client)
        folder = files("disque_py.gateway.console")
        self._templates = jinja2.Environment(
            loader=jinja2.FunctionLoader(lambda name: folder.joinpath("templates", name).read_text(encoding="utf-8")),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=jinja2.StrictUndefined,
        )
        self._templates.filters |= {
            "span": shown.span,
            "moment": shown.moment,
            "number": shown.number,
            "size": shown.size,
            "short": shown.short,
            "named": shown.named,
            "typed": shown.typed,
            "field": shown.field,
            "points": charts.points,
            "chart_words": charts.words,
        }
        self._files = {
            each.name: each.read_bytes()
            for each in folder.joinpath("static").iterdir()
            if each.name.rpartition(".")[2] in TYPES
        }
        self._tag = hashlib.sha256(b"".join(self._files[name] for name in sorted(self._files))).hexdigest()[:12]

    async def serve(self, exchange: Exchange, rest: str) -> Answer:
        """Answer a request for a path below /console/."""
        if rest.startswith("static/"):
            return self._file(rest.removeprefix("static/").rpartition("/")[2])
        session = Session(exchange.headers.get("cookie", ""))
        try:
            answer = await self._answer(exchange, rest, session)
        except RefusedError as error:
            if error.row.http == 401 and rest != "login":
                answer = self._to_login(exchange)
            else:
                answer = self._error(exchange, session, error)
        if session.is_new:
            answer.headers.append(cookie(WORD, session.word, self._cookie_path, is_secure=exchange.is_secure))
        return answer

    async def _answer(self, exchange: Exchange, rest: str, session: Session) -> Answer:
        lists: dict[str, list[str]] = {}
        if exchange.verb == "POST":
            kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != FORM:
                raise RefusedError("ERR", f"content-type must be {FORM}")
            body = await exchange.body(self._service.settings.body_max, "body-max")
            try:
                pairs = parse_qsl(
                    body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
                )
            except ValueError as error:
                raise RefusedError("ERR", f"the form can't be read: {error}") from None
            for name, value in pairs:
                lists.setdefault(name, []).append(value.replace("\r\n", "\n"))
            session.check_form(lists.pop("form", [""])[0], exchange.headers)
        elif exchange.verb in ("GET", "HEAD"):
            lists = exchange.query
        else:
            raise RefusedError("METHOD", "pages support GET and POST", methods=["GET", "HEAD", "POST"])
        if rest == "login" or (rest in ("oidc", "oidc/back") and exchange.verb == "GET"):
            # No name of a queue is among these fields, so none has escapes.
            typed = {name: values[-1] for name, values in lists.items()}
            if any(shown.has_other_bytes(value) for value in typed.values()):
                raise RefusedError("ERR", "a login must be UTF-8")
            if rest == "login":
                return await self._login(exchange, session, typed)
            return await self._at_issuer(exchange, session, rest, typed)
        lists = shown.without_escapes(lists)
        query = {name: values[-1] for name, values in lists.items()}
        authorization = exchange.headers.get("authorization") or session.authorization
        principal = await self._service.login(
            authorization, exchange.address, INTERFACE, exchange.certificate, is_console=True
        )
        view = View(self._service, principal, exchange.address, query, lists)
        try:
            return await self._served(exchange, rest, session, view)
        except RefusedError as error:
            # The nodes refuse the gateway's own login, so another login of the visitor would not help.
            if error.row.http == 401 and not principal.asks_broker:
                return self._error(exchange, session, error)
            raise

    async def _served(self, exchange: Exchange, rest: str, session: Session, view: View) -> Answer:
        """Answer a request of a visitor who is logged in."""
        if exchange.verb == "POST":
            return await self._post(exchange, rest, session, view)
        if rest not in PAGES:
            raise RefusedError("NOTFOUND", "there is no such page")
        title, page = PAGES[rest]
        found = await page(view)
        template = f"{rest or 'overview'}.html"
        if view.query.get("part") == "live" and rest in LIVE:
            return self._page(f"live_{template}", 200, view, session, found)
        answer = self._page(template, 200, view, session, found | {"title": title, "page": rest})
        if session.said:
            answer.headers.append(cookie(SAID, "", self._cookie_path, is_secure=exchange.is_secure, age_s=0))
        return answer

    async def _post(self, exchange: Exchange, rest: str, session: Session, view: View) -> Answer:
        back = view.query.pop("back", "")
        view.lists.pop("back", None)
        if rest == "logout":
            answer = self._redirect("login")
            others = {f"{path}/console/" for _, path in self._clusters}
            answer.headers += self._without_login(exchange, {self._cookie_path, self._path, *others})
            return answer
        if rest == "bulk":
            bulk = await forms.bulk_of(view)
            if "counted" not in view.query:
                return self._page("confirm.html", 200, view, session, self._confirming(bulk, view, back, ""))
            try:
                forms.check_number(bulk, view.query.get("typed", ""), view.query["counted"])
            except RefusedError as error:
                return self._page("confirm.html", 409, view, session, self._confirming(bulk, view, back, error.text))
            said = await forms.execute_bulk(view, bulk)
        elif rest == "do":
            name = view.query.get("do", "")
            args = forms.form_args(name, view.lists)
            if name == "put_queue" and len(args) == len(("queue",)):
                said = "No setting was changed."
            else:
                found = await view.perform(name, args)
                said = _sentence(name, found)
            if name == "enqueue":
                back = f"job?id={found['id'].replace('+', '%2B')}"
        else:
            raise RefusedError("NOTFOUND", "there is no such page")
        answer = self._redirect(back)
        answer.headers.append(
            cookie(SAID, said[:SAID_MAX], self._cookie_path, is_secure=exchange.is_secure, age_s=SAID_S)
        )
        return answer

    @staticmethod
    def _confirming(bulk: forms.Bulk, view: View, back: str, complaint: str) -> dict[str, Any]:
        return {
            "bulk": bulk,
            "back": back,
            "complaint": complaint,
            "title": "Confirm",
            "page": "jobs",
            "lists": view.lists,
            "names": forms.BULK,
        }

    async def _login(self, exchange: Exchange, session: Session, query: dict[str, str]) -> Answer:
        complaint = ""
        if exchange.verb == "POST":
            token, user, password = query.get("token", ""), query.get("user", ""), query.get("password", "")
            words = f"Bearer {token}" if token else "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
            try:
                await self._service.login(words, exchange.address, INTERFACE)
            except RefusedError as error:
                complaint = error.text
            else:
                answer = self._redirect("")
                # A password is for one cluster, and the nodes of other clusters must not see it.
                path = self._cookie_path if token else self._path
                answer.headers.append(cookie(LOGIN, words, path, is_secure=exchange.is_secure))
                answer.headers += self._without_login(exchange, {self._cookie_path, self._path} - {path})
                return answer
        view = View(self._service, self._stranger, exchange.address, {})
        status = 401 if complaint else 200
        return self._page("login.html", status, view, session, self._login_words(complaint))

    async def _at_issuer(self, exchange: Exchange, session: Session, rest: str, query: dict[str, str]) -> Answer:
        """Begin a login at the issuer, or accept its answer."""
        settings, issuer = self._service.settings, self._service.issuer
        if issuer is None or not settings.oidc_client_id:
            raise RefusedError("NOTFOUND", "there is no such page")
        scheme = "https" if exchange.is_secure else "http"
        own = f"{scheme}://{exchange.headers.get('host', '')}{self._path}oidc/back"
        redirect = settings.oidc_redirect or own
        # Each of these requests may make the gateway ask the issuer, before anybody is logged in.
        self._service.check_rate(exchange.address)
        if rest == "oidc":
            word = code_flow.new_word()
            answer = Answer(303, b"", HTML, [("location", await code_flow.address(issuer, settings, word, redirect))])
            answer.headers.append(
                cookie(
                    ISSUER, word, self._cookie_path, is_secure=exchange.is_secure, age_s=code_flow.COOKIE_S, site="Lax"
                )
            )
            return answer
        try:
            try:
                words = await code_flow.login(issuer, settings, session.issuer_word, redirect, query)
            except RefusedError as error:
                self._service.audit_login(exchange.address, INTERFACE, error.code)
                raise
            await self._service.login(words, exchange.address, INTERFACE, is_console=True)
        except RefusedError as error:
            view = View(self._service, self._stranger, exchange.address, {})
            return self._page("login.html", error.row.http, view, session, self._login_words(error.text))
        # Browsers don't send a SameSite=Strict cookie with a redirect that began at the issuer. This page makes a new
        # request.
        view = View(self._service, self._stranger, exchange.address, {})
        answer = self._page("welcome.html", 200, view, session, {"title": "Logged in", "page": "login"})
        answer.headers.append(cookie(LOGIN, words, self._cookie_path, is_secure=exchange.is_secure))
        answer.headers.append(cookie(ISSUER, "", self._cookie_path, is_secure=exchange.is_secure, age_s=0, site="Lax"))
        return answer

    def _without_login(self, exchange: Exchange, paths: set[str]) -> list[tuple[str, str]]:
        """Return the headers that remove the logins of these paths."""
        return [cookie(LOGIN, "", path, is_secure=exchange.is_secure, age_s=0) for path in sorted(paths)]

    def _login_words(self, complaint: str) -> dict[str, Any]:
        settings = self._service.settings
        return {
            "complaint": complaint,
            "tokens": bool(settings.access_file) or not settings.has_logins,
            "broker_users": settings.broker_users,
            "issuer": settings.oidc_issuer if settings.oidc_client_id else "",
            "title": "Log in",
            "page": "login",
        }

    def _page(self, template: str, status: int, view: View, session: Session, found: dict[str, Any]) -> Answer:
        context = {
            "view": view,
            "menu": [entry for entry in MENU if view.may_open(entry[0], entry[2])],
            "said": session.said,
            "form_token": session.form_token,
            "who": view.principal.name,
            "has_login": self._service.logins.needs_login and bool(session.authorization),
            "base": self._path,
            "cluster": self._service.cluster,
            "clusters": self._clusters if len(self._clusters) > 1 else [],
            "files": f"{self._path}static/{self._tag}",
            "version": __version__,
            "title": "",
            "page": "",
            **found,
        }
        text = self._templates.get_template(template).render(context)
        return Answer(status, shown.encoded(text), HTML, [CSP])

    def _error(self, exchange: Exchange, session: Session, error: RefusedError) -> Answer:
        view = View(self._service, self._stranger, exchange.address, {})
        found = {"title": "Not possible", "page": "error", "error": error, "problem": error.problem()}
        answer = self._page("error.html", error.row.http, view, session, found)
        answer.headers += refusal_headers(error)
        return answer

    def _to_login(self, exchange: Exchange) -> Answer:
        """Send the visitor to the login, with the whole page, even if only a live part was requested."""
        if "hx-request" in exchange.headers:  # htmx would follow a redirect, and put that page into this one.
            return Answer(401, b"", HTML, [("hx-redirect", f"{self._path}login"), CSP])
        return self._redirect("login")

    def _redirect(self, page: str) -> Answer:
        """Send the browser to a page of the console, and to nowhere else."""
        target = page.removeprefix(self._path)
        if (
            target.startswith(("/", "\\"))
            or "://" in target.partition("?")[0]
            or any(ord(each) < 32 for each in target)
        ):
            target = ""
        location = self._path + target.encode("ascii", "ignore").decode()
        return Answer(303, b"", HTML, [("location", location), CSP])

    def _file(self, name: str) -> Answer:
        body = self._files.get(name)
        if body is None:
            raise RefusedError("NOTFOUND", "there is no such file")
        return Answer(200, body, TYPES[name.rpartition(".")[2]])


def _sentence(name: str, found: dict[str, Any]) -> str:
    """Return a sentence about what was done."""
    if name == "enqueue":
        return f"Job {found['id']} was added."
    if "changed" in found:
        return "Done." if found["changed"] else "Nothing was changed: the job is over, or a worker has it."
    if "state" in found:
        return f"Operation {found['id']} has started."
    if "paused" in found and name in ("pause", "resume"):
        return f"The queue is paused: {found['paused']}."
    return "Done."
