"""The console: pages for people, made on the server.

pages.py has a function per page, and forms.py executes what a form asks for. sessions.py has cookies and the check of
forms. shown.py formats values, and charts.py draws lines. Templates escape everything. A page works without JavaScript.
With JavaScript, live parts are refreshed (htmx), and charts show their values (uPlot). Both libraries are vendored in
static/.
"""
