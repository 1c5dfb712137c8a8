"""The console: pages for people, made on the server.

pages.py has a function per page, and forms.py executes what a form asks for. sessions.py has cookies and the check of
forms. shown.py formats values, and charts.py draws lines. Templates escape everything. A page works without JavaScript;
with it, live parts are fetched again (htmx) and charts can be read off (uPlot). Both are vendored in static/.
"""
