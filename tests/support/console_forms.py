"""A browser without JavaScript: it keeps cookies, reads forms and sends them."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urlencode


class Visitor:
    """A visitor of a gateway's console."""

    def __init__(self, gateway) -> None:
        self.gateway = gateway
        self.cookies: dict[str, str] = {}
        self._paths: dict[str, str] = {}

    def _remember(self, reply):
        for header in reply.cookies:
            name, _, value = header.partition(";")[0].partition("=")
            path = re.search("Path=([^;]*)", header)[1]
            if "Max-Age=0" not in header:
                self.cookies[name], self._paths[name] = value, path
            elif self._paths.get(name) == path:  # Equal names with different paths are different cookies.
                del self.cookies[name], self._paths[name]
        return reply

    @property
    def headers(self):
        """Return the cookies as a browser sends them."""
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}

    def get(self, page=""):
        """Open a page."""
        return self._remember(self.gateway.get(f"/console/{page}", headers=self.headers))

    def send(self, action, fields, headers=None):
        """Send a form."""
        found = self.headers | {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
        body = urlencode(fields, doseq=True).encode()
        return self._remember(self.gateway.post(f"/console/{action}", body=body, headers=found | (headers or {})))

    def token(self, page="add"):
        """Return the token in a page's form."""
        found = re.search(r'name="form" value="(\w+)"', self.get(page).text)
        return unescape(found[1]) if found else ""

    def do(self, name, **fields):
        """Send the form of an action, with the token of the login page."""
        return self.send("do", {"form": self.token("login"), "do": name} | fields)
