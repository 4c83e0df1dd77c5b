"""Chats of the page at `/`: attached files, the list of chats, keys, labels, errors, models."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.server.chat_page import Page, on_a_socket, show, told
from tests.server.served import served
from tests.server.test_images import png

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
