"""Files of the page that `view/page.py` puts together: HTML, style, script modules, and dagre
(dev/docs/refresh_dagre.py), which lays graphs out.
"""
