"""The page at `/` as its reader has it: in a browser, on a real socket."""

from __future__ import annotations

import base64
import hashlib
import json
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
        """Put a text in, as a paste does, and send it."""
        field = self.one("textarea[name=message]")
        put = "arguments[0].focus(); document.execCommand('insertText', false, arguments[1])"
        self.driver.execute_script(put, field, text)
        field.send_keys("\n")

    def keys(self, *names: str) -> None:
        """Press keys at once, to what has the focus: names of selenium's keys, or characters."""
        from selenium.webdriver import ActionChains, Keys

        found = [getattr(Keys, name, name) for name in names]
        chain = ActionChains(self.driver)
        for key in found[:-1]:
            chain.key_down(key)
        chain.send_keys(found[-1])
        for key in found[:-1]:
            chain.key_up(key)
        chain.perform()

    def has_focus(self, selector: str) -> bool:
        script = "return document.activeElement?.matches(arguments[0]) ?? false"
        return bool(self.driver.execute_script(script, selector))

    def new(self) -> None:
        """Begin a chat."""
        self.click(".new")
        self.until(lambda: not self.all(".message"))

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
    page.until(lambda: page.seen("h1") != ["llama-py"])
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    page.one("input[name=files]").send_keys(f"{tmp_path}/0.png\n{tmp_path}/1.png")
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
    page.new()
    field = page.one("textarea[name=message]")
    assert not page.driver.execute_script(GIVE, field, "paste", given)
    page.until(lambda: page.seen(".notice"))
    assert "a.png: this model cannot read images. Choose a model" in page.seen(".notice")[0]
    page.press("Dismiss")
    page.until(lambda: not page.all(".notice"))
    assert not page.all(".composer img")


def test_text_files_are_attached_and_sent(browser: Any, address: str, tmp_path: Path) -> None:
    page = Page(browser, address)
    page.new()
    (tmp_path / "notes.md").write_text("the queen\n```\nof hearts\n")
    (tmp_path / "other.txt").write_text("x")
    (tmp_path / "program").write_bytes(b"\x7fELF\xff\x00")
    (tmp_path / "long.txt").write_bytes(b"x" * ((1 << 20) + 1))
    attach = page.one("input[name=files]")
    attach.send_keys(f"{tmp_path}/notes.md\n{tmp_path}/other.txt")
    page.until(lambda: page.seen(".composer .file b") == ["notes.md", "other.txt"])
    for name, says in (("program", "not a text file"), ("long.txt", "larger than 1 MiB")):
        attach.send_keys(str(tmp_path / name))
        page.until(
            lambda s=says, n=name: s in page.seen(".notice")[0] and n in page.seen(".notice")[0]
        )
    page.press("Remove other.txt")
    page.until(lambda: page.seen(".composer .file b") == ["notes.md"])
    sent = (
        "window.sent = []; const f = fetch; window.fetch = (u, i) => (sent.push(i?.body), f(u, i))"
    )
    page.driver.execute_script(sent)
    page.say("Who is it?")
    page.until(lambda: page.all(".message.assistant .rate") and page.texts())
    (body,) = page.driver.execute_script("return sent.filter((b) => b)")
    asked = "notes.md:\n````\nthe queen\n```\nof hearts\n````\n\nWho is it?"
    assert json.loads(body)["messages"] == [{"role": "user", "content": asked}]
    assert page.seen(".message.user .file small") == ["3 lines"] and not page.all(".composer .file")
    page.click(".message.user .file summary")
    page.until(lambda: "of hearts" in page.seen(".message.user .file pre")[0])
    page.driver.refresh()
    page.until(lambda: page.seen(".message.user .file b") == ["notes.md"])


def told(page: Page, text: str) -> None:
    """A chat with an answer."""
    page.new()
    page.say(text)
    page.until(lambda: page.all(".message.assistant .rate") and page.texts()[:1] == [text])


CHATS = ".sidebar .title"


def test_chats_are_renamed_and_found(browser: Any, address: str) -> None:
    page = Page(browser, address)
    told(page, "first about ships")
    told(page, "second about wine")
    page.click(".sidebar li:nth-child(2) .icon")
    page.click(".sidebar .actions button:nth-child(1)")
    name = page.one("input[name=title]")
    assert name.get_attribute("value") == "first about ships"
    name.send_keys("A voyage\n")
    page.until(lambda: page.seen(CHATS)[:2] == ["second about wine", "A voyage"])
    search = page.one("input[name=query]")
    for words, found in (
        ("voyage", ["A voyage"]),
        ("SHIPS about", ["A voyage"]),  # of a message
        ("about wine", ["second about wine"]),
        ("about whales", []),
    ):
        search.clear()
        search.send_keys(words)
        page.until(lambda f=found: page.seen(CHATS) == f)
    assert page.seen(".sidebar .none") == ["No chat has these words. Try fewer words."]
    search.clear()
    search.send_keys("voy")
    page.click(CHATS)
    page.until(lambda: page.texts()[:1] == ["first about ships"])
    page.driver.refresh()
    page.until(lambda: "A voyage" in page.seen(CHATS))
    page.click(".sidebar li:nth-child(2) .icon")
    page.click(".sidebar .actions button:nth-child(1)")
    page.one("input[name=title]").send_keys("Not this")
    page.keys("ESCAPE")
    page.until(lambda: "A voyage" in page.seen(CHATS))


# Has what the page saves: names of files in `saved`, and their texts in `texts`.
SAVED = """
window.saved = [];
window.texts = [];
HTMLAnchorElement.prototype.click = function () { window.saved.push(this.download); };
URL.createObjectURL = (blob) => {
  blob.text().then((text) => window.texts.push(text));
  return "#";
};
"""


def test_one_chat_is_exported_and_imported(browser: Any, address: str, tmp_path: Path) -> None:
    page = Page(browser, address)
    told(page, "Speak: to be exported?")
    answer = page.texts()[1]
    page.driver.execute_script(SAVED)
    page.click(".sidebar li:first-child .icon")
    for n in (2, 3):
        page.click(f".sidebar .actions button:nth-child({n})")
    found = page.until(lambda: page.driver.execute_script("return texts.length > 1 && texts"))
    names = page.driver.execute_script("return saved")
    assert names == ["Speak-to-be-exported.md", "Speak-to-be-exported.json"]
    head = "# Speak: to be exported?\n\n## User\n\nSpeak: to be exported?\n\n## Assistant\n\n"
    assert found[0].startswith(head) and answer.split()[0] in found[0]
    talk = json.loads(found[1])
    assert [m["role"] for m in talk["messages"].values()] == ["user", "assistant"]

    (tmp_path / "one.json").write_text(json.dumps({**talk, "id": "other", "title": "Imported"}))
    (tmp_path / "wrong.json").write_text("{")
    given = page.one("input[name=import]")
    given.send_keys(str(tmp_path / "one.json"))
    page.until(lambda: page.seen(".notice")[0].startswith("Imported 1 chat from one.json."))
    page.until(lambda: "Imported" in page.seen(CHATS))
    given.send_keys(str(tmp_path / "wrong.json"))
    page.until(lambda: "wrong.json has no chats. Choose a file" in page.seen(".notice")[0])


def test_keys_of_the_page(browser: Any, address: str) -> None:
    page = Page(browser, address)
    told(page, "Who speaks?")
    page.until(lambda: page.has_focus("textarea[name=message]"))
    page.keys("ARROW_UP")  # in an empty message
    page.until(lambda: page.has_focus("textarea[name=edited]"))
    assert page.one("textarea[name=edited]").get_attribute("value") == "Who speaks?"
    page.keys("ESCAPE")
    page.until(lambda: not page.all(".edit"))
    page.keys("CONTROL", "k")
    page.until(lambda: page.has_focus("input[name=query]"))
    page.keys("CONTROL", ",")
    page.until(lambda: page.all(".settings"))
    page.keys("ESCAPE")
    page.until(lambda: not page.all(".settings"))
    page.keys("CONTROL", "SHIFT", "o")
    page.until(lambda: not page.all(".message") and page.has_focus("textarea[name=message]"))
    page.driver.execute_script("document.activeElement.blur()")
    page.keys("?")
    page.until(lambda: "Search chats" in page.seen(".shortcuts dd"))
    page.keys("ESCAPE")
    page.until(lambda: not page.all(".shortcuts"))
    page.keys("/")
    page.until(lambda: page.has_focus("textarea[name=message]"))
    assert page.one("textarea[name=message]").get_attribute("value") == ""


def test_labels_are_those_that_are_seen(browser: Any, address: str) -> None:
    """Each control has a name: its text, its title or its placeholder."""
    page = Page(browser, address)
    told(page, "Name it")
    page.press("Settings")
    page.click(".sidebar li:first-child .icon")
    nameless = """const all = document.querySelectorAll("button, input, select, textarea");
      return [...all].filter((e) => {
        if (e.hidden || e.closest("label")) return false;
        const name = e.getAttribute("aria-label");
        if (name === null) return !e.innerText.trim();
        return ![e.title, e.placeholder, e.innerText].includes(name);
    }).map((e) => e.outerHTML)"""
    page.until(lambda: page.all(".settings") and page.all(".actions"))
    assert page.driver.execute_script(nameless) == []


def test_errors_have_a_remedy(browser: Any, address: str) -> None:
    """The page shows the error, its remedy and a button that retries."""
    page = Page(browser, address)
    page.new()
    page.driver.execute_script(
        """window.answer = fetch;
        window.fetch = (u, init) => init?.method === "POST" ? window.failing() : answer(u, init);
        window.failing = () => Promise.reject(new TypeError("Failed to fetch"));"""
    )
    page.say("Are you there?")
    cases = (
        (None, "Cannot reach the server. Check that llama-py-server is running, then retry."),
        ((503, "Loading model"), "Loading model. Retry in a few seconds."),
        ((500, "it broke"), "it broke. Retry, or read the server's log."),
        ((400, "'x' is wrong"), "'x' is wrong. Change the message or the settings, then retry."),
    )
    for failure, says in cases:
        if failure:
            script = """const [status, message] = arguments;
            window.failing = async () => Response.json({error: {message}}, {status});"""
            page.driver.execute_script(script, *failure)
            page.click(".error button")
        page.until(lambda s=says: page.seen(".error")[-1:] == [f"{s} Retry"])
        assert len(page.all(".message.assistant")) == 1
    page.driver.execute_script("window.fetch = window.answer")
    page.click(".error button")
    page.until(lambda: page.all(".message.assistant .rate") and not page.all(".error"))
    assert page.until(page.texts)[0] == "Are you there?" and not page.all(".branches")


def test_a_server_that_has_ended(browser: Any) -> None:
    with served() as (client, _):
        with on_a_socket(client) as address:
            page = Page(browser, address)
            page.until(lambda: page.seen("h1") != ["llama-py"])
        page.say("Hello")
        page.until(lambda: "Cannot reach the server." in page.seen(".error")[-1])
        browser.get("about:blank")
        browser.get_log("browser")


BEFORE = "Page.addScriptToEvaluateOnNewDocument"
TWO_MODELS = """
const answer = fetch;
window.sent = [];
window.fetch = async (url, init) => {
  if (init?.body) window.sent.push(JSON.parse(init.body).model);
  if (!String(url).endsWith("v1/models")) return answer(url, init);
  return Response.json({data: ["one", "two"].map((id) => ({id, meta: {n_ctx: 512}}))});
};"""


def test_a_model_is_chosen(browser: Any, address: str) -> None:
    """The page sends the name, and chooses the same model at the next visit."""
    made = browser.execute_cdp_cmd(BEFORE, {"source": TWO_MODELS})
    try:
        page = Page(browser, address)
        page.until(lambda: page.seen("header option") == ["one", "two"])
        page.one("header select").send_keys("two")
        told(page, "Speak")
        assert page.driver.execute_script("return sent") == ["two"]
        page.driver.refresh()
        page.until(lambda: page.one("header select").get_attribute("value") == "two")
    finally:
        name = "Page.removeScriptToEvaluateOnNewDocument"
        browser.execute_cdp_cmd(name, {"identifier": made["identifier"]})


def test_reasoning_is_folded(browser: Any, address: str) -> None:
    page = Page(browser, address)
    show(page, "It is *so*.")
    page.until(lambda: page.seen(".thought summary") == ["Reasoning"])
    assert not page.one(".thought .text").is_displayed()
    page.click(".thought summary")
    page.until(lambda: page.seen(".thought .text") == ["It is so."])
