"""Files of the page that `view/page.py` puts together: HTML, style, script modules, and dagre
(tools/refresh_dagre.py), which lays graphs out.
"""
