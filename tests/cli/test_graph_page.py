"""The page of llama-py-graph view as its reader has it: in a browser."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ggml_py import ops
from ggml_py.graph import Graph
from ggml_py.tensor import Tensor
from llama_py_tools.graph import main
from llama_py_tools.graph.view.data import page_data
from llama_py_tools.graph.view.page import page
from llama_py_tools.graph.view.seen import GraphRecord
from tests.support.browser import chromium
from tests.support.commands import DEMO
from tests.support.limits import SECONDS

HOSTILE = "</script><img src=x onerror=document.title='taken'>\x1b[2J"
Open = Callable[[Path], Any]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def open_page(browser: Any) -> Iterator[Open]:
    """Opens a page; whatever its console says is an error at the end."""

    def go(path: Path) -> Any:
        browser.get("about:blank")
        browser.get_log("browser")
        browser.get(path.as_uri())
        return browser

    yield go
    assert browser.get_log("browser") == []


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the demo model, with values of `error`, of two graphs."""
    folder = tmp_path_factory.mktemp("page")
    path, dump, values = (folder / name for name in ("page.html", "dump", "values"))
    args = ["-m", str(DEMO), "-p", "ROMEO:"]
    assert main(["dump", *args, "--format", "json", "-o", str(dump)]) == 0
    with values.open("w") as file:
        for line in dump.read_text().splitlines():
            record = json.loads(line)
            record["overlay"] = {"error": 1e-9 * 1.06 ** record["i"]}
            file.write(json.dumps(record) + "\n")
    more = ["--decode", "1", "--overlay", str(values), "-o", str(path)]
    assert main(["view", *args, *more]) == 0
    return path


def run(browser: Any, script: str, *args: Any) -> Any:
    return browser.execute_script(script, *args)


def find(browser: Any, selector: str) -> Any:
    return browser.find_element("css selector", selector)


def texts(browser: Any, selector: str) -> list[str]:
    """What is seen of each."""
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText.trim())"
    return list(run(browser, script, selector))


def count(browser: Any, selector: str) -> int:
    return int(run(browser, "return document.querySelectorAll(arguments[0]).length", selector))


def titles(browser: Any) -> list[str]:
    """Of all folded parts that are shown, in their order."""
    return [title.lower() for title in texts(browser, ".card.part .title")]


def wait(browser: Any, script: str, *args: Any) -> Any:
    """Until the script returns something true."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, SECONDS, 0.02).until(lambda b: run(b, script, *args))


def until(holds: Callable[[], Any]) -> None:
    """What clicks and keys lead to is there soon, but not at once."""
    for _ in range(10 * SECONDS):
        with suppress(Exception):  # an element is drawn anew, or not there yet
            if holds():
                return
        time.sleep(0.1)
    assert holds()


def click(browser: Any, selector: str) -> None:
    """What the click before has made may be on its way."""
    until(lambda: find(browser, selector).click() is None)


def press(browser: Any, *keys: str) -> None:
    """Keys, to what has the focus."""
    from selenium.webdriver import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def name_of(key: str) -> str:
    from selenium.webdriver import Keys

    return str(getattr(Keys, key))


def test_at_first_it_is_a_short_column(open_page: Open, demo: Path) -> None:
    b = open_page(demo)
    until(lambda: titles(b) == ["input", "layer 0", "layer 3", "output"])
    assert texts(b, ".box.repeat > .head .title") == ["3 ×"]
    assert texts(b, ".card.layer .words") == ["delta net → experts", "attention → experts"]
    assert count(b, "[data-node]") == 0
    assert "qwen35moe" in find(b, "#facts").text
    assert "peak" in find(b, "#memory").text
    assert count(b, "#layers button") == 4


def test_unfold_and_fold(open_page: Open, demo: Path) -> None:
    b = open_page(demo)
    click(b, ".card.layer .face")
    until(lambda: titles(b) == ["input", "delta net", "experts", "layer 3", "output"])
    click(b, ".box.layer .card.block .face")
    wait(b, "return document.querySelectorAll('[data-node]').length > 20")
    names = {"attn_norm-0", "conv_output_silu-0"}
    until(lambda: names <= {*texts(b, ".card.node .face .name")})
    until(lambda: not any("(reshaped)" in name for name in texts(b, ".card.node .op")))
    until(lambda: count(b, ".box.block path.line") > 20)
    click(b, ".box.layer > .head > .fold")
    until(lambda: titles(b) == ["input", "layer 0", "layer 3", "output"])


@pytest.mark.parametrize("views", [False, True])
def test_boxes_do_not_overlap(open_page: Open, demo: Path, views: bool) -> None:
    b = open_page(demo)
    click(b, "#unfold-all")
    if views:
        click(b, "#views")
    wait(b, "return document.querySelectorAll('[data-node]').length > 10")
    until(
        lambda: (
            run(
                b,
                """
        const found = [];
        for (const body of document.querySelectorAll(".body, #canvas")) {
          const boxes = [...body.children].filter((e) => e.matches(".card, .box, .port"))
            .map((e) => [e.offsetLeft, e.offsetTop, e.offsetWidth, e.offsetHeight]);
          boxes.forEach(([x, y, w, h], i) => boxes.slice(0, i).forEach(([x2, y2, w2, h2]) => {
            const across = x < x2 + w2 - 1 && x2 < x + w - 1;
            if (across && y < y2 + h2 - 1 && y2 < y + h - 1) found.push([x, y, x2, y2]);
          }));
        }
        return found;""",
            )
            == []
        )
    )


def test_turns_of_a_repetition(open_page: Open, demo: Path) -> None:
    b = open_page(demo)
    click(b, ".turner .next")
    until(lambda: titles(b) == ["input", "layer 1", "layer 3", "output"])
    until(lambda: find(b, ".turner output").text == "layer 1")
    until(lambda: run(b, "return document.activeElement.className") == "next")
    click(b, ".turner .back")
    click(b, ".turner .back")
    until(lambda: titles(b)[1] == "layer 2")
    click(b, ".turner .all")
    until(lambda: titles(b) == ["input", "layer 0", "layer 1", "layer 2", "layer 3", "output"])


def test_search(open_page: Open, demo: Path) -> None:
    b = open_page(demo)
    press(b, "/", *"attn_norm-2")
    until(lambda: "attn_norm-2" in texts(b, "#found [role=option]")[0])
    until(lambda: "layer 2 › delta net" in texts(b, "#found [role=option]")[0])
    press(b, name_of("ENTER"))
    until(lambda: find(b, "#details h2").text == "attn_norm-2")
    until(lambda: "attn_norm-2" in find(b, ".card.selected").text)
    until(lambda: find(b, ".card.selected").is_displayed())
    until(lambda: texts(b, ".turner output") == ["layer 2"])
    press(b, "/", *"nothing like it")
    until(lambda: find(b, "#found").text == "No name matches. Try a part of the name.")
    press(b, name_of("ESCAPE"))
    until(lambda: not find(b, "#found").is_displayed())


def test_click_and_links(open_page: Open, demo: Path) -> None:
    """What is told of a node; its sources and users are links, weights are shown too."""
    b = open_page(demo)
    click(b, ".card.layer .face")
    click(b, ".box.layer .card.block .face")
    wait(b, "return document.querySelector('[data-node=\"2\"]')")
    click(b, '[data-node="2"] .face')
    told = (
        "layer 0 › delta net",
        "attn_norm-0",
        "MUL",
        "[256, 2]",
        "f32",
        "2,048 bytes",
        "[4, 1,024, 2,048, 2,048] bytes",
        "buffer offset",
        "in memory",
        "error",
    )
    until(lambda: all(text in find(b, "#details").text for text in told))
    until(lambda: texts(b, "#details .links a")[:2] == ["norm-0", "blk.0.attn_norm.weight"])
    until(lambda: len(texts(b, "#details .links a")) == 6)
    until(lambda: count(b, "path.hot") == 5)
    click(b, "#details .links a")
    wait(b, "return document.querySelector('#details h2').textContent === 'norm-0'")
    until(lambda: run(b, "return location.hash") == "#g0n1")
    click(b, '[data-node="2"] .chip')
    until(lambda: find(b, "#details h2").text == "blk.0.attn_norm.weight")
    until(lambda: "weight of the model" in find(b, "#details").text)
    click(b, "#details .links a")
    wait(b, "return document.querySelector('#details h2').textContent === 'attn_norm-0'")


def test_a_link_to_a_node(open_page: Open, demo: Path) -> None:
    b = open_page(demo)
    b.get(demo.as_uri() + "#g1n40")
    wait(b, "return document.querySelector('.card.selected')")
    until(lambda: find(b, "#graph").get_attribute("value") == "1")
    until(lambda: find(b, "#details h2").text == "gate-0")


def colours(b: Any) -> list[str]:
    script = "(e) => getComputedStyle(e).borderLeftColor"
    return list(run(b, f"return [...document.querySelectorAll('.card.node')].map({script})"))


def test_colours(open_page: Open, demo: Path) -> None:
    from selenium.webdriver.support.ui import Select

    b = open_page(demo)
    choice = Select(find(b, "#colour"))
    assert choice.first_selected_option.text == "error"
    assert [o.text for o in choice.options] == [
        "Kind of op",
        "Device",
        "Type of weights",
        "Bytes of results",
        "error",
    ]
    until(lambda: find(b, "#legend .ticks").text.split()[0] == "1.00e-9")
    run(b, "location.hash = '#g0n2'")
    wait(b, "return document.querySelectorAll('.card.node').length > 20")
    until(lambda: len(set(colours(b))) > 15)
    choice.select_by_value("op")
    wait(b, "return document.querySelectorAll('.card.node').length > 20")
    until(lambda: 5 < len(set(colours(b))) < 12)
    until(lambda: {"matrix", "norm", "delta net"} <= set(texts(b, "#legend li span")))
    choice.select_by_value("device")
    until(lambda: len(texts(b, "#legend li")) == 1)


def test_light_and_dark(open_page: Open, demo: Path) -> None:
    b = open_page(demo)
    ground = "return getComputedStyle(document.body).backgroundColor"
    before = run(b, ground)
    click(b, "#theme")
    until(lambda: run(b, ground) != before)


def test_keyboard(open_page: Open, demo: Path) -> None:
    """Everything without a mouse: go on, unfold, select, fold, leave."""
    b = open_page(demo)
    here = "return document.activeElement.getAttribute('aria-label')"
    press(b, name_of("ARROW_DOWN"))
    until(lambda: run(b, here).startswith("input"))
    press(b, name_of("ARROW_DOWN"), name_of("ARROW_DOWN"))
    until(lambda: run(b, here).startswith("layer 0"))
    press(b, name_of("ARROW_RIGHT"))
    until(lambda: run(b, here) == "layer 0, unfolded")
    press(b, name_of("ARROW_DOWN"), name_of("ARROW_RIGHT"))
    until(lambda: run(b, here) == "delta net, unfolded")
    wait(b, "return document.querySelectorAll('[data-node]').length > 20")
    press(b, name_of("ARROW_DOWN"), name_of("ENTER"))
    until(lambda: find(b, "#details .tag").text in ("SCALE", "RMS_NORM"))
    press(b, name_of("ARROW_LEFT"))
    until(lambda: run(b, here) == "delta net, unfolded")
    press(b, name_of("ARROW_LEFT"))
    until(lambda: run(b, here).startswith("delta net") and run(b, here).endswith("folded"))
    press(b, name_of("ESCAPE"))
    until(lambda: "How to read this" in find(b, "#details").text)
    before = find(b, "#fit").text
    press(b, "+")
    until(lambda: find(b, "#fit").text != before)


def test_memory_chart(open_page: Open, demo: Path) -> None:
    b = open_page(demo)
    painted = """
        const c = document.querySelector("#memory canvas");
        const data = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        return new Set(new Uint32Array(data.buffer)).size;"""
    until(lambda: run(b, painted) > 10)
    click(b, "#memory .peak")
    until(lambda: run(b, "return location.hash").startswith("#g0n"))
    until(lambda: find(b, ".card.selected").is_displayed())


def test_numbers_of_buffers_agree(open_page: Open, demo: Path) -> None:
    """The model's figures and the chart have the same sizes, in the same digits."""
    b = open_page(demo)
    facts = dict(zip(texts(b, "#facts dt"), texts(b, "#facts dd"), strict=True))
    figures = re.fullmatch(
        r"(\S+ KiB) \((\S+ KiB) results, (\S+ KiB) inputs\)", facts["compute buffers"]
    )
    assert figures is not None
    total, *parts = (float(text.split()[0]) for text in figures.groups())
    assert abs(total - sum(parts)) <= 0.6  # all have three digits
    assert texts(b, "#memory option") == ["cpu results", "cpu inputs"]
    shown = []
    for number in (0, 1):
        script = """const s = document.querySelector("#memory select");
            s.value = arguments[0]; s.dispatchEvent(new Event("change"));"""
        run(b, script, number)
        shown.append(find(b, "#memory .size").text.partition(" taken of ")[2])
    assert tuple(shown) == figures.groups()[1:]


@pytest.mark.parametrize("width", [390, 900])
def test_a_small_window(open_page: Open, demo: Path, width: int) -> None:
    """All controls are on the screen, apart from each other, and the panels fold."""
    b = open_page(demo)
    b.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    try:
        b.refresh()
        until(lambda: titles(b) == ["input", "layer 0", "layer 3", "output"])
        assert run(b, "return document.documentElement.scrollWidth") == width
        boxes = run(
            b,
            """return [...document.querySelectorAll("#bar :is(h1, button, select, input)")]
            .filter((e) => e.checkVisibility()).map((e) => {
              const {left, top, right, bottom} = e.getBoundingClientRect();
              return [left, top, right, bottom];
            });""",
        )
        assert len(boxes) > 9
        for i, (left, top, right, bottom) in enumerate(boxes):
            assert 0 <= left < right <= width and 0 <= top < bottom < 400
            for left2, top2, right2, bottom2 in boxes[:i]:
                beside = right <= left2 + 1 or right2 <= left + 1
                assert beside or bottom <= top2 + 1 or bottom2 <= top + 1
        assert not find(b, "#overview").is_displayed()
        click(b, "#panels [data-panel=model]")
        until(lambda: find(b, "#facts").is_displayed() and not find(b, "#details").is_displayed())
        click(b, "#panels [data-panel=model]")
        until(lambda: not find(b, "#overview").is_displayed())
        if width == 390:
            assert not find(b, "#details").is_displayed()
            click(b, "#panels [data-panel=memory]")
            until(lambda: find(b, "#memory canvas").is_displayed())
            press(b, name_of("ESCAPE"))
            until(lambda: not find(b, "#memory").is_displayed())
        run(b, "location.hash = '#g0n2'")
        until(
            lambda: (
                find(b, "#details h2").is_displayed()
                and find(b, "#details h2").text == "attn_norm-0"
            )
        )
        until(lambda: find(b, ".card.selected").is_displayed())
    finally:
        b.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_hostile_names(open_page: Open, tmp_path: Path) -> None:
    graph, x = Graph(), Tensor(ne=(8, 2), name=HOSTILE)
    y = ops.scale(x, 2.0).set_name(HOSTILE)
    graph.build_forward_expand(y)
    path = tmp_path / "page.html"
    path.write_text(
        "".join(page(page_data([GraphRecord(HOSTILE, graph)], HOSTILE, [("name", HOSTILE)])))
    )
    b = open_page(path)
    assert b.title.startswith("</script><img") and "taken" not in b.title[:8]
    press(b, "/", *"script")
    until(lambda: texts(b, "#found [role=option]"))
    press(b, name_of("ENTER"))
    until(lambda: find(b, "#details h2").text.startswith("</script><img src=x"))
    assert count(b, "img") == 0
    assert "\x1b" not in find(b, "body").text
    assert run(b, "return document.title") != "taken"


def test_five_thousand_nodes(open_page: Open, tmp_path: Path) -> None:
    """All unfolded, with only what is near on the screen as elements."""
    graph, x = Graph(), Tensor(ne=(8, 2), name="inp_embd")
    x = ops.scale(x, 1.0)
    for il in range(60):
        start = x
        for k in range(27):
            gate = ops.silu(x).set_name(f"gate_{k}-{il}")
            half = ops.scale(x, 0.5).set_name(f"half_{k}-{il}")
            x = ops.mul(half, gate).set_name(f"x_{k}-{il}")
        x = ops.add(x, start).set_name(f"l_out-{il}")
    graph.build_forward_expand(x)
    assert len(graph.nodes) > 4900
    path = tmp_path / "page.html"
    path.write_text("".join(page(page_data([GraphRecord("all", graph)], "large"))))
    b = open_page(path)
    until(lambda: texts(b, ".box.repeat > .head .title") == ["60 ×"])
    click(b, "#unfold-all")
    until(lambda: count(b, ".box.layer") == 60)
    wait(b, "return document.querySelectorAll('[data-node]').length > 20")
    assert count(b, "[data-node]") < 1500
    run(b, "document.getElementById('pane').scrollTop = 1e9")
    wait(b, "return document.querySelector('[data-node=\"4900\"]')")
    until(lambda: count(b, '[data-node="5"]') == 0)
