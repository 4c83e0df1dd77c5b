"""The chat page in a browser, on a real socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from starlette.testclient import TestClient

from tests.server.served import until


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


def told(page: Page, text: str) -> None:
    """A chat with an answer."""
    page.new()
    page.say(text)
    page.until(lambda: page.all(".message.assistant .rate") and page.texts()[:1] == [text])
