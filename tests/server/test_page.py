"""The page at `/` as its reader has it: in a browser, on a real socket."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.chat_page import Page, on_a_socket, show
from tests.server.served import served
from tests.support.commands import ROOT

SOURCES = ROOT / "dev" / "make" / "chat_page"
BUILT = ROOT / "apps" / "llama_py_server" / "page"


def test_the_page_is_built_of_its_sources() -> None:
    """`npm run build` in dev/make/chat_page makes it anew."""
    names = ["index.html", "page.css", "package-lock.json"]
    names += [f.relative_to(SOURCES).as_posix() for f in SOURCES.glob("src/**/*.ts*")]
    found = hashlib.sha256()
    for name in sorted(n for n in names if ".test." not in n):
        found.update(f"{name}\n".encode() + (SOURCES / name).read_bytes().replace(b"\r\n", b"\n"))
    assert (BUILT / "sources.sha256").read_text().strip() == found.hexdigest()


def test_files_need_no_key_and_load_nothing_from_elsewhere(client: TestClient) -> None:
    with served("--api-key", "secret") as (locked, _):
        assert locked.get("/v1/models").status_code == 401
        for path in ("/", "/page.css", "/page.js", "/LICENSES.txt"):
            found = locked.get(path)
            assert found.status_code == 200
            assert found.headers["content-security-policy"].startswith("default-src 'none'")
    html = client.get("/").text
    assert "://" not in html
    assert client.get("/sources.sha256").status_code == 404
    assert client.get("/../app.py").status_code == 404


def test_a_talk_with_branches(browser: Any, address: str) -> None:
    page = Page(browser, address)
    page.say("Who are you?")
    page.until(lambda: page.seen(".message.assistant .rate"))
    first = page.until(page.texts)
    assert first[0] == "Who are you?" and first[1]
    assert page.seen(".message.assistant .rate")[0].partition(" ")[2].startswith("tokens, ")

    page.press("Regenerate", ".message.assistant")
    page.until(lambda: page.seen(".branches") == ["2 / 2"] and page.texts())
    page.press("Previous branch", ".branches")
    page.until(lambda: page.seen(".branches") == ["1 / 2"] and page.texts() == first)

    page.press("Edit", ".message.user")
    field = page.one(".edit textarea")
    field.clear()
    field.send_keys("Where is the king?")
    page.click(".edit button[type=submit]")
    page.until(lambda: page.texts()[:1] == ["Where is the king?"] and page.texts()[1:])
    assert page.seen(".message.user .branches") == ["2 / 2"]

    page.driver.refresh()  # kept by the browser
    page.until(lambda: page.texts()[:1] == ["Where is the king?"])
    assert not page.driver.get_log("browser")


def test_an_answer_is_stopped_and_settings_are_sent(browser: Any, address: str) -> None:
    page = Page(browser, address)
    page.click(".new")
    page.until(lambda: not page.all(".message"))
    page.press("Settings")
    page.one("textarea[name=system]").send_keys("You are a king.")
    length = page.one("input[name=max_tokens]")
    length.send_keys("3")
    page.one("input[name=temperature]").send_keys("0\t")
    page.say("Speak")
    page.until(page.texts)  # it has ended
    (said,) = page.seen(".rate")
    assert said.startswith("3 tokens, ") and "length limit reached" in said
    length.clear()
    length.send_keys("100000\t")
    page.say("And on")
    page.until(lambda: page.all("[aria-busy=true]"))
    page.press("Stop")
    page.until(lambda: "stopped" in "".join(page.seen(".message:last-child .rate")))


def test_the_oldest_turns_leave_a_full_context(browser: Any) -> None:
    """Turns that no longer fit are not sent, which the page shows; none is refused."""
    endless = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    flags = ("--ignore-eos", "-np", "1", "-c", "512", "-n", "8", "--chat-template", endless)
    with served(*flags) as (client, state), on_a_socket(client) as address:
        page = Page(browser, address)
        page.click(".new")
        page.until(lambda: not page.all(".message"))
        for turn in range(4):
            page.say(f"{turn} " + "the king and the queen " * 20)
            page.until(lambda: len(page.texts()) == 2 * turn + 2)  # noqa: B023
        page.until(lambda: page.seen(".full"))
        assert "Context full: the model no longer sees the 2 oldest messages." in page.seen(".full")
        (meter,) = page.seen(".context")
        assert meter.startswith("Context") and meter.endswith(" of 512 tokens")
        assert state.engine.metrics().total.ended["length"] == 4
        page.say("the king and the queen " * 60)  # estimated wrongly: the server refuses the first
        page.until(lambda: len(page.texts()) == 10)
        assert "the model no longer sees the 8 oldest messages." in page.seen(".full")[-1]
        assert page.seen(".message:last-child .text")[-1]
        page.say("the king and the queen " * 200)
        page.until(lambda: "Shorten it" in "".join(page.seen(".message:last-child .full")[-1:]))
        assert not page.all(".error")


@pytest.mark.parametrize("mark", [">", "> ", "- ", "*", "[", "("])
def test_markup_that_is_nested_deeply_is_text(browser: Any, address: str, mark: str) -> None:
    page = Page(browser, address)
    show(page, f"{3000 * mark}the end {mark}")
    page.until(lambda: "the end" in "".join(page.texts()))


def test_what_a_model_says_is_no_markup(browser: Any, address: str) -> None:
    page = Page(browser, address)
    hostile = "<img src=x onerror=document.title='taken'> [a](javascript:alert(1)) ![b](http://e/p)"
    show(page, hostile)
    page.until(lambda: "onerror" in "".join(page.texts()))
    assert not page.all(".message img") and page.driver.title == "llama-py"
    links = [one.get_attribute("href") for one in page.all(".message a")]
    assert all(link is None or not link.startswith("javascript") for link in links)


STORED = "return Object.keys(localStorage).map((name) => localStorage.getItem(name))"


@pytest.mark.parametrize("keeps", [True, False])
def test_a_key_is_asked_for(browser: Any, keeps: bool) -> None:
    """It is kept by the browser, unless the user does not want that."""
    with served("--api-key", "secret") as (client, _), on_a_socket(client) as address:
        page = Page(browser, address)
        page.one("input[name=key]").send_keys("wrong\n")
        page.until(lambda: "does not accept this API key" in page.seen(".key")[0])
        page.one("input[name=key]").clear()
        if not keeps:
            page.one("input[name=keep]").click()
        page.one("input[name=key]").send_keys("secret\n")
        page.until(lambda: not page.all("input[name=key]") and page.seen("h1") != ["llama-py"])
        stored = page.driver.execute_script(STORED)
        assert ("secret" in stored) is keeps
        page.driver.refresh()
        if keeps:
            page.press("Settings")
            page.until(lambda: "Forget API key" in page.seen(".settings button"))
            page.click(".settings > button:last-child")
            page.until(lambda: page.all("input[name=key]"))
            assert "secret" not in page.driver.execute_script(STORED)
        assert page.one("input[name=key]")
        page.driver.execute_script("localStorage.clear()")


def test_it_fits_a_small_window(browser: Any, address: str) -> None:
    browser.set_window_size(420, 800)
    try:
        page = Page(browser, address)
        width = "return document.documentElement.scrollWidth"
        page.until(lambda: browser.execute_script(width) <= 420)
        chats = page.one(".sidebar")
        assert not chats.is_displayed()  # its buttons are no targets of the Tab key
        left = "return document.querySelector('.sidebar').getBoundingClientRect().left"
        for close in ("Close", "shade", "Escape"):
            page.press("Chats", "header")
            page.until(lambda: browser.execute_script(left) == 0)
            if close == "Close":
                page.press("Close", ".sidebar")
            elif close == "shade":
                browser.execute_script("document.querySelector('.shade').click()")
            else:
                page.keys("ESCAPE")
            page.until(lambda: not chats.is_displayed())
        page.press("Settings", "header")
        page.press("Close", ".settings")
        page.until(lambda: not page.all(".settings"))
    finally:
        browser.set_window_size(1280, 900)
