"""The page at `/` as its reader has it: in a browser, on a real socket."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from tests.server.served import served, until
from tests.server.test_images import png
from tests.support.browser import chromium
from tests.support.commands import ROOT
from tests.support.eyes import files_of

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


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a server of the demo model, which answers greedily, and if it may for minutes: with its
    own template an answer would end where the other one's turn begins, and it has to fit."""
    endless = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    flags = ("--ignore-eos", "-c", "65536", "-n", "40", "--chat-template", endless)
    with served(*flags) as (client, _), on_a_socket(client) as found:
        yield found


@contextmanager
def on_a_socket(client: TestClient) -> Iterator[str]:
    """The address of what a client is for."""
    server = uvicorn.Server(uvicorn.Config(client.app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a tiny model that sees."""
    pytest.importorskip("PIL.Image")
    model, eyes = files_of("pixtral", tmp_path_factory.mktemp("eyes"))
    flags = ("-m", str(model), "--mmproj", str(eyes), "-n", "6")
    with served(*flags) as (client, _), on_a_socket(client) as found:
        yield found


TEXTS = """return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())"""
ENDED = """return !document.querySelector('[aria-busy=true]')
    && document.querySelector(".composer [aria-label=Send]") !== null"""


class Page:
    """What a user does with it. The page is drawn when it is ready: what an action leads to is
    waited for, and what is looked at together is looked at in one script."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver = driver
        driver.get(address)
        self.until(lambda: self.all("textarea[name=message]"))

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        return self.until(lambda: self.all(selector))[-1]

    def until(self, holds: Callable[[], Any]) -> Any:
        """As `until`; if it does not happen, the error has what is seen instead."""
        from selenium.common import StaleElementReferenceException

        def drawn() -> Any:
            with suppress(StaleElementReferenceException):  # it is drawn anew
                return holds()

        try:
            return until(drawn)
        except AssertionError:
            shown, log = self.seen("body")[0], self.driver.get_log("browser")
            busy = len(self.all("[aria-busy=true]"))
            raise AssertionError(
                f"it did not happen; {busy} answers are coming, and the page shows:\n{shown}\n{log}"
            ) from None

    def press(self, label: str, of: str = "") -> None:
        self.click(f"{of} [aria-label='{label}']")

    def click(self, selector: str) -> None:
        """The last one of these, once it can be clicked."""
        from selenium.common import ElementNotInteractableException, StaleElementReferenceException

        def clicked() -> bool:
            if not (found := self.all(selector)) or not found[-1].is_enabled():
                return False
            with suppress(ElementNotInteractableException, StaleElementReferenceException):
                found[-1].click()
                return True
            return False

        self.until(clicked)

    def say(self, text: str) -> None:
        self.one("textarea[name=message]").send_keys(text + "\n")

    def seen(self, selector: str) -> list[str]:
        """The texts of all of these."""
        return list(self.driver.execute_script(TEXTS, selector))

    def texts(self) -> list[str]:
        """Of all messages; none while one is coming."""
        return self.seen(".message .text") if self.driver.execute_script(ENDED) else []


def test_a_talk_with_branches(browser: Any, address: str) -> None:
    page = Page(browser, address)
    page.say("Who are you?")
    page.until(lambda: page.seen(".message.assistant .rate"))
    first = page.until(page.texts)
    assert first[0] == "Who are you?" and first[1]
    assert page.seen(".message.assistant .rate")[0].partition(" ")[2].startswith("tokens, ")

    page.press("Answer again", ".message.assistant")
    page.until(lambda: page.seen(".branches") == ["2 / 2"] and page.texts())
    page.press("The branch before", ".branches")
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
    assert said.startswith("3 tokens, ") and "no more room" in said
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


def show(page: Page, text: str) -> None:
    """Show a conversation in which a model has said something."""
    script = """
        const done = arguments[arguments.length - 1];
        const messages = {
            1: {id: 1, parent: null, role: 'user', text: 'hi', thought: ''},
            2: {id: 2, parent: 1, role: 'assistant', text: arguments[0], thought: arguments[0]}};
        const talk = {id: 'x', system: '', leaf: 2, changed: Date.now() + 1e9, messages};
        const open = indexedDB.open('keyval-store');
        open.onsuccess = () => {
            const store = open.result.transaction('keyval', 'readwrite').objectStore('keyval');
            store.put(talk, 'x').onsuccess = () => done();
        };"""
    page.driver.execute_async_script(script, text)
    page.driver.refresh()


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
        if not keeps:
            page.one("input[name=keep]").click()
        page.one("input[name=key]").send_keys("secret\n")
        page.until(lambda: not page.all("input[name=key]") and page.seen("h1") != ["llama-py"])
        stored = page.driver.execute_script(STORED)
        assert ("secret" in stored) is keeps
        page.driver.refresh()
        if not keeps:
            assert page.one("input[name=key]")
        page.driver.execute_script("localStorage.clear()")


def test_it_fits_a_small_window(browser: Any, address: str) -> None:
    browser.set_window_size(420, 800)
    try:
        page = Page(browser, address)
        width = "return document.documentElement.scrollWidth"
        page.until(lambda: browser.execute_script(width) <= 420)
        page.press("Conversations")
        left = "return document.querySelector('.sidebar').getBoundingClientRect().left"
        page.until(lambda: browser.execute_script(left) == 0)
    finally:
        browser.set_window_size(1280, 900)


# Gives the page an image as a paste or a drop does: [what is given to, kind of event, base64].
GIVE = """
const [to, kind, data] = arguments;
const bytes = Uint8Array.from(atob(data), c => c.charCodeAt(0));
const transfer = new DataTransfer();
transfer.items.add(new File([bytes], "a.png", {type: "image/png"}));
const what = kind === "paste" ? {clipboardData: transfer} : {dataTransfer: transfer};
const made = kind === "paste" ? ClipboardEvent : DragEvent;
return to.dispatchEvent(new made(kind, {bubbles: true, cancelable: true, ...what}));
"""


def test_images_are_attached_shown_and_sent(
    browser: Any, seeing: str, address: str, tmp_path: Path
) -> None:
    browser.get_log("browser")  # what other tests have left
    page = Page(browser, seeing)
    page.until(lambda: page.all(".composer .add"))
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    page.one("input[name=images]").send_keys(f"{tmp_path}/0.png\n{tmp_path}/1.png")
    page.until(lambda: len(page.all(".composer img")) == 2)
    given = base64.b64encode(png(2)).decode()
    field = page.one("textarea[name=message]")
    for n, kind in ((3, "paste"), (4, "drop")):
        assert not page.driver.execute_script(GIVE, field, kind, given)  # the page took it
        page.until(lambda n=n: len(page.all(".composer img")) == n)
    page.press("Remove image 1")
    page.until(lambda: len(page.all(".composer img")) == 3)
    page.say("What is this?")
    page.until(lambda: page.all(".message.assistant .rate"))
    assert page.until(page.texts)[0] == "What is this?" and not page.all(".error")
    shown = [img.get_attribute("src") for img in page.all(".message.user img")]
    head = "data:image/png;base64,"
    assert shown == [f"{head}{base64.b64encode(png(i)).decode()}" for i in (1, 2, 2)]
    loaded = "return [...document.images].every(i => i.complete && i.naturalWidth > 0)"
    page.until(lambda: page.driver.execute_script(loaded))
    assert not page.all(".composer img")
    page.driver.refresh()
    page.until(lambda: len(page.all(".message.user img")) == 3)
    assert not page.driver.get_log("browser")

    page = Page(browser, address)  # of a model without sight
    page.one(".new").click()
    field = page.one("textarea[name=message]")
    assert page.driver.execute_script(GIVE, field, "paste", given)
    assert not page.all(".composer .add")
